"""The examination of corpora: every rule finds what it should at the right line, and nothing in clean data."""

import gzip
import json
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from folders import write_folder

import transduce
from transduce.cli import main
from transduce.config import DataConfig
from transduce.data import Corpus, scan
from transduce.diagnosis import Report, examination, reading
from transduce.diagnosis.analysis import Side, cut_around
from transduce.diagnosis.characters import character_rules, not_normal
from transduce.diagnosis.drift import RULE as RULE_OF_DRIFT
from transduce.diagnosis.drift import UNMATCHED
from transduce.diagnosis.duplicates import HashStore
from transduce.diagnosis.examination import Options, examine, open_corpora
from transduce.diagnosis.findings import Finding
from transduce.diagnosis.language import SWAPPED, WRONG
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.near_duplicates import RULE as NEAR_DUPLICATES
from transduce.diagnosis.ngrams import N, ngrams
from transduce.diagnosis.pairs import PAIR_RULES, unmatched_numbers
from transduce.diagnosis.quick import quick_findings
from transduce.diagnosis.reading import LINES_PER_PORTION
from transduce.diagnosis.removal import REMOVABLE, Removal
from transduce.diagnosis.script import RULE as WRONG_SCRIPT
from transduce.diagnosis.summary import summary
from transduce.diagnosis.thresholds import BUILT_IN
from transduce.diagnosis.workers import FEW_ITEMS, in_order
from transduce.errors import DataError, SettingError
from transduce.training.request import TrainingRequest, requested_settings

PLACES = ["Paris", "London", "Rom", "Wien", "Madrid", "Lissabon", "Dublin", "Athen", "Prag", "Bern"]
VERBS = {"besucht": "visits", "kennt": "knows", "verlässt": "leaves", "liebt": "loves", "malt": "paints"}
PEOPLE = {
    "Der Lehrer": "The teacher",
    "Die Ärztin": "The doctor",
    "Mein Bruder": "My brother",
    "Unsere Köchin": "Our cook",
}
CLEAN = [
    (f"{who} {verb} heute {place} und bleibt {days} Tage.", f"{PEOPLE[who]} {VERBS[verb]} {place} today and stays for {days} days.")
    for who in PEOPLE
    for verb in VERBS
    for place in PLACES
    for days in (11, 12, 13)
]  # fmt: skip
TRAIN, VALID = CLEAN[:500], CLEAN[500:]
LINE = 123  # where a fault is planted

Pair = tuple[str | bytes, str | bytes]


def encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def write(folder: Path, name: str, pairs: Sequence[Pair]) -> tuple[str, str]:
    paths = folder / f"{name}.de", folder / f"{name}.en"
    for side, path in enumerate(paths):
        path.write_bytes(b"".join(encoded(pair[side]) + b"\n" for pair in pairs))
    return str(paths[0]), str(paths[1])


def report(folder: Path, train: Sequence[Pair], valid: Sequence[Pair] = VALID, **options: object) -> Report:
    files = {"train": write(folder, "train", train)} | ({"valid": write(folder, "valid", valid)} if valid else {})
    options.setdefault("fast", True)  # these sentences are much alike
    settings = {"data.task": "translation", **options.pop("settings", {})}  # type: ignore[dict-item]
    return transduce.doctor(**files, quiet=True, processes=1, settings=settings, **options)  # type: ignore[arg-type]


