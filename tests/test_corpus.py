"""Corpora: every format gives the same pairs, and every fault one line that names its place."""

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config.columns import Columns
from transduce.data import corpus as reading
from transduce.data import scanning
from transduce.data.corpus import Corpus
from transduce.data.inputs import find, groups_from_setting, groups_of, groups_to_setting, without_pipes
from transduce.data.scanning import scan
from transduce.errors import DataError, SettingError

PAIRS = [("a cat", "eine Katze"), ("dogs", "Hunde"), ("  ", "leer"), ("same", "same"), ("ünï\u2028\x85", "x\x0c☃")]
PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def aligned(folder: Path, pairs, packed: str = "", name: str = "train") -> tuple[str, str]:
    paths = tuple(str(folder / f"{name}.{side}{packed}") for side in ("src", "tgt"))
    for side, path in enumerate(paths):
        Path(path).write_bytes(PACKERS[packed]("".join(pair[side] + "\n" for pair in pairs).encode()))
    return paths[0], paths[1]


def one_file(folder: Path, name: str, lines, packed: str = "") -> tuple[str]:
    path = folder / (name + packed)
    path.write_bytes(PACKERS[packed]("".join(line + "\n" for line in lines).encode()))
    return (str(path),)


def pairs_of(*groups, **options) -> list[tuple[str, str]]:
    blocks = Corpus(groups, **options).blocks()
    return [pair for block in blocks for pair in zip(block.source, block.target, strict=True)]


def error_of(*groups, **options) -> str:
    with pytest.raises(DataError) as caught:
        scan(Corpus(groups, **options), 100)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("packed", PACKERS)
def test_all_formats_give_the_same_pairs(tmp_path, packed):
    tsv = one_file(tmp_path, "a.tsv", ["\t".join((*pair, "extra")) for pair in PAIRS], packed)
    flat = one_file(tmp_path, "b.jsonl", [json.dumps({"source": s, "target": t}) for s, t in PAIRS], packed)
    nested = [json.dumps({"id": 1, "translation": {"en": s, "de": t}}) for s, t in PAIRS]
    groups = [aligned(tmp_path, PAIRS, packed), tsv, flat, one_file(tmp_path, "c.json", nested, packed)]
    for group in groups:
        assert pairs_of(group) == PAIRS
    assert pairs_of(*groups) == PAIRS * 4
    assert len({scan(Corpus((group,)), 100).content for group in groups}) == 1


def test_languages_choose_the_direction(tmp_path):
    nested = one_file(tmp_path, "c.jsonl", [json.dumps({"translation": {"en": "a", "de": "b", "fr": "c"}})])
    assert pairs_of(nested, languages=("fr", "en")) == [("c", "a")]


def test_only_newline_ends_a_line(tmp_path):
    text = "one\x0btwo\x0cthree\x1cfour\x85five\u2028six\0seven\rstill"
    assert pairs_of(aligned(tmp_path, [(text, "x")])) == [(text, "x")]


def test_a_last_line_without_newline_is_a_line(tmp_path):
    source, target = aligned(tmp_path, [("a", "b")])
    Path(source).write_text("a\nb")
    Path(target).write_text("c\nd\n")
    assert pairs_of((source, target)) == [("a", "c"), ("b", "d")]


def test_carriage_returns_and_byte_order_marks_are_stripped_and_counted(tmp_path):
    group = aligned(tmp_path, [("\ufeffa\r", "b\r"), ("\ufeffc", "d\r")])
    assert pairs_of(group) == [("a", "b"), ("\ufeffc", "d")]
    found = scan(Corpus((group,)), 100)
    assert (found.carriage_returns, found.byte_order_marks) == (3, 1)


def test_features_become_symbols_of_the_source(tmp_path):
    group = one_file(tmp_path, "a.tsv", ["gehen\tging\tV;PST", "Haus\tHaus\t", "gut\tbesser\tADJ;V"])
    assert pairs_of(group, columns=Columns(features="3"))[0] == ("gehen ;V;PST", "ging")
    assert pairs_of(group, columns=Columns(features="3"))[1] == ("Haus", "Haus")
    assert scan(Corpus((group,), columns=Columns(features="3")), 100).symbols == (";ADJ", ";PST", ";V")


