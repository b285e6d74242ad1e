"""The command line: reads arguments, calls the Python API, and prints. `--help` does not import torch."""

from transduce.cli.main import main

__all__ = ["main"]
