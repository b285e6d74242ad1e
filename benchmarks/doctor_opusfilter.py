"""OpusFilter's side of `doctor_speed.py`, run by the Python of OpusFilter's own environment; prints JSON.

python benchmarks/doctor_opusfilter.py FILE.de FILE.en PAIRS_FOR_RULES JOBS
"""

import json
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from opusfilter import filters
from opusfilter.lid import LinguaFilter
from opusfilter.opusfilter import OpusFilter

CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffd]"
LINGUA_PAIRS = 300
# What each of doctor's analyses does, as nearly as OpusFilter has it.
RULES = {
    "RegExpFilter": {"regexps": CONTROLS, "accept_match": False},
    "HtmlTagFilter": {},
    "LengthFilter": {"unit": "char", "min_length": 1, "max_length": 1000},
    "LengthRatioFilter": {"unit": "char", "threshold": 4},
    "SimilarityFilter": {"threshold": 0.99},
    "NonZeroNumeralsFilter": {"threshold": 0.5},
    "CharacterScoreFilter": {"scripts": ["Latin", "Latin"], "thresholds": [0.5, 0.5]},
}


def main() -> None:
    source, target, count, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with open(source) as one, open(target) as other:
        pairs = [(a.rstrip("\n"), b.rstrip("\n")) for a, b in islice(zip(one, other), count)]  # noqa: B905
    rules = {name: timed(getattr(filters, name)(**options), pairs) for name, options in RULES.items()}
    rules["LinguaFilter"] = timed(LinguaFilter(languages=["de", "en"], thresholds=[0.5, 0.5]), pairs[:LINGUA_PAIRS])
    everything = {str(n): whole([source, target], n) for n in sorted({1, jobs})}
    seconds, used = ({jobs: one[n] for jobs, one in everything.items()} for n in (0, 1))
    print(json.dumps({"pairs_per_second": rules, "whole_seconds": seconds, "whole_cpu_seconds": used}))


def timed(rule: object, pairs: list) -> float:
    list(rule.filter(pairs[:10]))  # type: ignore[attr-defined]
    begun = time.process_time()
    list(rule.filter(pairs))  # type: ignore[attr-defined]
    return len(pairs) / (time.process_time() - begun)


def cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def whole(inputs: list[str], jobs: int) -> tuple[float, float]:
    """Seconds and CPU seconds for all rules and the removal of duplicates, as its configuration runs them."""
    with tempfile.TemporaryDirectory() as folder:
        kept, unique = (["kept.de", "kept.en"], ["unique.de", "unique.en"])
        steps = [
            {"type": "filter", "parameters": {"inputs": inputs, "outputs": kept, "n_jobs": jobs, "filters": [{n: dict(o)} for n, o in RULES.items()]}},
            {"type": "remove_duplicates", "parameters": {"inputs": kept, "outputs": unique}},
        ]  # fmt: skip
        begun, used = time.perf_counter(), cpu_seconds()
        OpusFilter({"common": {"output_directory": folder}, "steps": steps}).execute_steps()
        assert (Path(folder) / unique[0]).stat().st_size
        return time.perf_counter() - begun, cpu_seconds() - used


if __name__ == "__main__":
    main()
