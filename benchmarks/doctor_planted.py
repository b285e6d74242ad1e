"""What `transduce doctor` finds: faults of each kind planted at known lines of a clean corpus, and what it says of clean corpora.

python benchmarks/doctor_planted.py                    plants in 200,000 pairs of Europarl and looks at three clean corpora
python benchmarks/doctor_planted.py --pairs 20000      a quick trial, which writes no result file

A rule's recall is the share of its planted lines that it names. A false alarm is a line that it names although nothing was
planted there and it does not name it in the corpus before planting; what it names there is listed under `clean`.
"""

import argparse
import html
import lzma
import random
import re
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from facts import default_data, write_result

import transduce
from transduce.data import Corpus
from transduce.diagnosis.analysis import Context
from transduce.diagnosis.characters import character_rules
from transduce.diagnosis.examination import examine as diagnosis
from transduce.diagnosis.examination import open_corpora
from transduce.diagnosis.lookup import Lookup
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.near_duplicates import NearDuplicateAnalysis, find_near_duplicates, joined
from transduce.diagnosis.pairs import PAIR_RULES
from transduce.diagnosis.reading import PortionParser, PortionReader
from transduce.diagnosis.removal import LEAKS
from transduce.training.request import TrainingRequest, requested_settings

Pair = tuple[str, str]
Change = Callable[[Pair, random.Random, list[Pair]], Pair]

SEED = 17
SHARE = 0.002  # of the pairs get a fault, for each kind
PACKAGES = ["numpy", "ftfy", "lingua-language-detector"]


def target(change: Callable[[str], str]) -> Change:
    return lambda pair, chance, pairs: (pair[0], change(pair[1]))


