"""The outputs of a record's models: the best ones of each line are kept in a file, scored, and elected by vote."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transduce.paper.cells import Task
from transduce.paper.results import Figures
from transduce.translator import LoadOptions, Translator

from .record_tasks import language_of
from .records import record_of
from .session import outputs_of
from .tasks import Lines

N_BEST = 5
Candidates = list[list[tuple[str, float]]]  # for each line, outputs with their log-probabilities


def candidates(run: Path, task: Task, splits: Iterable[str]) -> dict[str, Candidates]:
    """The best outputs of a model for each line, with their log-probabilities, the model's first choice first."""
    translator = Translator.load(run, LoadOptions(engine="torch"))
    found = {}
    for split in splits:
        sources, _ = task.lines(getattr(task, split))
        lists = translator.n_best(sources, N_BEST, beam=max(task.beam, N_BEST))
        found[split] = [[(output.text, output.log_probability) for output in one.outputs] for one in lists]
    return found


def first(candidates: Sequence[tuple[str, float]]) -> str:
    return candidates[0][0] if candidates else ""


def scores(task: Task, name: str, outputs: dict[str, Lines]) -> Figures:
    """Scores of the validation data and, if there are such outputs, of the test data; also language by language."""
    found: Figures = {}
    for split, lines in outputs.items():
        sources, references = task.lines(getattr(task, split))
        score = task.score(lines, references)
        found |= {"metric": score.name, "signature": score.signature, "higher_is_better": score.higher_is_better}
        found["score" if split == "test" else split] = round(score.value, 2)
        found[f"{split}_by_language"] = by_language(task, name, sources, lines, references)
    return found


def by_language(task: Task, name: str, sources: Lines, outputs: Lines, references: Lines) -> dict[str, float]:
    """The score of each language that a tag names; without tags, of the language in the name of the task."""
    record, groups = record_of(name), {}
    for line in zip(sources, outputs, references, strict=True):
        language = language_of(line[0]) or name.removeprefix(record.name).strip()
        groups.setdefault(language, []).append(line[1:])
    return {
        language: round(task.score([line[0] for line in lines], [line[1] for line in lines]).value, 2)
        for language, lines in groups.items()
    }


def vote(members: Sequence[Candidates]) -> Lines:
    """For each line the output with the largest sum of probabilities, over all models."""
    return [elected([pair for candidates in line for pair in candidates]) for line in zip(*members, strict=True)]


def elected(candidates: Iterable[Sequence[Any]]) -> str:
    sums: dict[str, float] = {}
    for text, log_probability in candidates:
        sums[text] = sums.get(text, 0.0) + math.exp(log_probability)
    return max(sums, key=lambda text: sums[text], default="")


def candidates_of(out: Path, key: str) -> Path:
    """The file of a cell's outputs; not kept under version control."""
    return outputs_of(out, key).with_suffix(".json")


def keep(path: Path, found: dict[str, Candidates]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def read_candidates(path: Path) -> dict[str, Candidates]:
    """The outputs of a cell, or nothing if they are not here."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