@pytest.mark.parametrize(("content", "name"), [(b'{"source": "a", "target": "b"}\n', "jsonl"), (b"a\tb\n", "tsv")])
def test_standard_input_is_read_as_often_as_needed(tmp_path, monkeypatch, content, name):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    groups = without_pipes((("-",),), tmp_path)
    assert groups[0][0].endswith(f"copy-of-standard-input.{name}")
    assert pairs_of(*groups) == pairs_of(*groups) == [("a", "b")]


def test_standard_input_comes_only_once(tmp_path):
    for groups in ((("-",), ("-",)), (("-", "-"),)):
        with pytest.raises(DataError, match="only once"):
            without_pipes(groups, tmp_path)


def test_closed_standard_input_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        without_pipes((("-",),), tmp_path)


def test_files_that_can_be_read_twice_stay_as_they_are(tmp_path):
    groups = (aligned(tmp_path, PAIRS), ("no-such.tsv",))
    assert without_pipes(groups, tmp_path) == groups


def test_pipes_are_copied_once(tmp_path):
    """As process substitution gives them: two FIFOs that can be read once."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        os.mkfifo(path)

    def write() -> None:
        for path in paths:
            path.write_text(f"{path.name} 1\n{path.name} 2\n")

    writer = threading.Thread(target=write)
    writer.start()
    copies = tmp_path / "copies"
    copies.mkdir()
    groups = without_pipes(((str(paths[0]), str(paths[1])),), copies)
    writer.join()
    assert pairs_of(*groups) == pairs_of(*groups) == [("a 1", "b 1"), ("a 2", "b 2")]


def test_groups_survive_the_settings():
    groups = (("a b.en", "c.de"), ("-",), ("x.tsv",))
    assert groups_from_setting(groups_to_setting(groups)) == groups


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        ("a.tsv", (("a.tsv",),)),
        (Path("a.tsv"), (("a.tsv",),)),
        (["s.fr", "s.en"], (("s.fr", "s.en"),)),
        ((Path("s.fr"), "s.en"), (("s.fr", "s.en"),)),
        ([("a", "b"), ("c", "d")], (("a", "b"), ("c", "d"))),
        ([["a", Path("b")], "c.tsv"], (("a", "b"), ("c.tsv",))),
        (["a.tsv", "b.jsonl.gz"], (("a.tsv",), ("b.jsonl.gz",))),
        ((), ()),
        (None, ()),
    ],
)
def test_programs_may_give_files_in_any_plain_form(given, groups):
    assert groups_of(given) == groups


@pytest.mark.parametrize("given", [["a", "b", "c", "d"], {"a": "b"}, 7, [("a", 7)], [[]]])
def test_what_cannot_be_files_is_refused_plainly(given):
    with pytest.raises(SettingError, match=r"give|cannot tell which files form a pair: write") as caught:
        groups_of(given)
    assert "\n" not in str(caught.value)


def test_data_that_moved_with_the_run_are_found(tmp_path):
    for name in ("data/train.en", "runs/first/near.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    run = tmp_path / "runs" / "first"
    assert find("/gone/project/data/train.en", run) == str(tmp_path / "data" / "train.en")
    assert find("data/train.en", run) == str(tmp_path / "data" / "train.en")
    assert find("near.tsv", run) == str(run / "near.tsv")
    assert find("/gone/nowhere.en", run) == "/gone/nowhere.en"
    assert find("-", run) == "-"
    with pytest.raises(DataError, match="from a pipe: give the same data again"):
        find("/dev/fd/63999", run)


@settings(max_examples=30)
@given(st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\n\r\ufeff", codec="utf-8"))] * 2), min_size=1))
def test_aligned_text_comes_back(tmp_path_factory, pairs):
    assert pairs_of(aligned(tmp_path_factory.mktemp("c"), pairs)) == pairs


def test_blocks_are_bounded_and_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 7)
    pairs = [(str(i), str(-i)) for i in range(100)]
    corpus = Corpus((aligned(tmp_path, pairs),))
    assert max(len(block.source) for block in corpus.blocks()) == 7
    assert pairs_of(*corpus.groups) == pairs


# --- faults


def test_unequal_line_counts(tmp_path):
    source, target = aligned(tmp_path, PAIRS)
    Path(target).write_text("only\ntwo\n")
    assert error_of((source, target)) == (
        f"{source}:3: no matching line in {target}: the files have 5 and 2 lines, but a pair is one line in each"
    )


def test_unequal_line_counts_after_whole_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 2)
    source, target = aligned(tmp_path, PAIRS)
    Path(target).write_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    assert error_of((source, target)).startswith(f"{target}:6: no matching line in {source}: the files have 9 and 5")


@pytest.mark.parametrize("packed", PACKERS)
def test_undecodable_byte(tmp_path, packed):
    source, target = aligned(tmp_path, [("a", "b")] * 3, packed)
    Path(source).write_bytes(PACKERS[packed](b"good\nalso good\nb\xe4d\n"))
    plain = source.removesuffix(packed) if packed else source
    found = error_of((source, target))
    assert found.startswith(f"{source}:3: byte 0xe4 at column 2 is not UTF-8: convert the file, for example with `")
    assert "iconv -f LATIN1 -t UTF-8" in found
    assert found.endswith(f"> {plain}.utf8` if it is Latin-1")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_named_with_the_command_that_converts_it(tmp_path, encoding):
    source, target = aligned(tmp_path, [("a", "b")] * 3)
    Path(source).write_bytes("\ufeffein Satz\nnoch einer\nund einer\n".encode(encoding))
    command = f"iconv -f UTF-16 -t UTF-8 {source} > {source}.utf8"
    assert error_of((source, target)) == f"{source}: the file is not UTF-8 but UTF-16: convert it with `{command}`"
    subprocess.run(command, shell=True, check=True)
    assert Path(f"{source}.utf8").read_text(encoding="utf-8").endswith("ein Satz\nnoch einer\nund einer\n")


def test_a_suffix_in_capitals_is_unpacked_by_the_command_too(tmp_path):
    path = tmp_path / "TRAIN.GZ"
    path.write_bytes(gzip.compress("grün\n".encode("latin-1")))
    found = error_of((str(path), str(path)))
    assert f"gzip -dc {path} | iconv -f LATIN1 -t UTF-8 > {tmp_path / 'TRAIN'}.utf8" in found


def test_missing_file_and_directory(tmp_path):
    source, _ = aligned(tmp_path, PAIRS)
    assert error_of((source, f"{tmp_path}/no")) == f"{tmp_path}/no: cannot be read: no such file"
    assert error_of((source, str(tmp_path))) == f"{tmp_path}: cannot be read: it is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    source, target = aligned(tmp_path, PAIRS)
    Path(target).chmod(0)
    assert error_of((source, target)) == f"{target}: cannot be read: permission denied"


@pytest.mark.parametrize("packed", [".gz", ".xz", ".bz2"])
@pytest.mark.parametrize("damage", ["cut", "altered", "another format"])
def test_damaged_compression(tmp_path, packed, damage):
    lines = [f"{i * 7919 % 10007} words {i}" for i in range(8_000)]
    (path,) = one_file(tmp_path, "a.tsv", [f"{line}\t{line}" for line in lines], packed)
    content = Path(path).read_bytes()
    middle = len(content) // 2
    altered = content[:middle] + b"damage!" * 20 + content[middle + 140 :]
    Path(path).write_bytes({"cut": content[:middle], "altered": altered, "another format": b"plain\n"}[damage])
    message = error_of((path,))
    assert message.startswith(f"{path}:")
    if (packed, damage) != (".gz", "altered"):  # gzip notices only at the end, the parser before it
        assert "damaged or cut short at or after this line: fetch it again" in message


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("", "blank line"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object: each line must be one object"),
        ('{"source": "a"}', 'key "target" is missing or not a string'),
        ('{"source": "a", "target": 3}', 'key "target" is missing or not a string'),
        ('{"translation": {"en": "a"}}', 'keys "source" and "target" are missing or not strings'),
        ('{"translation": "a"}', 'keys "source" and "target" are missing or not strings'),
        ('{"source": "a", "target": "\\ud800"}', "invalid Unicode: unpaired surrogate escape"),
    ],
)
def test_bad_json(tmp_path, line, complaint):
    (path,) = one_file(tmp_path, "a.jsonl", ['{"source": "a", "target": "b"}', line])
    message = error_of((path,))
    assert message.startswith(f"{path}:2: ")
    assert complaint in message


def test_missing_language(tmp_path):
    group = one_file(tmp_path, "c.jsonl", [json.dumps({"translation": {"en": "a", "de": "b"}})])
    assert 'c.jsonl:1: key "xx" is missing' in error_of(group, languages=("en", "xx"))


def test_missing_column(tmp_path):
    (path,) = one_file(tmp_path, "a.tsv", ["a\tb", "alone"])
    assert error_of((path,)) == (
        f"{path}:2: 1 column where 2 are needed, separated by tabs: source in 1 and target in 2; choose others with --columns"
    )
    assert error_of((path,), columns=Columns(features="3")).startswith(f"{path}:1: 2 columns where 3 are needed")


@pytest.mark.parametrize(
    ("first", "columns"),
    [("a\tb", None), ("de\ten", None), ("de\ten", Columns("de", "en"))],
)
def test_a_tab_inside_a_text_is_an_error(tmp_path, first, columns):
    (path,) = one_file(tmp_path, "a.tsv", [first, "Ich\thabe\tTabs.\tI have tabs."])
    assert error_of((path,), columns=columns) == (
        f"{path}:2: 4 columns where the first line has 2; a tab inside a text? Remove it, or choose columns by number: "
        "--columns source=1,target=2"
    )


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["a\tb", "c\td\te"], Columns("1", "2")),
        (["a\tb\tnote", "c\td\tnote\tmore"], None),
        (["de\ten\tnotes", "c\td\tnote\tmore"], None),
    ],
)
def test_columns_that_are_not_used_may_vary_in_number(tmp_path, lines, columns):
    group = one_file(tmp_path, "a.tsv", lines)
    (block,) = Corpus((group,), columns=columns).blocks()
    assert (block.source[-1], block.target[-1]) == ("c", "d")


def test_empty_corpus(tmp_path):
    source, target = aligned(tmp_path, [])
    assert error_of((source, target)) == f"{source} {target}: empty: there is no pair to learn from"


def test_groups_that_make_no_sense():
    assert (
        error_of(("a.txt",)) == "a.txt: a single file must be .tsv or .jsonl; otherwise give a source and a target file"
    )
    assert error_of(("a", "b", "c")) == "a b c: give one TSV or JSONL file, or a source and a target file"
    assert error_of(("a.tsv.gz", "b.tsv")).startswith(
        "a.tsv.gz b.tsv: a TSV or JSONL file holds both sides: give each file its own option"
    )


# --- scanning


def test_scan_counts(tmp_path):
    found = scan(Corpus((aligned(tmp_path, PAIRS),)), 100)
    assert (found.pairs, found.empty, found.identical) == (5, 1, 1)
    assert found.source.characters == sum(len(source) for source, _ in PAIRS)
    assert found.target.tokens_per_line == sum(len(target.split()) for _, target in PAIRS) / 5
    assert found.target.distinct_tokens == len({word for _, target in PAIRS for word in target.split()})


@pytest.mark.parametrize("limit", [1, 10, 64, 99, 1000])
def test_the_sample_is_spread_over_the_corpus(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 7)
    sources, targets = scan(Corpus((aligned(tmp_path, [(str(i), str(i)) for i in range(100)]),)), limit).sample
    numbers = list(map(int, sources))
    assert sources == targets
    assert min(limit, 100) / 2 <= len(numbers) <= limit
    assert len({b - a for a, b in pairwise(numbers)}) <= 1
    assert numbers[0] == 0
    assert 100 - numbers[-1] <= 100 / len(numbers) * 2


def test_the_sample_is_bounded_in_characters(tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "SAMPLE_CHARACTERS", 1000)
    sources, targets = scan(Corpus((aligned(tmp_path, [("x" * 10, "y" * 10)] * 500),)), 10_000).sample
    assert 500 <= 20 * len(sources) <= 1000
    assert len(sources) == len(targets)


def test_the_hash_sees_every_change(tmp_path):
    variants = [
        PAIRS,
        PAIRS[::-1],
        PAIRS[:-1],
        [(t, s) for s, t in PAIRS],
        [("a", "b"), ("", "")],
        [("a", ""), ("", "b")],
    ]
    hashes = {scan(Corpus((aligned(tmp_path, pairs),)), 100).content for pairs in variants}
    assert len(hashes) == len(variants)


def test_a_real_corpus(shared_data):
    folder = shared_data / "europarl-de-en"
    found = scan(Corpus(((str(folder / "valid.de"), str(folder / "valid.en")),)), 500)
    lines = (folder / "valid.de").read_bytes().count(b"\n")
    assert found.pairs == lines
    assert 250 <= len(found.sample[0]) <= 500
    assert found.source.tokens_per_line > 15