def found(report: Report, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def planted(pair: Pair) -> list[Pair]:
    return [*TRAIN[: LINE - 1], pair, *TRAIN[LINE:]]


def test_clean_data_have_no_findings(tmp_path: Path) -> None:
    result = report(tmp_path, TRAIN, languages=("de", "en"))
    assert [finding for finding in result.findings if finding.severity != "note"] == []
    assert [(one.role, one.pairs) for one in result.corpora] == [("valid", 100), ("train", 500)]
    assert sum(result.statistics.source_lengths.counts) == 500
    assert result.settings["data.task"] == "translation"
    assert any("500 pairs" in reason for reason in result.reasons)


FAULTS: list[tuple[str, str | bytes, str | bytes]] = [
    ("invalid_utf8", b"Der Mann geht nach M\xfcnchen und bleibt dort.", "The man goes to Munich and stays there."),
    ("control_characters", "Der Mann geht\x07 nach Hause und bleibt dort.", "The man goes home and stays there."),
    ("control_characters", "Der Mann geht nach Hause und bleibt dort.", "The man goes home\x80 and stays there."),
    ("inner_carriage_returns", "Der Mann geht\rnach Hause und bleibt dort.", "The man goes home and stays there."),
    ("carriage_returns", "Der Mann geht nach Hause und bleibt dort.\r", "The man goes home and stays there."),
    ("line_separators", "Der Mann geht\u2028nach Hause und bleibt dort.", "The man goes home and stays there."),
    ("line_separators", "Der Mann geht nach Hause und bleibt dort.", "The man goes home\x85 and stays there."),
    ("byte_order_marks", "\ufeffDer Mann geht nach Hause und bleibt dort.", "The man goes home and stays there."),
    ("replacement_characters", "Der Mann geht nach M\ufffdnchen und bleibt.", "The man goes to Munich and stays there."),
    ("not_nfc", "Der Mann geht nach Mu\u0308nchen und bleibt dort.", "The man goes to Munich and stays there."),
    ("mojibake", "Der Mann geht nach MÃ¼nchen und bleibt dort.", "The man goes to Munich and stays there."),
    ("mojibake", "Der Mann geht nach Hause und bleibt dort.", "The man doesnâ€™t go home and stays there."),
    ("html_tags", "Der Mann geht <b>nach</b> Hause und bleibt dort.", "The man <b>goes</b> home and stays there."),
    ("html_entities", "Der Mann &amp; die Frau gehen heute nach Hause.", "The man and the woman go home today."),
    ("unmatched_tags", "Der Mann <x/> geht nach Hause und bleibt dort.", "The man goes home and stays there."),
    ("unmatched_placeholders", "Der Mann geht nach {0} und bleibt dort.", "The man goes to {1} and stays there."),
    ("unmatched_placeholders", "Es gibt %d Dateien und noch viel mehr.", "There are files and much more of that."),
    ("unmatched_urls", "Mehr dazu auf https://example.org/seite hier.", "You can find out more about this here."),
    ("unmatched_brackets", "Der Mann (der alte) geht heute nach Hause.", "The old man goes home and stays there."),
    ("empty_sides", "", "The man goes home and stays there."),
    ("empty_sides", "Der Mann geht nach Hause.", "\u3000 "),
    ("copied_sides", "The man goes home and stays there.", "The man goes home and stays there."),
    ("very_long", "Der Mann geht nach Hause. " * 200, "The man goes home. " * 220),
    ("length_ratio", "Ja.", "The man goes home and stays there until the woman comes home as well, and then both go out."),
    ("unmatched_numbers", "Der Mann bleibt bis 1987 in der Stadt.", "The man stays in the city until 1978."),
    ("duplicate_pairs", *TRAIN[5]),
    ("duplicate_sources", TRAIN[5][0], "The teacher visits Paris again today and stays for some days."),
    ("duplicate_targets", "Der Lehrer besucht heute wieder Paris und bleibt noch.", TRAIN[5][1]),
    ("valid_pairs_in_training", *VALID[7]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "source", "target"), FAULTS, ids=[f"{n}-{one[0]}" for n, one in enumerate(FAULTS)])
def test_a_planted_fault_is_found_at_its_line(rule: str, source: str, target: str, tmp_path: Path) -> None:
    if rule == "mojibake":
        pytest.importorskip("ftfy")
    (finding,) = found(report(tmp_path, planted((source, target))), rule)
    assert finding.count == 1
    assert finding.examples[0].line == LINE
    assert finding.examples[0].file.endswith(("train.de", "train.en"))
    assert finding.explanation.endswith(".")
    assert finding.advice.endswith(".")


@pytest.mark.parametrize(
    ("rule", "target"),
    [
        ("control_characters", "The man goes home\x80 and stays there."),
        ("mojibake", "The man doesnâ€™t go home and stays there."),
        ("html_entities", "The man &amp; the woman go home and stay there."),
        ("empty_sides", ""),
        ("very_long", "The man goes home. " * 220),
        ("wrong_script", "Мужчина идёт домой и остаётся там."),
    ],
)
def test_a_fault_of_the_target_is_located_in_its_file(rule: str, target: str, tmp_path: Path) -> None:
    if rule == "mojibake":
        pytest.importorskip("ftfy")
    pairs = planted(("Der Mann geht nach Hause und bleibt dort.", target))
    (finding,) = found(report(tmp_path, pairs, languages=("de", "en")), rule)
    assert (Path(finding.examples[0].file).name, finding.examples[0].line) == ("train.en", LINE)


def test_a_pair_with_an_empty_side_breaks_one_rule(tmp_path: Path) -> None:
    odd = "<x/> {0} 1987 (see https://example.org)"
    pairs = [*TRAIN[:400], ("", odd), ("", odd), ("", ""), ("", ""), (odd, " ")]
    result = report(tmp_path, pairs, [*VALID, ("", "")])
    assert [(one.rule, one.count) for one in result.findings if one.corpus == "train"] == [("empty_sides", 5)]
    assert not found(result, "valid_pairs_in_training")


def test_a_near_copy_of_a_held_out_pair_is_found(tmp_path: Path) -> None:
    long = ("Am nächsten Morgen gingen alle gemeinsam an den Strand hinunter und blieben dort.", "The next morning everybody went down to the beach together and stayed there.")  # fmt: skip
    near = (long[0].replace("dort", "da"), long[1].replace("there", "put"))
    result = report(tmp_path, planted(near), [*VALID, long])
    (finding,) = found(result, "near_valid_pairs_in_training")
    assert (finding.count, finding.examples[0].line) == (1, LINE)
    assert f"validation line {len(VALID) + 1}" in finding.examples[0].detail
    assert found(result, "valid_pairs_in_training") == []


def test_leaked_validation_data_are_serious(tmp_path: Path) -> None:
    (finding,) = found(report(tmp_path, [*TRAIN, *VALID]), "valid_pairs_in_training")
    assert (finding.severity, finding.count, finding.share) == ("serious", len(VALID), 1.0)
    assert (finding.corpus, finding.advice.endswith("--write DIR leaves these training pairs out.")) == ("valid", True)


@pytest.mark.parametrize(
    ("source", "target", "wrong"),
    [
        ("Es kostet 1.500 Euro.", "It costs 1,500 euros.", False),
        ("am 3. Mai 1999", "on May 3, 1999", False),
        ("elf Monate", "11 months", False),
        ("98/99", "1998/1999", False),
        ("١٩٩٩", "1999", False),
        ("vom 12.01.2022 bis zum 17.01.2022", "from 01/12/2022 to 01/17/2022", False),
        ("von 14.30 bis 17 Uhr", "from 2:30 to 5 p.m.", False),
        ("im Jahr 1987", "in 1978", True),
        ("Seiten 12, 34 und 56", "some pages", True),
    ],
)
def test_numbers_that_do_not_match(source: str, target: str, wrong: bool) -> None:
    assert bool(unmatched_numbers(source, target)) == wrong


def test_the_quick_check_of_a_block_finds_every_character_that_is_not_normal() -> None:
    codes = [*range(0x20, 0xD800, 7), *range(0x300, 0x380), *range(0x2000, 0x3000), *range(0xF900, 0xFB50)]
    texts = [f"a{chr(code)}" for code in codes]
    wrong = [row for row, text in enumerate(texts) if not unicodedata.is_normalized("NFC", text)]
    assert [row for row, text in enumerate(texts) if len(not_normal(Side(f"{text}\n".encode())))] == wrong


def test_characters_that_the_vocabulary_will_not_know(tmp_path: Path) -> None:
    valid = [*VALID[:50], *((f"{source} ☃", target) for source, target in VALID[50:])]
    (finding,) = found(report(tmp_path, TRAIN, valid), "unknown_characters")
    assert (finding.severity, finding.count, finding.examples[0].detail) == ("notable", 50, "☃")
    assert (finding.corpus, finding.share) == ("valid", 0.5)
    (finding,) = found(report(tmp_path, TRAIN, valid, settings={"data.unknown": "unk"}), "unknown_characters")
    assert finding.severity == "serious"


@pytest.mark.parametrize("length", [80, 150, 1_000])
def test_the_example_of_an_unknown_character_shows_it(tmp_path: Path, length: int) -> None:
    """Long texts are cut around the character."""
    long = ("the cat sat on a mat " * 100)[:length]
    valid = [*VALID[:50], *((f"{long} ☃ {source} {long}", target) for source, target in VALID[50:])]
    result = report(tmp_path, TRAIN, valid)
    (finding,) = found(result, "unknown_characters")
    assert all("☃" in one.source for one in finding.examples)
    (line,) = [line for line in summary(result).splitlines() if line.endswith("[☃]")][:1]
    assert line.count("☃") == 2
    assert len(line.partition(" ||| ")[0].partition("valid")[2]) < 200


@pytest.mark.parametrize("width", [10, 100])
def test_texts_are_cut_around_a_character(width: int) -> None:
    for at in (0, 1, width - 2, width - 1, width, 500, 998, 999):
        text = "".join("x" if place == at else "-" for place in range(1_000))
        cut = cut_around(text, "x", width)
        assert "x" in cut
        assert len(cut) <= width
    assert cut_around("-" * 1_000, "", 10) == "-" * 9 + "…"
    assert cut_around("short", "x", 10) == "short"


def test_files_of_different_lengths_are_reported_and_not_refused(tmp_path: Path) -> None:
    source, target = write(tmp_path, "train", TRAIN)
    with open(target, "ab") as file:
        file.write(b"one more\nand another\n")
    result = transduce.doctor(train=(source, target), quiet=True)
    (finding,) = found(result, "different_lengths")
    assert (finding.severity, finding.count, finding.examples[0].line) == ("serious", 2, len(TRAIN) + 1)
    assert finding.examples[0].file == target


# --- formats and reading -----------------------------------------------------------------------------------------------


def test_every_format_gives_the_same_findings(tmp_path: Path) -> None:
    pairs = planted(("Der Mann geht nach {0} und bleibt dort.", "The man goes to {1} and stays there."))
    text = write(tmp_path, "train", pairs)
    tsv, jsonl, packed = tmp_path / "a.tsv", tmp_path / "a.jsonl", tmp_path / "b.tsv.gz"
    rows = "".join(f"{source}\t{target}\n" for source, target in pairs)
    tsv.write_text("de\ten\n" + rows, encoding="utf-8")
    packed.write_bytes(gzip.compress(rows.encode()))
    jsonl.write_text("".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in pairs), encoding="utf-8")
    wanted = [(LINE, 500), (LINE + 1, 500), (LINE, 500), (LINE, 500)]
    for (line, count), files in zip(wanted, (text, tsv, jsonl, packed), strict=True):
        result = transduce.doctor(
            train=files, languages=("de", "en"), settings={"data.task": "translation"}, quiet=True
        )
        (finding,) = found(result, "unmatched_placeholders")
        assert (finding.examples[0].line, result.pairs) == (line, count)


