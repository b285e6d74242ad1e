"""Translation edit rate (TER) by sacreBLEU, on all cores, because it takes longer than translating. Knows strings only."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.cores import available_cores

LINES_PER_PROCESS = 200  # fewer lines are finished before another process has started
START = "from transduce.metrics.edit_rate import main; main()"


@dataclass(frozen=True)
class EditRate:
    """The edits of each line and the length of its references, with sacreBLEU's signature."""

    edits: list[float]
    lengths: list[float]
    signature: str

    @property
    def score(self) -> float:
        """Of all lines, in percent, as in sacreBLEU."""
        edits, length = sum(self.edits), sum(self.lengths)
        return 100 * edits / length if length else 100.0 * (edits > 0)


Stream = Sequence[str | None]  # one reference of every line; None if a line has fewer references


def edit_rate(hypotheses: Sequence[str], references: Sequence[Stream], asian: bool, processes: int = 0) -> EditRate:
    """Compute TER in this many processes (0: one per core)."""
    count = min(processes or available_cores(), len(hypotheses) // LINES_PER_PROCESS)
    # The signature depends on whether lines have equally many references, which takes all lines to know.
    uneven = any(text is None for stream in references for text in stream)
    if count < 2 or uneven or not sys.executable:
        return _count(hypotheses, references, asian)
    # Interleaved, because long lines are often next to each other.
    parts = [slice(number, None, count) for number in range(count)]
    try:
        found = _count_in_processes(hypotheses, references, asian, parts)
    except (OSError, ValueError):  # no process could be started, or one was killed
        return _count(hypotheses, references, asian)
    return _in_order(found, parts, len(hypotheses))


def _in_order(found: Sequence[EditRate], parts: Sequence[slice], lines: int) -> EditRate:
    """The counts of the parts in the order of the lines."""
    edits, lengths = [0.0] * lines, [0.0] * lines
    for one, part in zip(found, parts, strict=True):
        edits[part], lengths[part] = one.edits, one.lengths
    return EditRate(edits, lengths, found[0].signature)


def _count_in_processes(
    hypotheses: Sequence[str], references: Sequence[Stream], asian: bool, parts: Sequence[slice]
) -> list[EditRate]:
    """Run a process for each part; none of them outlives this call."""
    jobs: list[subprocess.Popen[str]] = []
    try:
        for part in parts:
            jobs.append(_start(hypotheses[part], [stream[part] for stream in references], asian))
        return [EditRate(**json.loads(_answer(job))) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def _count(hypotheses: Sequence[str], references: Sequence[Stream], asian: bool) -> EditRate:
    from sacrebleu.metrics import TER  # imported here because it is slow

    metric: Any = TER(normalized=asian, asian_support=asian)
    # The counts behind `corpus_score`, which returns only their sums.
    counts = metric._extract_corpus_statistics(list(hypotheses), [list(stream) for stream in references])
    edits, lengths = ([float(count[column]) for count in counts] for column in (0, 1))
    return EditRate(edits, lengths, str(metric.get_signature()))


def _start(hypotheses: Sequence[str], references: Sequence[Stream], asian: bool) -> "subprocess.Popen[str]":
    """Start a new process; a fork would be unsafe, since this one may have threads and use a GPU."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    job = subprocess.Popen(
        [sys.executable, "-P", "-c", START],  # -P: import nothing from the current folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path},
    )
    assert job.stdin is not None
    try:
        with job.stdin as pipe:
            lines = {"hypotheses": list(hypotheses), "references": [list(one) for one in references], "asian": asian}
            json.dump(lines, pipe)
    except OSError:
        job.kill()
        job.wait()
        raise
    return job


def _answer(job: "subprocess.Popen[str]") -> str:
    assert job.stdout is not None
    with job.stdout:
        answer = job.stdout.read()
    if job.wait() != 0:
        raise OSError(f"a process that computes TER ended with exit code {job.returncode}")
    return answer


def main() -> None:
    """The worker process: reads lines as JSON from standard input, and writes their edits as JSON to standard output."""
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    found = _count(**json.load(sys.stdin))
    print(json.dumps({"edits": found.edits, "lengths": found.lengths, "signature": found.signature}))
