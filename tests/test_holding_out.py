"""Validation data that are held out of the training files: whole speakers, where recordings name them."""

from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from transduce.audio.recording import Recording
from transduce.cli import main
from transduce.config import build
from transduce.data import Corpus, TextCorpus, read_pairs
from transduce.data.holding_out import MOST_SPEAKERS, choose_speakers, hold_out
from transduce.data.scanning import scan
from transduce.errors import DataError, SettingError
from transduce.run_log import read_events


def manifest(folder: Path, counts: dict[str, int]) -> Corpus:
    rows = [f"{speaker}-{n}.wav\ttext {n}\t{speaker}" for speaker, count in counts.items() for n in range(count)]
    (folder / "m.tsv").write_text("\n".join(["audio\ttext\tspeaker", *rows]) + "\n", encoding="utf-8")
    return Corpus(((str(folder / "m.tsv"),),))


def speakers_in(corpus: Corpus) -> set[str]:
    return {Recording.parse(source).speaker for source in read_pairs(corpus)[0]}


def test_no_speaker_is_in_both_parts(tmp_path: Path) -> None:
    said: list[str] = []
    kept = hold_out(manifest(tmp_path, {f"s{n}": 20 for n in range(15)}), said.append)
    held = replace(kept, part="held out")
    assert len(kept.speakers) == 2
    assert speakers_in(held) == set(kept.speakers)
    assert not speakers_in(kept) & speakers_in(held)
    assert len(read_pairs(kept)[0]) + len(read_pairs(held)[0]) == 300
    assert said == [
        f"no validation data given: holding out the recordings of 2 of 15 speakers: {', '.join(kept.speakers)} (data.hold_out_speakers)"
    ]


@pytest.mark.parametrize("counts", [{"anna": 50, "bert": 50}, {"": 100}, {"": 50, "anna": 5, "bert": 45}])
def test_too_few_or_unknown_speakers_are_not_held_out(tmp_path: Path, counts: dict[str, int]) -> None:
    said: list[str] = []
    divided = hold_out(manifest(tmp_path, counts), said.append)
    assert (divided.speakers, divided.hold_out) == ((), 10)
    assert "holding out about one training pair in 10" in said[0]
    assert [line.startswith("note: the same speakers are in both parts") for line in said[1:]] == [True] * (
        "bert" in counts
    )


def test_what_was_removed_from_lines_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes("\ufeff".encode() + b"".join(b"%d\ttarget\r\n" % n for n in range(400)))
    kept = replace(Corpus(((str(tmp_path / "pairs.tsv"),),)), hold_out=10)
    one, other = scan(kept, sample_pairs=10), scan(replace(kept, part="held out"), sample_pairs=10)
    assert one.pairs + other.pairs == 400
    assert other.pairs > 0
    assert (one.carriage_returns, other.carriage_returns) == (400, 0)
    assert (one.byte_order_marks, other.byte_order_marks) == (1, 0)


@pytest.mark.parametrize("lines", [400, 10_000])
def test_what_was_removed_from_text_is_counted_once(tmp_path: Path, lines: int) -> None:
    (tmp_path / "text.txt").write_bytes(b"".join(b"line %d\r\n" % n for n in range(lines)))
    kept = TextCorpus(((str(tmp_path / "text.txt"),),), hold_out=3)
    parts = [scan(part, sample_pairs=10) for part in (kept, replace(kept, part="held out"))]
    assert sum(part.pairs for part in parts) == lines
    assert sum(part.carriage_returns for part in parts) == lines


def test_empty_pairs_are_left_out_of_held_out_validation_data(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [f"w{n}" for n in range(300)]
    held_out = [word for word in words if crc32(word.encode()) % 10 == 0]
    lines = [f"{word}\t{word.upper()}\n" for word in words]
    (tmp_path / "pairs.tsv").write_text("".join([*lines, f"{held_out[0]}\t\n", "\t\n"]))
    assert crc32(b"") % 10 == 0  # an empty source is held out too
    settings = ["model.d_model=16", "model.d_ff=16", "model.num_heads=2", f"data.cache={tmp_path / 'cache'}"]
    command = ["--train", str(tmp_path / "pairs.tsv"), "--steps", "1", "--set", *settings]
    assert main(["train", str(tmp_path / "run"), *command]) == 0
    said = capfd.readouterr().err
    assert f"validation data: {len(held_out) + 2} pairs, 2 empty" in said
    assert f"each validation scores all {len(held_out)} lines" in said
    [validation] = [event for event in read_events(tmp_path / "run" / "metrics.jsonl") if event["event"] == "valid"]
    assert validation["lines"] == len(held_out)
    (tmp_path / "valid.tsv").write_text("ab\tAB\n\t\n")  # given files are scored as they are
    assert main(["train", str(tmp_path / "other"), *command, "--valid", str(tmp_path / "valid.tsv")]) == 0
    assert "each validation scores all 2 lines" in capfd.readouterr().err


def test_speakers_have_about_a_share_of_the_recordings() -> None:
    counts = {f"s{n}": 10 for n in range(100)}
    assert len(choose_speakers(counts, 10)) == 10
    assert len(choose_speakers(counts, 25)) == 4
    assert choose_speakers(dict(reversed(counts.items())), 10) == choose_speakers(counts, 10), "in any order"
    assert len(choose_speakers({f"s{n}": 1 for n in range(10_000)}, 10)) == MOST_SPEAKERS
    assert choose_speakers({"many": 90, "few": 10}, 10) == ("few",), "not the one with most recordings"
    assert len(choose_speakers({f"s{n}": 500 for n in range(4)}, 10)) == 1


def test_speakers_can_be_named(tmp_path: Path) -> None:
    corpus = replace(manifest(tmp_path, {"anna": 3, "bert": 4}), speakers=("bert",))
    kept = hold_out(corpus, print)
    assert speakers_in(kept) == {"anna"}
    with pytest.raises(
        DataError, match=r"data.hold_out_speakers: the training data have no speaker 'carl': they have anna, bert"
    ):
        hold_out(replace(corpus, speakers=("carl",)), print)


def test_speakers_of_texts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n")
    with pytest.raises(DataError, match="no speaker 'anna': they name no speakers"):
        hold_out(Corpus(((str(tmp_path / "pairs.tsv"),),), speakers=("anna",)), print)


def test_named_speakers_and_validation_data_exclude_each_other() -> None:
    with pytest.raises(SettingError, match="hold_out_speakers = anna with validation data: give one of the two"):
        build({"data": {"valid": ["v.tsv"], "hold_out_speakers": ["anna"]}})
    with pytest.raises(SettingError, match=r"data\.hold_out = 5 with data\.hold_out_speakers: give one of the two"):
        build({"data": {"hold_out": 5, "hold_out_speakers": ["anna"]}})