def test_a_table_without_a_single_pair_is_refused_as_train_refuses_it(tmp_path: Path) -> None:
    table = tmp_path / "a.jsonl"
    table.write_text('{"de": "ein Hund", "en": "a dog"}\n' * 10, encoding="utf-8")
    with pytest.raises(DataError, match=r'a\.jsonl:1: keys "source" and "target" are missing'):
        transduce.doctor(train=table, quiet=True)


def test_malformed_lines_of_tables_are_reported_and_not_refused(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    rows = [f"{source}\t{target}" for source, target in TRAIN]
    rows[41] = "only one column"
    table.write_text("\n".join(rows), encoding="utf-8")
    result = transduce.doctor(train=table, quiet=True, write=tmp_path / "clean")
    (finding,) = found(result, "malformed_lines")
    assert (finding.severity, finding.count, finding.examples[0].line) == ("serious", 1, 42)
    assert "1 column where 2 are needed" in finding.examples[0].detail
    assert result.pairs == len(TRAIN) - 1
    kept = (tmp_path / "clean" / "a.tsv").read_text(encoding="utf-8").splitlines()
    assert kept == [row for row in rows if row != rows[41]]
    assert "42\tmalformed_lines\tonly one column" in (tmp_path / "clean" / "removed.tsv").read_text(encoding="utf-8")


def test_a_tab_inside_a_text_is_a_malformed_line(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    rows = [f"{source}\t{target}" for source, target in TRAIN]
    rows[41] = "Ich\thabe\tTabs.\tI have tabs."
    table.write_text("\n".join(rows), encoding="utf-8")
    (finding,) = found(transduce.doctor(train=table, fast=True, quiet=True), "malformed_lines")
    assert (finding.count, finding.examples[0].line) == (1, 42)
    assert "4 columns where the first line has 2; a tab inside a text?" in finding.examples[0].detail


def test_a_table_that_is_not_utf8_is_reported_and_not_refused(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    table.write_bytes(b"".join(b"%s\t%s\n" % (encoded(s), encoded(t)) for s, t in planted((b"M\xfcnchen", "Munich"))))
    (finding,) = found(transduce.doctor(train=table, fast=True, quiet=True), "invalid_utf8")
    assert (finding.count, finding.examples[0].line) == (1, LINE)


def test_a_line_break_inside_a_json_text_is_found(tmp_path: Path) -> None:
    table = tmp_path / "a.jsonl"
    table.write_text(
        "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in planted(("Ja,\nnein.", "Yes, no.")))
    )
    (finding,) = found(transduce.doctor(train=table, quiet=True), "line_separators")
    assert finding.examples[0].line == LINE


def test_words_and_symbols_are_not_judged_as_sentences(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    table.write_text("".join(f"word{n}\tw o r d {n % 10}\n" for n in range(200)) + "same\tsame\n" * 50)
    result = transduce.doctor(train=table, quiet=True)
    assert result.settings["data.task"] == "symbols"
    assert not {one.rule for one in result.findings} & {"copied_sides", "unmatched_numbers", "length_ratio"}


def test_pronunciations_are_described_as_such(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    words = "".join(f"word{n}\tw o r d {n % 7} {n % 11}\n" for n in range(200))
    table.write_text(words + "word1\tw o r d e\nwird\tw o r d e\n", encoding="utf-8")
    result = transduce.doctor(train=table, quiet=True)
    assert found(result, NEAR_DUPLICATES) == []
    (sources,), (targets,) = (found(result, f"duplicate_{side}") for side in ("sources", "targets"))
    assert (sources.severity, "pronunciations" in sources.explanation) == ("note", True)
    assert (targets.severity, "sound" in targets.explanation) == ("note", True)


def test_the_sides_of_a_table_are_shown_apart(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    pairs = [*TRAIN, (TRAIN[5][0].lower(), TRAIN[5][1].upper())]
    table.write_text("de\ten\n" + "".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    result = transduce.doctor(train=table, settings={"data.task": "translation"}, quiet=True)
    (finding,) = found(result, NEAR_DUPLICATES)
    assert all((one.source, one.target) == pairs[one.line - 2] for one in finding.examples)


def test_the_findings_do_not_depend_on_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINES_PER_PORTION", 50)
    pairs = planted(("Der Mann geht\x07.", "The man goes."))
    requested = requested_settings(TrainingRequest(train=write(tmp_path, "train", pairs)))
    with open_corpora(requested, ()) as corpora:
        one = examine(corpora, requested, Options(workers=1)).report
        two = examine(corpora, requested, Options(workers=2, start="spawn")).report
    assert found(one, "control_characters")[0].examples[0].line == LINE
    assert one.findings == two.findings
    assert one.statistics == two.statistics


def test_processes_are_forked_where_that_is_safe(tmp_path: Path) -> None:
    """In a process of its own: this one has imported torch."""
    count = LINES_PER_PORTION * (FEW_ITEMS + 1) // len(TRAIN) + 1
    pairs = [(f"{source} Nummer {n}.", f"{target} Number {n}.") for n in range(count) for source, target in TRAIN]
    pairs[36_000] = ("Der Mann geht\x07.", "The man goes.")
    command = [
        sys.executable,
        "-m",
        "transduce",
        "doctor",
        "--fast",
        "--processes",
        "2",
        "--json",
        "--steps",
        "1",
        "--train",
    ]
    done = subprocess.run([*command, *write(tmp_path, "train", pairs)], capture_output=True, check=True, timeout=120)
    found = {one["rule"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["control_characters"]["examples"][0]["line"] == 36_001


def double(number: int) -> int:
    return 2 * number


def test_results_come_in_order() -> None:
    assert list(in_order(double, range(100), 2)) == list(range(0, 200, 2))


# --- parts ---------------------------------------------------------------------------------------------------------------


def test_repeated_hashes_are_the_same_in_memory_and_on_disk() -> None:
    hashes = (
        np.random.default_rng(0).integers(0, 2**63, 5_000, dtype=np.uint64) % np.uint64(3_000) * np.uint64(2**52 + 1)
    )
    seen: set[int] = set()
    again = [n for n, one in enumerate(hashes.tolist()) if one in seen or seen.add(one)]  # type: ignore[func-returns-value]
    for in_memory, at_once in ((1 << 20, 1 << 20), (100, 64)):
        store = HashStore(in_memory, at_once)
        for begin in range(0, len(hashes), 700):
            store.append(hashes[begin : begin + 700])
        assert store.repeated().tolist() == again
        store.close()


def test_ngrams_are_the_same_wherever_they_are() -> None:
    words = "one two three four five six seven eight"
    alone = ngrams(Side(f"{words}\n".encode()))
    block = ngrams(Side(f"Something else, and more of it.\n{words.title()}!\n\nshort\n".encode()))
    assert len(alone.hashes) == len(words.split()) - N + 1
    assert block.hashes[block.rows == 1].tolist() == alone.hashes.tolist()
    assert not set(block.hashes[block.rows == 0].tolist()) & set(alone.hashes.tolist())
    assert len(ngrams(Side("日本語の文章\n".encode())).hashes) == 6 - N + 1


def test_lengths_are_in_characters() -> None:
    texts = ["äöü abc", "", "日本語", "x", "😀"]
    side = Side("".join(f"{text}\n" for text in texts).encode())
    assert side.lengths.tolist() == [len(text) for text in texts]
    assert side.sizes.tolist() == [len(text.encode()) for text in texts]


# --- thresholds, files, command line ---------------------------------------------------------------------------------------


def test_thresholds_come_from_validation_data_that_are_large_enough(tmp_path: Path) -> None:
    long = ("Der Mann geht heute nach Hause und bleibt. " * 4, "The man goes home today and stays there. " * 4)
    small = report(tmp_path, planted(long))
    assert {one.origin for one in small.thresholds.values()} == {"built-in"}
    assert found(small, "very_long") == []
    large = report(tmp_path, planted(long), [(f"{s} {n}", f"{t} {n}") for n in range(50) for s, t in VALID])
    assert large.thresholds["longest_source"].origin == "validation data"
    assert large.thresholds["longest_source"].value < 100
    assert found(large, "very_long")[0].examples[0].line == LINE
    given = report(tmp_path, TRAIN, thresholds={"longest_source": 20})
    assert found(given, "very_long")[0].count == len(TRAIN)
    assert given.thresholds["longest_source"].origin == "given"


def test_clean_files_and_a_table_of_the_rest(tmp_path: Path) -> None:
    pairs = planted((b"M\xfcnchen ist eine\tStadt im S\xfcden.", "Munich is a city in the south."))
    pairs[200] = ("", "The man goes home.")
    result = report(tmp_path, pairs, write=tmp_path / "clean")
    assert {path.name for path in (tmp_path / "clean").iterdir()} == {"train.de", "train.en", "removed.tsv"}
    kept = [pair for n, pair in enumerate(pairs) if n not in (LINE - 1, 200)]
    assert (tmp_path / "clean/train.de").read_bytes() == b"".join(encoded(pair[0]) + b"\n" for pair in kept)
    assert (tmp_path / "clean/train.en").read_bytes() == b"".join(encoded(pair[1]) + b"\n" for pair in kept)
    header, first, second = (tmp_path / "clean/removed.tsv").read_bytes().splitlines()
    assert header.split(b"\t") == [b"file", b"line", b"rule", b"source", b"target"]
    assert first.split(b"\t")[1:] == [b"123", b"invalid_utf8", b"M\xfcnchen ist eine\\tStadt im S\xfcden.", encoded(pairs[LINE - 1][1])]  # fmt: skip
    assert second.split(b"\t")[1:3] == [b"201", b"empty_sides"]
    assert result.count("serious") == 1
    again = transduce.doctor(train=(tmp_path / "clean/train.de", tmp_path / "clean/train.en"), fast=True, quiet=True)
    assert again.count("serious") == again.count("notable") == 0
    with pytest.raises(SettingError, match="not an empty folder"):
        report(tmp_path, pairs, write=tmp_path / "clean")


def left_out(folder: Path) -> list[tuple[int, str]]:
    """Line and rule of each pair of removed.tsv."""
    rows = [line.split("\t") for line in (folder / "removed.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    return [(int(row[1]), row[2]) for row in rows]


def test_the_rules_that_leave_pairs_out_can_be_chosen(tmp_path: Path) -> None:
    pairs = planted(("Der Mann bleibt bis 1987 in der Stadt.", "The man stays in the city until 1978."))
    pairs[200] = ("Der Mann geht <b>nach</b> Hause.", "The man goes <b>home</b>.")
    pairs[300] = pairs[10]
    options: dict[str, dict[str, list[str]]] = {
        "all": {},
        "keep": {"keep": ["unmatched_numbers"]},
        "only": {"only": ["html_tags", "unmatched_numbers"]},
    }
    results = {name: report(tmp_path, pairs, write=tmp_path / name, **chosen) for name, chosen in options.items()}
    assert left_out(tmp_path / "all") == [(LINE, "unmatched_numbers"), (301, "duplicate_pairs")]
    assert left_out(tmp_path / "keep") == [(301, "duplicate_pairs")]
    assert left_out(tmp_path / "only") == [(LINE, "unmatched_numbers"), (201, "html_tags")]
    advice = {name: found(result, "unmatched_numbers")[0].advice for name, result in results.items()}
    assert {name for name, text in advice.items() if text.endswith("--write DIR leaves these training pairs out.")} == {
        "all",
        "only",
    }


def test_lines_that_are_no_pairs_can_be_kept(tmp_path: Path) -> None:
    source, target = write(tmp_path, "train", TRAIN[:50])
    table = tmp_path / "more.tsv"
    table.write_text("ein Hund\ta dog\nno pair\neine Katze\ta cat\n", encoding="utf-8")
    with open(target, "ab") as file:
        file.write(b"one line more\n")
    keep = ["malformed_lines", "different_lengths"]
    transduce.doctor(train=[(source, target), table], fast=True, quiet=True, write=tmp_path / "clean", keep=keep)
    for path in map(Path, (source, target, table)):
        assert (tmp_path / "clean" / path.name).read_bytes() == path.read_bytes()


def test_findings_in_held_out_data_do_not_promise_to_be_removed(tmp_path: Path) -> None:
    result = report(tmp_path, TRAIN, [*VALID, ("", "The man goes home.")])
    (finding,) = found(result, "empty_sides")
    assert finding.corpus == "valid"
    assert finding.advice.endswith("--write never changes validation or test data.")


def test_several_corpora_are_written_under_names_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = write(tmp_path / "one", "train", TRAIN[:250]), write(tmp_path / "two", "train", TRAIN[250:])
    packed = Path(f"{second[0]}.gz")
    packed.write_bytes(gzip.compress(Path(second[0]).read_bytes()))
    with open(second[1], "ab") as file:
        file.write(b"one line more\n")
    transduce.doctor(train=[first, (packed, second[1])], fast=True, quiet=True, write=tmp_path / "clean")
    clean = {path.name: path.read_bytes() for path in (tmp_path / "clean").iterdir()}
    assert set(clean) == {"train.de", "train.en", "train-2.de", "train-2.en", "removed.tsv"}
    assert clean["train-2.de"] == Path(second[0]).read_bytes()
    assert clean["train-2.en"] == Path(second[1]).read_bytes().removesuffix(b"one line more\n")
    assert clean["removed.tsv"].splitlines()[1:] == [
        b"%s\t251\tdifferent_lengths\t\tone line more" % second[1].encode()
    ]


def test_pairs_are_ranked_by_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write_folder(tmp_path / "run"))
    files = write(tmp_path, "train", TRAIN[:20])
    _, out, _ = run(capsys, "--fast", "--train", *files, "--model", model, "--reverse", model, "--json")
    ranking = json.loads(out)["ranking"]
    assert {one["line"] for one in ranking} == set(range(1, 21))
    assert ranking == sorted(ranking, key=lambda one: -one["score"])
    code, _, err = run(capsys, "--train", *files, "--model", str(tmp_path / "missing"))
    assert (code, err.count("\n")) == (2, 1)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["doctor", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_prints_a_ranked_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, "train", planted((b"M\xfcnchen", "Munich")))
    code, out, _ = run(capsys, "--train", *files, "--languages", "de", "en")
    assert code == 3
    assert "1 serious, " in out
    assert f"{files[0]}:{LINE}: M\ufffdnchen ||| Munich [byte 0xfc at column 2]" in out
    assert out.index("Serious") < out.index("What `transduce train` would do without a budget in minutes\n")
    code, out, _ = run(capsys, "--fast", "--minutes", "5", "--train", *write(tmp_path, "good", TRAIN))
    assert code == 0
    assert "What `transduce train` would do in 5 minutes\n" in out
    assert out.splitlines()[1].startswith("0 serious, 0 worth a look")


def test_the_command_says_what_it_could_not_look_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "find_spec", lambda package: None)
    files = write(tmp_path, "train", TRAIN)
    mojibake = "mojibake (needs the package ftfy)"
    languages = "swapped files and texts in a third language (needs the package lingua)"
    remedy = "Install what is missing: pip install 'transduce[doctor]'."
    sought = {
        "--set data.task=translation": f"{mojibake}, and {languages}",
        "--set data.task=translation --fast": mojibake,
        "--set data.task=symbols": mojibake,  # has no languages
    }
    for options, missing in sought.items():
        _, out, _ = run(capsys, "--train", *files, *options.split())
        assert f"Not looked for: {missing}. {remedy}" in " ".join(out.split())


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--train", *write(tmp_path, "train", planted((b"M\xfcnchen", "Munich"))), "--json")
    result = json.loads(out)
    assert (code, result["findings"][0]["rule"]) == (3, "invalid_utf8")
    assert result["findings"][0]["examples"][0]["line"] == LINE
    assert set(result) >= {"corpora", "pairs", "seconds", "statistics", "thresholds", "left_out", "settings"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threshold", "largest_ration=3"], "--threshold largest_ration: no such threshold; did you mean largest_ratio?"),
        (["--threshold", "largest_ratio=x"], "--threshold largest_ratio=x: write NAME=NUMBER"),
        (["--threshold", "largest_ratio=-1"], "--threshold largest_ratio=-1: must be 0 or more"),
        (["--threshold", "shared_ngrams=7"], "--threshold shared_ngrams=7: must be 0 or more and at most 1"),
        (["--threshold", "smallest_ratio=9"], "--threshold: smallest_ratio 9 is above largest_ratio"),
        (["--reverse", "runs/other"], "--reverse needs --model"),
        (["--valid", "missing.de", "missing.en"], "missing.de: cannot be read: no such file"),
        (["--valid", "."], ".: is a folder: give a source and a target file, one .tsv or .jsonl file"),
        (["--write", "x", "--keep", "unmatched_number"], "--keep unmatched_number: no such rule, or none that can leave pairs out; did you mean unmatched_numbers?"),
        (["--write", "x", "--only", "unknown_characters"], "--only unknown_characters: no such rule, or none that can leave"),
        (["--write", "x", "--only", "near_duplicates", "--fast"], "--only near_duplicates: --fast does not look for these pairs: leave out --fast"),
        (["--keep", "drift"], "--keep and --only choose what --write leaves out: add --write DIR"),
        (["--write", "/proc/x"], "--write /proc/x: cannot be written: "),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--train", *write(tmp_path, "train", TRAIN), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"transduce: {message}")
    assert err.count("\n") == 1


def test_rules_to_keep_and_only_some_rules_are_not_given_together() -> None:
    with pytest.raises(SettingError, match="give --only with the rules that leave pairs out, or --keep"):
        Removal(keep=frozenset({"drift"}), only=frozenset({"mojibake"}))


def test_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    files = write(tmp_path, "train", planted((b"M\xfcnchen </script>", "Munich")))
    code, _, err = run(capsys, "--train", *files, "--html", str(page))
    assert (code, f"{page}: wrote the report" in err) == (3, True)
    assert "invalid_utf8" in page.read_text(encoding="utf-8")
    code, _, err = run(capsys, "--train", *files, "--html", str(tmp_path / "missing" / "report.html"))
    assert (code, "does not exist" in err) == (2, True)


def test_an_empty_corpus_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--train", *write(tmp_path, "train", []))
    assert (code, "empty: there is no pair" in err) == (2, True)


def test_spaces_of_any_width_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--train", *write(tmp_path, "train", planted((b"100\xc2\xa0km\xfc", "100 km"))))
    assert "100\u00a0km\ufffd" in out


def test_the_terminal_is_not_disturbed_by_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--train", *write(tmp_path, "train", planted(("Der \x1b[31mMann", "The man"))))
    assert "\x1b" not in out
    assert "\\x1b[31m" in out


# --- what `train` does by itself -------------------------------------------------------------------------------------------


def quick(folder: Path, pairs: Sequence[Pair]) -> list[str]:
    corpus = Corpus((write(folder, "train", pairs),))
    return quick_findings(scan(corpus, 1_000), DataConfig(task="translation"))


def test_training_checks_a_sample_and_refers_to_the_doctor(tmp_path: Path) -> None:
    assert quick(tmp_path, TRAIN) == []
    (line,) = quick(tmp_path, [*TRAIN[:400], *((source, source) for source, _ in TRAIN[400:])])
    assert line.startswith(
        "warning: 100 of 500 training pairs that were checked: pairs whose target is a copy of the source"
    )
    assert line.endswith("see `transduce doctor`, which lists them (copied_sides)")


def test_training_prints_what_the_check_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, "train", planted(("Der Mann geht\x07 nach Hause.", "The man goes home.")))
    tiny = (
        "model.d_model=16 model.d_ff=16 model.num_encoder_layers=1 model.num_decoder_layers=1 train.threads=1".split()
    )
    settings = [*tiny, "train.steps=1", f"data.cache={tmp_path / 'cache'}", "search.max_extra=3"]
    assert main(["train", str(tmp_path / "run"), "--train", *files, "--set", *settings]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "see `transduce doctor`" in line]
    assert "1 of 4" in line  # some of the 500 are held out
    assert "control characters" in line


def test_the_documentation_lists_every_rule_and_threshold() -> None:
    page = (Path(__file__).parents[1] / "docs/how-to/checking-data.md").read_text(encoding="utf-8")
    rules = {rule.name for rule in (*character_rules(), *MARKUP_RULES, *PAIR_RULES)}
    named = {RULE_OF_DRIFT, UNMATCHED, NEAR_DUPLICATES, SWAPPED, WRONG, WRONG_SCRIPT}
    assert {name for name in rules | named | REMOVABLE | set(BUILT_IN) if f"`{name}`" not in page} == set()