def in_the_middle(text: str, inserted: str) -> str:
    at = text.find(" ", len(text) // 2)
    return text[:at] + inserted + text[at:] if at > 0 else text + inserted


def decomposed(pair: Pair, chance: random.Random, pairs: list[Pair]) -> Pair:
    return unicodedata.normalize("NFD", pair[0]), pair[1]


def mojibake(pair: Pair, chance: random.Random, pairs: list[Pair]) -> Pair:
    return pair[0].encode().decode("cp1252", errors="replace"), pair[1]


def swapped(pair: Pair, chance: random.Random, pairs: list[Pair]) -> Pair:
    return pair[1], pair[0]


def other_number(text: str) -> str:
    return "".join(str((int(c) + 3) % 10) if c.isdecimal() else c for c in text)


def reworded(pair: Pair, chance: random.Random, pairs: list[Pair]) -> Pair:
    """A copy of another pair without its case and punctuation."""
    source, other = chance.choice(pairs)
    return source.lower().rstrip(".!?") + " !", other.lower().rstrip(".!?") + " !"


def untranslated(pair: Pair, chance: random.Random, pairs: list[Pair]) -> Pair:
    """The target is in the source's language, but of another pair, so that it is no copy."""
    return pair[0], chance.choice(pairs)[0]


def has(characters: str) -> Callable[[Pair], bool]:
    return lambda pair: any(c in pair[0] for c in characters)


# Rule, what is done to a pair, and which pairs it can be done to.
FAULTS: dict[str, tuple[str, Change, Callable[[Pair], bool]]] = {
    "bytes that are not UTF-8": ("invalid_utf8", target(lambda t: in_the_middle(t, " \udce4\udcff")), bool),
    "control character": ("control_characters", target(lambda t: in_the_middle(t, "\x07")), bool),
    "carriage return inside": ("inner_carriage_returns", target(lambda t: in_the_middle(t, "\r")), bool),
    "U+2028": ("line_separators", target(lambda t: in_the_middle(t, "\u2028")), bool),
    "U+0085": ("line_separators", target(lambda t: in_the_middle(t, "\x85")), bool),
    "byte order mark inside": ("byte_order_marks", target(lambda t: in_the_middle(t, "\ufeff")), bool),
    "U+FFFD": ("replacement_characters", target(lambda t: in_the_middle(t, "\ufffd")), bool),
    "not NFC": ("not_nfc", decomposed, has("äöü")),
    "mojibake": ("mojibake", mojibake, has("äöüß")),
    "HTML tags": ("html_tags", target(lambda t: f"<p><b>{t}</b></p>"), bool),
    "HTML entities": ("html_entities", target(lambda t: html.escape(in_the_middle(t, " & ")) + "&nbsp;"), bool),
    "placeholder on one side": ("unmatched_placeholders", target(lambda t: in_the_middle(t, " {name} %s")), bool),
    "URL on one side": ("unmatched_urls", target(lambda t: in_the_middle(t, " https://example.org/page?a=1")), bool),
    "bracket not closed": ("unmatched_brackets", target(lambda t: in_the_middle(t, " (")), bool),
    "empty target": ("empty_sides", target(lambda t: ""), bool),
    "target equal to the source": ("copied_sides", lambda pair, chance, pairs: (pair[0], pair[0]), bool),
    "very long target": ("very_long", target(lambda t: " ".join([t] * (3000 // max(1, len(t)) + 2))), bool),
    "target of a tenth of the length": ("length_ratio", target(lambda t: t[: len(t) // 10]), lambda p: len(p[0]) > 80),
    "other numbers": ("unmatched_numbers", target(other_number), lambda p: sum(c.isdecimal() for c in p[1]) > 1),
    "exact duplicate": ("duplicate_pairs", lambda pair, chance, pairs: chance.choice(pairs), bool),
    "near-duplicate": ("near_duplicates", reworded, bool),
    "swapped sides": ("swapped_sides", swapped, lambda p: min(len(t.split()) for t in p) >= 5),
    "target in the source's language": ("wrong_language", untranslated, bool),
    "third language": ("wrong_language", lambda pair, chance, pairs: (pair[0], chance.choice(IBAN)), bool),
    "another script": ("wrong_script", target(lambda t: "".join(chr(0x430 + ord(c) % 32) if c.isalpha() else c for c in t)), bool),
}  # fmt: skip
IBAN: list[str] = []  # sentences of a language that neither side has


def main() -> None:
    arguments = read_arguments()
    IBAN.extend(line.split("\t")[1] for line in islice((arguments.data / "iban" / "train.tsv").open(), 1, None))
    corpus = Europarl(arguments.data / "europarl-de-en")
    with tempfile.TemporaryDirectory() as folder:
        planted = plant(corpus.pairs(arguments.pairs), corpus, Path(folder))
    clean = {name: look(name, arguments.data) for name in ("multi30k", "tatoeba-de-en", "europarl-de-en")}
    content = {"pairs": arguments.pairs, **planted, "clean_corpora": clean}
    report(content)
    if arguments.pairs == 200_000:
        print(write_result("doctor-planted", "python benchmarks/doctor_planted.py", PACKAGES, **content))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--pairs", type=int, default=200_000)
    return parser.parse_args()


class Europarl:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.valid = tuple(str(folder / f"valid.{side}") for side in ("de", "en"))

    def pairs(self, count: int) -> list[Pair]:
        return list(zip(*(self._side(side, count) for side in ("de", "en")), strict=True))

    def _side(self, side: str, count: int) -> list[str]:
        with lzma.open(self.folder / f"train-0.{side}.xz", "rt", encoding="utf-8", newline="\n") as file:
            return [line.rstrip("\n") for line in islice(file, count)]


# --- planting --------------------------------------------------------------------------------------------------


def plant(pairs: list[Pair], corpus: Europarl, folder: Path) -> dict[str, Any]:
    before = examine(write(pairs, folder / "before"), corpus.valid)
    where, damaged = damage(pairs)
    damaged, shifts = shift(damaged)
    after = examine(write(damaged, folder / "after"), corpus.valid)
    shifted = {line for one in shifts for line in range(one["first"], one["last"] + 1)}
    planted = shifted.union(*where.values())
    return {
        "faults": [score(kind, lines, before, after, planted) for kind, lines in where.items()],
        "drift": score_drift(shifts, after),
        "clean": before["counts"],
        "seconds": {"before": before["seconds"], "after": after["seconds"]},
    }


def damage(pairs: list[Pair]) -> tuple[dict[str, set[int]], list[Pair]]:
    """Lines of each kind of fault, counted from 1 and each used once, and the damaged pairs.

    The first tenth stays as it is and is what copies are made of. The last quarter stays for shifts.
    """
    chance = random.Random(SEED)
    tenth = len(pairs) // 10
    damaged, free = list(pairs), set(range(tenth, 3 * len(pairs) // 4))
    where: dict[str, set[int]] = {}
    for kind, (_, change, suits) in FAULTS.items():
        rows = [row for row in sorted(free) if suits(pairs[row])]
        chosen = chance.sample(rows, min(len(rows), int(SHARE * len(pairs))))
        free -= set(chosen)
        for row in chosen:
            damaged[row] = change(pairs[row], chance, pairs[:tenth])
        where[kind] = {row + 1 for row in chosen}
    return where, damaged


def shift(pairs: list[Pair]) -> tuple[list[Pair], list[dict[str, int]]]:
    """Five stretches of the last quarter in which targets are late or early by some lines."""
    quarter, chance = len(pairs) // 4, random.Random(SEED)
    targets = [target for _, target in pairs]
    shifts = []
    for number, (lines, offset) in enumerate([(100, 1), (250, -1), (500, 3), (1_000, -5), (2_000, 40)]):
        if lines > quarter // 6:
            break
        first = len(pairs) - quarter + number * quarter // 5 + chance.randrange(quarter // 20)
        part = targets[first : first + lines]
        targets[first : first + lines] = part[-offset:] + part[:-offset]
        shifts.append({"first": first + 1, "last": first + lines, "offset": offset})
    return [(source, target) for (source, _), target in zip(pairs, targets, strict=True)], shifts


def write(pairs: list[Pair], stem: Path) -> tuple[str, str]:
    paths = (f"{stem}.de", f"{stem}.en")
    for side, path in enumerate(paths):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        Path(path).write_bytes(text.encode(errors="surrogateescape"))
    return paths


def examine(train: tuple[str, str], valid: tuple[str, ...]) -> dict[str, Any]:
    """What `transduce doctor` says, and the lines of each rule; removed.tsv has only the first rule of each line."""
    request = requested_settings(TrainingRequest(train=train, valid=valid, languages=("de", "en")))
    begun = time.perf_counter()
    with open_corpora(request, ()) as corpora:
        examined = diagnosis(corpora, request)
    seconds = time.perf_counter() - begun
    findings = [one for one in examined.report.findings if one.corpus == "train" or one.rule in LEAKS]
    counts = {one.rule: one.count for one in findings}
    removed = {rule: {int(row) + 1 for row in rows} for rule, rows in examined.removed.items()}
    return {"counts": counts, "lines": removed | reported_lines(train), "seconds": round(seconds, 2)}


def reported_lines(train: tuple[str, str]) -> dict[str, set[int]]:
    """The lines of the rules that only report and remove nothing."""
    rules = [rule for rule in (*character_rules(), *MARKUP_RULES, *PAIR_RULES) if not rule.removes]
    found: dict[str, set[int]] = {rule.name: set() for rule in rules}
    corpus, sketches = Corpus((train,)), []
    parse, analysis = PortionParser("train", corpus), NearDuplicateAnalysis(Context(), Lookup("train", corpus))
    for portion in PortionReader("train", corpus):
        block = parse(portion).block
        for rule in rules:
            found[rule.name] |= {block.place.lines[row] for row in rule.rows(block, Context())}
        sketch = analysis.observe(block)
        sketches.append(replace(sketch, numbers=sketch.numbers + block.place.lines[0]))
    everything = joined(sketches)
    near = everything.numbers[find_near_duplicates(everything).rows]
    return found | {"near_duplicates": set(near.tolist())}


# --- scoring ---------------------------------------------------------------------------------------------------


def score(
    kind: str, lines: set[int], before: dict[str, Any], after: dict[str, Any], planted: set[int]
) -> dict[str, Any]:
    rule = FAULTS[kind][0]
    named = after["lines"].get(rule, set())
    false = named - planted - before["lines"].get(rule, set())
    recall = round(len(lines & named) / max(1, len(lines)), 4)
    return {"fault": kind, "rule": rule, "planted": len(lines), "recall": recall, "false_alarms": len(false)}


def score_drift(shifts: list[dict[str, int]], after: dict[str, Any]) -> dict[str, Any]:
    named = after["lines"].get("drift", set())
    planted = {line for one in shifts for line in range(one["first"], one["last"] + 1)}
    found = [
        one
        | {
            "recall": round(
                len(named & set(range(one["first"], one["last"] + 1))) / (one["last"] - one["first"] + 1), 3
            )
        }
        for one in shifts
    ]
    for one in found:
        begins = [line for line in sorted(named) if line - 1 not in named]
        one["nearest_beginning_named"] = min(begins, key=lambda line: abs(line - one["first"]), default=0)
    return {"stretches": found, "false_alarms": len(named - planted)}


# --- clean corpora ---------------------------------------------------------------------------------------------


def look(name: str, data: Path) -> dict[str, Any]:
    """What is said of a clean corpus, with the examples, for people to judge."""
    folder = data / name
    if name == "europarl-de-en":
        pairs = Europarl(folder).pairs(400_000)[200_000:]
        with tempfile.TemporaryDirectory() as temporary:
            return said(write(pairs, Path(temporary) / "train"), Europarl(folder).valid)
    return said(*(tuple(str(folder / f"{part}.{side}") for side in ("de", "en")) for part in ("train", "valid")))


def said(train: tuple[str, ...], valid: tuple[str, ...]) -> dict[str, Any]:
    begun = time.perf_counter()
    report = transduce.doctor(train=train, valid=valid, languages=("de", "en"), quiet=True)
    findings = [
        {
            "rule": one.rule, "severity": one.severity, "corpus": one.corpus, "count": one.count, "share": one.share,
            "examples": [[example.line, example.source[:120], example.target[:120], without_folders(example.detail)[:120]] for example in one.examples],
        }
        for one in report.findings
    ]  # fmt: skip
    return {"pairs": report.pairs, "seconds": round(time.perf_counter() - begun, 2), "findings": findings}


def without_folders(detail: str) -> str:
    """Where files lay on one machine is nobody's business."""
    return re.sub(r"\S*/(?=\S+:\d)", "", detail)


def report(content: dict[str, Any]) -> None:
    for line in lines_of(content):
        print(line)


def lines_of(content: dict[str, Any]) -> Iterator[str]:
    for row in content["faults"]:
        yield f"{row['fault']:34} {row['rule']:24} {row['planted']:5} recall {row['recall']:.3f} false {row['false_alarms']}"
    for one in content["drift"]["stretches"]:
        yield f"drift of {one['offset']} from {one['first']} to {one['last']}: recall {one['recall']}, begins at {one['nearest_beginning_named']}"
    yield f"drift: false alarms {content['drift']['false_alarms']}; seconds {content['seconds']}"
    for name, corpus in content["clean_corpora"].items():
        yield f"{name}: {corpus['pairs']:,} pairs, {corpus['seconds']} s"
        for one in corpus["findings"]:
            yield f"    {one['severity']:8} {one['corpus']:6} {one['rule']:24} {one['count']:7,}"


if __name__ == "__main__":
    main()
