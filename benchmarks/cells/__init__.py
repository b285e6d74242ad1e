"""Tables whose cells are trained: which cells there are, their data, and sessions that run what is missing.

Every finished cell is one line of a JSONL file, so a table can be made over several sessions on a GPU: cells that have a line are
not trained again, and no cell is begun that would not end within `--seconds-left`. `--out FOLDER` writes the lines and the outputs
of this session elsewhere; append them to benchmarks/results afterwards. `benchmarks/pages/` writes the pages from these lines.

Before `--side-by-side` on an NVIDIA GPU, start the Multi-Process Service (`nvidia-cuda-mps-control -d`), and run nothing outside of it: ten
small trainings together then do three times the work of one (docs/log.md).
"""
