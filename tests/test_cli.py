"""The command line as its users meet it: verbs on a real trained model, and every mistake in one line."""

import bz2
import gc
import gzip
import io
import json
import lzma
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from folders import edit_config

import transduce
from transduce.checkpoint import RunFolder, checkpoint_path, read_about, steps_saved
from transduce.cli import line_display, main
from transduce.cli.notices import Notices
from transduce.config import Config, DataConfig
from transduce.run_lock import alone_in
from transduce.tracking import progress_note
from transduce.translator import LoadOptions, Translation, Translator, open_folder
from transduce.translator.evaluation import TestSet, evaluate, merges_references, score_texts

SETTINGS = """
model.d_model=64 model.d_ff=128 model.num_heads=4 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0 train.steps=160 train.tokens_per_batch=400 train.learning_rate=5e-3 train.warmup_steps=10
train.validate_every=160 train.checkpoint_every=160 train.threads=1
""".split()
SYMBOL_SCORES = ["token error rate", "sequence error rate", "exact match", "mean Levenshtein distance"]
WORDS = ["ab", "ba", "abba", "baab", "aab", "bba", "abab", "baba", "aa", "bb", "aba", "bab"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spellings to sounds: each letter is said as a capital."""
    folder = tmp_path_factory.mktemp("cli")
    pairs = [f"{word}\t{' '.join(word.upper())}\n" for word in WORDS]
    (folder / "train.tsv").write_text("".join(pairs * 10))
    (folder / "valid.tsv").write_text("".join(pairs))
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv")]
    cache = f"data.cache={folder / 'cache'}"
    assert main(["train", str(folder / "run"), *files, "--quiet", "--set", *SETTINGS, cache]) == 0
    return folder / "run"


def pipe(arguments: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "transduce", *arguments], input=text, capture_output=True, check=False)


# --- translate -------------------------------------------------------------------------------------------------


def test_a_line_in_is_a_line_out(model: Path) -> None:
    """Empty lines, blanks, odd separators, control characters, bad bytes, very long lines, no newline at the end."""
    lines = [b"ab", b"", b"   ", b"\tab", b"a\xc2\x85b", b"a\xe2\x80\xa8b", b"\xff\xfe", b"</s> <pad>", b"\x00"]
    lines += [b"ab\r", b"zzz", "日本語".encode(), b"ab" * 3000, b"last"]
    done = pipe(["translate", str(model), "--beam", "1", "--max-extra", "3"], b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    outputs = done.stdout.split(b"\n")
    assert len(outputs) == len(lines) + 1
    assert outputs[-1] == b""
    assert outputs[0] == outputs[9] == b"A B"
    assert outputs[1] == outputs[2] == b""
    said = done.stderr.decode()
    assert "1 line was longer than the model's maximum of 1,024 tokens and cut (line 13)" in said
    assert re.search(r"source characters or symbols are not in the vocabulary: .+ \(first in line \d+\)", said)
    convert = "convert the input, for example with `iconv -f LATIN1 -t UTF-8` if it is Latin-1"
    assert f"1 line is not valid UTF-8; the invalid bytes were read as \ufffd (first in line 7): {convert}" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ab\n" * 300, ""),
        (
            "привет, мир\n" * 300,
            "IN: 100% of the characters in the first 100 lines (Cyrillic script) are unknown to this model",
        ),
        ("привет\n", "IN: 100% of the characters in the first line (Cyrillic script) are unknown to this model"),
        ("☃☃☃☃☃☃☃☃\n", ""),
        ("", ""),
    ],
)
def test_an_input_in_another_script_is_said_before_it_is_translated(
    text: str, said: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text(text)
    command = ["translate", str(model), "--input", str(tmp_path / "in"), "--beam", "1", "--max-extra", "1"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == text.count("\n")
    first = printed.err.partition("\n")[0]
    assert ("unknown to this model" in first) == bool(said)
    assert said.replace("IN", str(tmp_path / "in")) in first
    if text == "привет\n":
        unknown = "6 source characters or symbols are not in the vocabulary: п р и в е, … (first in line 1)\n"
        assert unknown in printed.err
    assert main([*command, "--quiet"]) == 0
    assert "unknown to this model" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        (
            "utf-16",
            "the input: NUL bytes in the first 100 lines: this is not UTF-8 text, but perhaps UTF-16 or a binary file",
        ),
        ("latin-1", "the input: 100 of the first 100 lines are not valid UTF-8: convert the text first"),
        ("utf-8", ""),
    ],
)
def test_an_input_in_another_encoding_is_said_before_it_is_translated(encoding: str, said: str, model: Path) -> None:
    done = pipe(["translate", str(model), "--beam", "1", "--max-extra", "1"], ("abé\n" * 200).encode(encoding))
    assert done.returncode == 0, done.stderr
    assert said in done.stderr.decode().partition("\n")[0]
    assert bool(said) == ("the input:" in done.stderr.decode())


def test_prefixes_and_terms_that_are_not_utf8_are_said(model: Path, tmp_path: Path) -> None:
    """As lines of the input are: what could not be read is not what was asked for."""
    (tmp_path / "prefixes").write_bytes(b"\xff\xfe\n\nA\xff\n")
    (tmp_path / "terms").write_bytes(b"\n\xc3\n\n")
    done = pipe(["translate", str(model), "--prefix", str(tmp_path / "prefixes")], b"ab\nba\nab\n")
    assert done.returncode == 0, done.stderr
    assert "2 prefixes are not valid UTF-8" in done.stderr.decode()
    done = pipe(["translate", str(model), "--terms", str(tmp_path / "terms")], b"ab\nba\nab\n")
    assert done.returncode == 0, done.stderr
    assert "1 line of terms is not valid UTF-8" in done.stderr.decode()


def test_the_first_lines_of_a_warning_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    notices = Notices(divide="; --split divides lines of several sentences")
    at_limit = [Translation("a", [], outputs_at_limit=2 * (line % 2), cut=line > 8) for line in range(1, 16)]
    notices.add_numbered(at_limit).print()
    said = capsys.readouterr().err
    assert "7 lines were longer than the model's maximum and cut (lines 9, 10, 11, 12, 13 and 2 more); --split" in said
    limit = (
        "16 outputs reached the length limit and may be incomplete (lines 1, 3, 5, 7, 9 and 3 more): raise the limit"
    )
    assert limit in said
    Notices().add_all(at_limit).print()
    assert "may be incomplete: raise the limit" in capsys.readouterr().err


def test_lines_without_an_output_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    Notices().add_all([Translation("a", []), Translation(" ", [])]).print()
    assert capsys.readouterr().err == "transduce: 1 line has no output: every candidate has probability 0\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_at_a_terminal_it_says_what_it_waits_for(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(b"ab\n"))
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["translate", str(model), *(["--quiet"] if quiet else [])]) == 0
    said = capsys.readouterr()
    assert said.out == "A B\n"
    assert ("type one sentence per line, and Ctrl-D to finish" in said.err) is not quiet


def test_nothing_in_nothing_out(model: Path) -> None:
    done = pipe(["translate", str(model)], b"")
    assert (done.returncode, done.stdout) == (0, b"")


PACKERS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_files_are_read_everywhere(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    source, target, prefix = (str(tmp_path / f"{name}.{ending}") for name in ("source", "target", "prefix"))
    for path, text in [(source, b"ab\n\nba"), (target, b"A B\nA\nB A\n"), (prefix, b"B\n\n\n")]:
        Path(path).write_bytes(PACKERS[ending](text))
    assert main(["translate", str(model), "--input", source]) == 0
    assert capsys.readouterr().out == "A B\n\nB A\n"
    assert main(["translate", str(model), "--input", source, "--prefix", prefix]) == 0
    assert capsys.readouterr().out.startswith("B")
    assert main(["evaluate", str(model), source, target]) == 0
    assert "WER 33.33" in capsys.readouterr().out
    assert main(["score", str(model), source, target]) == 0
    assert len(capsys.readouterr().out.split()) == 3
    Path(source).write_bytes(Path(source).read_bytes()[:-10])
    for command in (["translate", str(model), "--input", source], ["score", str(model), source, target]):
        assert main(command) == 2
        assert "the compressed file is damaged or cut short" in capsys.readouterr().err


def in_bash(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


def test_a_pipe_is_read_as_it_is(model: Path) -> None:
    for given in ("--input <(echo ab)", "<(echo ab)", "--beam 2 <(echo ab)"):
        done = in_bash(f"{sys.executable} -m transduce translate {model} {given}")
        assert (done.returncode, done.stdout) == (0, "A B\n")


def test_translate_takes_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "words"
    file.write_text("ab\nba\n")
    for arguments in ([str(file)], ["--input", str(file)], ["--beam", "2", str(file)], [str(file), "--beam", "2"]):
        assert main(["translate", str(model), *arguments]) == 0
        assert capsys.readouterr().out == "A B\nB A\n"
    assert main(["translate", str(model), str(file), "--input", str(file)]) == 2
    assert "both name the input: leave out one of them" in capsys.readouterr().err


PAIRS, SOURCES, TARGETS = b"ab\tA B\nba\tB A\n", b"ab\nba\n", b"A B\nB A\n"


@contextmanager
def pipe_of(content: bytes) -> Iterator[int]:
    """The end to read from of a pipe that holds this, as bash makes one for `<(...)`."""
    end, start = os.pipe()
    os.write(start, content)
    os.close(start)
    yield end
    os.close(end)


@contextmanager
def paths_of_pipes(*contents: bytes) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [f"/dev/fd/{stack.enter_context(pipe_of(content))}" for content in contents]


def test_score_and_evaluate_read_standard_input_and_pipes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs.tsv").write_bytes(PAIRS)
    assert main(["score", str(model), str(tmp_path / "pairs.tsv")]) == 0
    scores = capsys.readouterr().out
    assert len(scores.split()) == 2
    for verb, expected in (("score", scores), ("evaluate", "WER 0.00")):
        for contents in ((PAIRS,), (SOURCES, TARGETS)):
            with paths_of_pipes(*contents) as paths:
                assert main([verb, str(model), *paths]) == 0
            assert expected in capsys.readouterr().out
        with pipe_of(PAIRS) as end, open(end, closefd=False) as stdin, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            assert main([verb, str(model), "-"]) == 0
        assert expected in capsys.readouterr().out


def test_train_reads_pipes(tmp_path: Path) -> None:
    for name, content in (("pairs.tsv", PAIRS), ("sources", SOURCES), ("targets", TARGETS)):
        (tmp_path / name).write_bytes(content)
    pairs, sources, targets = (f"<(cat {tmp_path}/{name})" for name in ("pairs.tsv", "sources", "targets"))
    short = f"data.cache={tmp_path}/cache train.threads=1 train.steps=1 model.d_model=16 model.d_ff=16"
    files = f"--train {sources} {targets} --valid {pairs}"
    done = in_bash(f"{sys.executable} -m transduce train {tmp_path}/run {files} --quiet --set {short}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_that_read_pipes_is_not_resumed_without_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"data.cache={tmp_path}/cache", "train.threads=1", "train.steps=1", "model.d_model=16", "model.d_ff=16"]
    with paths_of_pipes(PAIRS, PAIRS) as (train, valid):
        command = ["train", str(tmp_path / "run"), "--train", train, "--valid", valid, "--quiet", "--set", *settings]
        assert main(command) == 0
    assert main(["train", str(tmp_path / "run"), "--set", "train.steps=2"]) == 2
    assert "read its data from a pipe: give the same data again" in capsys.readouterr().err


def test_n_best_and_json(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("ab\n\nba\n")
    common = ["translate", str(model), "--input", str(tmp_path / "in"), "--n-best", "3"]
    assert main(common) == 0
    rows = [line.split(" ||| ") for line in capsys.readouterr().out.split("\n") if line]
    assert [row[0] for row in rows] == ["0", "0", "0", "1", "2", "2", "2"]
    assert main([*common, "--json"]) == 0
    first = json.loads(capsys.readouterr().out.split("\n")[0])
    outputs = first["outputs"]
    assert outputs[0]["text"] == rows[0][1] == "A B"
    assert [o["score"] for o in outputs] == sorted((o["score"] for o in outputs), reverse=True)
    for output in outputs:
        assert sum(output["token_log_probabilities"]) == pytest.approx(output["log_probability"], abs=1e-5)
        assert len(output["token_log_probabilities"]) == len(output["tokens"]) + 1


def test_sampling_follows_its_seed(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("ab\nabba\n" * 4)

    def drawn(*options: str) -> str:
        assert main(["translate", str(model), "--input", str(tmp_path / "in"), "--sample", "--quiet", *options]) == 0
        return capsys.readouterr().out

    hot = ["--temperature", "5"]
    assert drawn(*hot, "--seed", "3") == drawn(*hot, "--seed", "3")
    assert drawn(*hot, "--seed", "3") != drawn(*hot, "--seed", "4")
    assert drawn("--top-k", "1") == drawn("--top-k", "1", "--seed", "9")
    assert drawn("--top-p", "0.0001") == drawn("--top-k", "1")
    assert drawn("--n-best", "2").count("0 ||| ") == 2


def test_a_forced_beginning(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("ab\nab\n")
    (tmp_path / "prefix").write_text("B B\n\n")
    assert main(["translate", str(model), "--input", str(tmp_path / "in"), "--prefix", str(tmp_path / "prefix")]) == 0
    first, second, _ = capsys.readouterr().out.split("\n")
    assert first.startswith("B B")
    assert second == "A B"


# --- evaluate, score, attention --------------------------------------------------------------------------------


def test_evaluate_as_text_and_json(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test.tsv").write_text("ab\tA B\nab\tX\nba\tB A\n")
    assert main(["evaluate", str(model), str(tmp_path / "test.tsv"), "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "WER 0.00" in said.out
    assert "units:word" in said.out
    assert "sentences/s" in said.err
    assert "1 line has the same source as an earlier line; their references were merged" in said.err
    assert said.out.count("|refs:merged)") == 2
    assert (tmp_path / "out").read_text() == "A B\nA B\nB A\n"  # a line for every line
    assert main(["evaluate", str(model), str(tmp_path / "test.tsv"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["scores"]["exact match"]["value"] == 100
    assert report["sentences"] == 2
    assert main(["evaluate", str(model), str(tmp_path / "test.tsv"), "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert "WER 0.00" in quiet.out
    assert "engine" not in quiet.err
    assert "sentences/s" not in quiet.err


@pytest.mark.parametrize(("engine", "precision"), [("torch", "float32"), ("ct2", "int8")])
def test_evaluate_says_how_it_decoded(
    model: Path, tmp_path: Path, engine: str, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if engine == "ct2":
        pytest.importorskip("ctranslate2")
    (tmp_path / "test.tsv").write_text("ab\tA B\nba\tB A\n")
    command = ["evaluate", str(model), str(tmp_path / "test.tsv"), "--engine", engine, "--device", "cpu"]
    command += ["--beam", "3", "--alpha", "1", "--length-penalty", "power", "--weights", "best"]
    assert main(command) == 0
    step = int(read_about(model / "best.safetensors")["step"])
    how = f"beam 3, length penalty 1 (power), engine {engine} {precision} on cpu, weights best (step {step:,})"
    assert how in capsys.readouterr().err.splitlines()
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["decoding"]
    assert found["beam"] == 3
    assert (found["engine"], found["precision"]) == (engine, precision)
    assert (found["weights"], found["step"]) == ("best", step)


@pytest.mark.parametrize("engine", ["torch", "ct2"])
def test_evaluate_shows_how_far_it_is(
    model: Path, tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "ct2":
        pytest.importorskip("ctranslate2")
    monkeypatch.setattr(line_display, "PLAIN_EVERY_S", -1.0)
    monkeypatch.setattr("transduce.translator.ct2_engine.Ct2Engine.BATCH_POSITIONS", 16)
    monkeypatch.setattr("transduce.translator.torch_engine.TorchEngine.POSITIONS", {"cpu": 16, "cuda": 16})
    (tmp_path / "test.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in [*WORDS, WORDS[0]]))
    command = ["evaluate", str(model), str(tmp_path / "test.tsv"), "--engine", engine, "--beam", "1"]
    assert main(command) == 0
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("translated ")]
    assert len(shown) > 1
    assert shown[-1] == f"translated {len(set(WORDS))} of {len(set(WORDS))} lines"  # equal sources are translated once
    for silent in ("--quiet", "--json"):
        assert main([*command, silent]) == 0
        assert "translated" not in capsys.readouterr().err


def test_evaluate_has_a_progress_bar_on_a_terminal(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    (tmp_path / "test.tsv").write_text("ab\tA B\n")
    assert main(["evaluate", str(model), str(tmp_path / "test.tsv"), "--engine", "torch"]) == 0
    assert "translated 1 of 1 lines" in capsys.readouterr().err


def test_evaluate_line_by_line_where_asked(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test.tsv").write_text("ab\tA B\nab\tX\nba\tB A\n")
    command = ["evaluate", str(model), str(tmp_path / "test.tsv"), "--output", str(tmp_path / "out")]
    assert main([*command, "--json", "--references", "separate"]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert report["sentences"] == 3
    assert report["scores"]["exact match"]["value"] == pytest.approx(200 / 3)
    assert "merged" not in said.out + said.err
    assert (tmp_path / "out").read_text() == "A B\nA B\nB A\n"


def test_nothing_is_called_merged_where_no_source_comes_twice() -> None:
    assert not TestSet.of(["ab", "ba"], ["A B", "B A"], merged=True).merged
    assert TestSet.of(["ab", "ab"], ["A B", "A B"], merged=True) == TestSet(["ab"], [["A B"]], merged=True)
    assert TestSet.of(["ab", "ab"], ["A B", "X"], ["Y", "Z"]) == TestSet(["ab", "ab"], [["A B", "Y"], ["X", "Z"]])


def test_running_text_is_scored_line_by_line_as_sacrebleu_does(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal sources, other references: a dictionary would accept each of them, a corpus does not."""
    (tmp_path / "sources").write_text("ab ba\nab ba\naba bab\nab ba\n")
    (tmp_path / "references").write_text("A B B A\nsome other words here\nA B A B A B\nA B A B\n")
    (tmp_path / "more").write_text("B A A B\nA B B A\nA B A A A B\nA B B A B\n")
    text = tmp_path / "text"
    shutil.copytree(model, text)
    edit_config(text, 'task = "symbols"', 'task = "translation"')
    for references in (["references"], ["references", "more"]):
        files = [str(tmp_path / name) for name in ("sources", *references)]
        assert main(["evaluate", str(text), *files, "--json", "--output", str(tmp_path / "out")]) == 0
        found = json.loads(capsys.readouterr().out)["scores"]
        command = [sys.executable, "-m", "sacrebleu", *files[1:], "-i", str(tmp_path / "out"), "-w", "12"]
        done = subprocess.run([*command, "-m", "bleu", "chrf", "ter"], check=True, capture_output=True, text=True)
        for expected in json.loads(done.stdout):
            assert found[expected["name"]]["value"] == pytest.approx(expected["score"], abs=1e-9)
            assert found[expected["name"]]["signature"] == expected["signature"]
    assert main(["evaluate", str(text), *files[:2], "--json", "--references", "merged", "--metrics", "BLEU"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sentences"] == 2
    assert list(report["scores"]) == ["BLEU"]
    assert report["scores"]["BLEU"]["signature"].endswith("|refs:merged")


def test_a_translation_task_can_ask_for_exact_match(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.tsv").write_text("ab\tA B\nba\tX\n")
    command = ["evaluate", str(model), str(tmp_path / "test.tsv"), "--metrics", "exact-match", "bleu"]
    assert main([*command, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores) == ["exact match", "BLEU"]
    assert scores["exact match"]["value"] == 50
    with pytest.raises(SystemExit) as refused:
        main([*command, "blue"])
    assert refused.value.code == 2
    assert "there is no 'blue'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sources", "data", "merged"),
    [
        (["read", "lead", "ice cream", "wind", "bow", "row"], {"task": "symbols"}, True),
        (["walk ;V;PST", "go ;V;PST"], {"task": "symbols"}, True),
        (["read it", "read that"], {"task": "symbols"}, False),
        (["read", "lead"], {"task": "translation"}, False),
        (["read", "lead"], {"task": "symbols", "references": "separate"}, False),
        (["read it", "read that"], {"task": "translation", "references": "merged"}, True),
    ],
)
def test_references_are_merged_for_dictionaries(sources: list[str], data: dict[str, str], merged: bool) -> None:
    config = Config(data=DataConfig(**data))  # type: ignore[arg-type]
    assert merges_references(config, sources) == merged
    assert merges_references(config, sources, "merged")
    assert not merges_references(config, sources, "separate")


@pytest.mark.parametrize(
    ("source_units", "target_units", "reference", "names"),
    [
        ("char", "word", "K AE1 T", ["PER", "WER", "exact match"]),
        ("char", "word", "t͡ʃʰ a˥˩", ["PER", "WER", "exact match"]),
        ("char", "word", "one hundred twenty", SYMBOL_SCORES),
        ("char", "char", "walked", SYMBOL_SCORES),
        ("word", "word", "x y", SYMBOL_SCORES),
    ],
)
def test_error_rates_have_the_names_of_what_they_count(
    source_units: str, target_units: str, reference: str, names: list[str]
) -> None:
    units = {"source_units": source_units, "target_units": target_units}
    config = Config(data=DataConfig(task="symbols", **units))  # type: ignore[arg-type]
    found = score_texts(["x"], TestSet.of(["a"], [reference]), config)
    assert [score.name for score in found.all] == names


@pytest.mark.parametrize(
    ("units", "printed"),
    [
        ("char", "accuracy (exact match) 0.00  mean Levenshtein distance 6.00  token error rate 100.00"),
        ("word", "PER 300.00  WER 100.00"),
    ],
)
def test_a_share_and_what_is_left_of_it_are_not_both_printed(units: str, printed: str) -> None:
    """Unless somebody asks for both; JSON has all of them."""
    config = Config(data=DataConfig(task="symbols", source_units="char", target_units=units))  # type: ignore[arg-type]
    test = TestSet.of(["a"], ["walked" if units == "char" else "K"])
    output = "" if units == "char" else "A B C"
    found = score_texts([output], test, config)
    assert str(found) == printed
    assert "exact match" in found.as_dict()
    both = score_texts([output], test, config, metrics=["wer", "exact-match"])
    assert str(both) == "WER 100.00  accuracy (exact match) 0.00"
    assert str(score_texts([output], test, config, main="ter")).startswith("TER ")


@pytest.mark.parametrize("engine", ["torch", "ct2"])
def test_evaluate_counts_the_tokens_that_were_made(model: Path, engine: str) -> None:
    translator, sources = Translator.load(model, LoadOptions(engine=engine)), ["ab", "babab", ""]
    found = evaluate(translator, TestSet.of(sources, ["A B", "B A B A B", ""]))
    assert found.tokens == sum(len(one.outputs[0].tokens) + 1 for one in translator.stream(sources) if one.outputs) > 6


@pytest.mark.parametrize("engine", ["torch", "ct2"])
def test_outputs_that_reach_the_length_limit_are_counted_and_said(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    (tmp_path / "in").write_text("abba\nab\n")
    (tmp_path / "prefix").write_text("A B B A A A A\n\n")  # of the first, nothing can follow
    command = ["translate", str(model), "--input", str(tmp_path / "in"), "--prefix", str(tmp_path / "prefix")]
    command += ["--engine", engine, "--max-extra", "1"]
    assert main([*command, "--json"]) == 0
    said = capsys.readouterr()
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [one["outputs_at_limit"] for one in found] == [1, 0]
    assert [one["outputs"][0]["at_limit"] for one in found] == [True, False]
    assert (
        "1 output reached the length limit and may be incomplete (line 1): raise the limit with --max-extra\n"
        in said.err
    )
    (tmp_path / "test.tsv").write_text("abba\tA B B A\n")
    assert (
        main(["evaluate", str(model), str(tmp_path / "test.tsv"), "--json", "--engine", engine, "--max-extra", "0"])
        == 0
    )
    said = capsys.readouterr()
    assert json.loads(said.out)["outputs_at_limit"] == 1
    assert "1 output reached the length limit" in said.err


@pytest.mark.parametrize("engine", ["torch", "ct2"])
def test_score_is_what_search_reported(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    found = transduce.load(model, engine=engine).n_best(["abab", "ba"], 2)
    pairs = [(t.source, o.text, o.log_probability) for t in found for o in t.outputs]
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{text}\n" for source, text, _ in pairs))
    command = ["score", str(model), str(tmp_path / "pairs.tsv"), "--engine", engine]
    assert main(command) == 0
    scores = [float(line) for line in capsys.readouterr().out.split()]
    assert scores == pytest.approx([log_probability for _, _, log_probability in pairs], abs=1e-4)
    assert main([*command, "--json"]) == 0
    first = json.loads(capsys.readouterr().out.split("\n")[0])
    assert math.fsum(first["token_log_probabilities"]) == pytest.approx(scores[0], abs=1e-4)


@pytest.mark.parametrize("ending", ["png", "html"])
def test_attention_says_the_texts(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
    file = tmp_path / f"attention.{ending}"
    assert main(["attention", str(model), "ab", "-o", str(file)]) == 0
    assert capsys.readouterr().err.endswith(f"{file}: ab -> A B\n")


def test_attention_is_drawn(model: Path, tmp_path: Path) -> None:
    picture = tmp_path / "attention.png"
    assert main(["attention", str(model), "abba", "-o", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.stat().st_size > 5000


# --- the Python API --------------------------------------------------------------------------------------------


def test_the_python_api(model: Path, tmp_path: Path) -> None:
    loaded = transduce.load(model)
    assert loaded.translate(["ab", "", "ba"]) == ["A B", "", "B A"]
    assert loaded.translate(["ab"], beam=1) == ["A B"]
    assert loaded.evaluate(["ab"], ["A B"]).scores.main.value == 0
    assert loaded.score(["ab"], ["A B"])[0] > loaded.score(["ab"], ["B B"])[0]
    seen = loaded.attention("ab", picture=tmp_path / "a.svg")
    assert len(seen.maps.cross) == 1
    assert seen.target[0] == "<pad>"
    assert len(loaded.sample(["ab"], 3, seed=2)[0].outputs) == 3
    with pytest.raises(TypeError, match="pass a list of strings"):
        loaded.translate("ab")


@pytest.mark.parametrize("which", ["best", "last"])
def test_other_weights_can_be_asked_for(model: Path, which: str) -> None:
    assert transduce.load(model, weights=which).translate(["ab"]) == ["A B"]


# --- mistakes --------------------------------------------------------------------------------------------------

MISTAKES = [
    (["train", "run", "--train", "a", "b", "--minutes", "-1"], "train.minutes = -1.0: must not be negative"),
    (
        ["train", "new", "--train", "INPUT", "INPUT", "--epochs", "0"],
        "train.steps, train.epochs and train.minutes are all 0",
    ),
    (
        ["train", "new", "--train", "INPUT", "INPUT", "--set", "train.epochs=0"],
        "train.steps, train.epochs and train.minutes are all 0",
    ),
    (["translate", "nowhere"], "nowhere: no such folder"),
    (["translate", "nowhere"], "`transduce train nowhere ...` creates one"),
    (["translate", "MODEL/checkpoints"], "not a model folder (it has no config.toml)"),
    (
        ["evaluate", "MODEL/config.toml", "b", "MODEL"],
        "a file, not a model folder; write `transduce evaluate RUN SOURCE REFERENCE`",
    ),
    (
        ["score", "MODEL/config.toml", "b", "MODEL"],
        "a file, not a model folder; write `transduce score RUN SOURCE TARGET`",
    ),
    (["translate", "MODEL/config.toml"], "config.toml: a file, not a model folder; did you mean MODEL?\n"),
    (["translate", "INPUT"], "input: a file, not a model folder\n"),
    (["translate", "FULL"], "full: not a model folder (it has no config.toml)\n"),
    (["translate", "MODEL/.."], "(it has no config.toml); did you mean MODEL/../run?"),
    (["translate", "MARIAN"], "a Hugging Face folder (marian); `transduce import MARIAN RUN` converts Marian models"),
    (["translate", "MODEL", "--weights", "averaged"], "the folder has no averaged.safetensors"),
    (["translate", "MODEL", "--input", "missing"], "missing: cannot be read"),
    (["translate", "MODEL", "--input", "INPUT", "--beam", "0"], "beam = 0: must be at least 1"),
    (["translate", "MODEL", "--input", "INPUT", "--sample", "--temperature", "0"], "temperature"),
    (["translate", "MODEL", "--input", "INPUT", "--prefix", "EMPTY"], "fewer prefixes than lines"),
    (["translate", "MODEL", "--input", "INPUT", "--alpha", "-10"], "alpha = -10.0: must be at least 0"),
    (["translate", "MODEL", "--input", "INPUT", "--alpha", "nan"], "alpha = nan: must be at most 10"),
    (["translate", "MODEL", "--input", "INPUT", "--alpha", "1e30"], "alpha = 1e+30: must be at most 10"),
    (["translate", "MODEL", "--input", "INPUT", "--beam", "100000"], "beam = 100000: must be at most 1000"),
    (["translate", "MODEL", "--input", "INPUT", "--threads", "-1"], "threads = -1: must not be negative"),
    (["translate", "MODEL", "--input", "INPUT", "--threads", "100000"], "threads = 100000: must be at most"),
    (["translate", "MODEL", "--input", "INPUT", "--n-best", "100000"], "n_best = 100000: must be at most 1000"),
    (
        ["translate", "MODEL", "--input", "INPUT", "--max-extra", "9999999"],
        "max_extra = 9999999: must be at most 100000",
    ),
    (
        ["translate", "MODEL", "--input", "INPUT", "--sample", "--top-k", "99999999"],
        "top_k = 99999999: must be at most",
    ),
    (["score", "MODEL", "INPUT", "INPUT", "--threads", "5000"], "threads = 5000: must be at most"),
    (["export", "MODEL", "new", "--to", "hf", "--threads", "100000"], "threads = 100000: must be at most"),
    (["shortlist", "MODEL", "--threads", "100000"], "threads = 100000: must be at most"),
    (["serve", "MODEL", "--threads", "100000"], "threads = 100000: must be at most"),
    (["serve", "MODEL", "--port", "70000"], "--port 70000: must be from 1 to 65535"),
    (["serve", "MODEL", "--batch", "99999"], "--batch 99999: must be from 1 to 10,000"),
    (["serve", "MODEL", "--queue", "0"], "--queue 0: must be from 1 to 100,000"),
    (["serve", "MODEL", "--characters", "1000000000"], "--characters 1000000000: must be from 1 to 100,000,000"),
    (["key", "keys", "me", "--requests-per-minute", "99999999"], "must be from 1 to 1,000,000"),
    (
        ["train", "new", "--train", "FEW", "FEW", "--set", "train.threads=100000"],
        "train.threads = 100000: must be at most",
    ),
    (
        ["train", "new", "--train", "FEW", "FEW", "--set", "train.tokens_per_batch=1000000000000"],
        "must be at most 100,",
    ),
    (
        ["translate", "MODEL", "--temperature", "2"],
        "--temperature has no effect without --sample: add --sample, or leave it out",
    ),
    (["translate", "MODEL", "--top-k", "0"], "--top-k has no effect without --sample"),
    (["translate", "MODEL", "--top-p", "0.9"], "--top-p has no effect without --sample"),
    (["translate", "MODEL", "--seed", "1"], "--seed has no effect without --sample"),
    (["translate", "MODEL", "--sample", "--beam", "2"], "--beam has no effect with --sample"),
    (["backtranslate", "MODEL", "new", "--seed", "1"], "--seed has no effect without --sample"),
    (["backtranslate", "MODEL", "new", "INPUT", "--input", "INPUT"], "both name the input: leave out one of them"),
    (["train", "new", "--train", "FEW", "FEW", "--threads", "100000"], "train.threads = 100000: must be at most"),
    (
        ["translate", "MODEL", "--engine", "torch", "--quantization", "int8"],
        "leave it out, or leave out --engine torch",
    ),
    (["translate", "MODEL", "--device", "cuda", "--quantization", "int8"], "or leave out --device cuda"),
    (
        ["score", "MODEL", "INPUT", "INPUT", "--quantization", "float32"],
        "--quantization has no effect on the torch engine",
    ),
    (
        ["evaluate", "MODEL", "INPUT", "INPUT", "--output", "no/such/folder/out"],
        "the folder no/such/folder does not exist",
    ),
    (["attention", "MODEL", "ab " * 200, "-o", "a.png"], "a picture has room for at most 150 on each side"),
    (
        ["train", "new", "--train", "FEW", "FEW"],
        "too few different sources (2 pairs) to hold any out for validation: give validation data with --valid",
    ),
    (
        ["train", "INPUT/run", "--train", "INPUT", "INPUT"],
        "input/run: the run folder cannot be created here: file exists",
    ),
    (
        ["train", "/proc/x", "--train", "INPUT", "INPUT"],
        "/proc/x: the run folder cannot be created here: no such file or directory",
    ),
    (["evaluate", "MODEL", "missing.tsv"], "missing.tsv: cannot be read: no such file"),
    (["evaluate", "MODEL", "INPUT", "EMPTY"], "the files have"),
    (["attention", "MODEL", "ab", "-o", "picture.bmp"], "a picture's name must end in .png, .pdf, .svg or .html"),
    (["attention", "MODEL", "ab", "-o", "no/such/folder/a.png"], "the folder no/such/folder does not exist"),
    (["attention", "MODEL", "  ", "-o", "a.png"], "the sentence is empty"),
    (["train", "new"], "no training data"),
    (["train", "new", "--train", "a", "b", "--valid", "c", "d"], "cannot be read: no such file"),
    (["train", "new", "--set", "model.dmodel=3"], "unknown setting model.dmodel; did you mean model.d_model?"),
    (["train", "new", "--train", "a", "b", "--train", "c.tsv", "--set", "data.weights=1,2,3"], "3 for 2 corpora"),
    (["train", "new", "--train", "a", "b", "--set", "data.weights=-1"], "data.weights = -1: must not be negative"),
    (
        ["train", "new", "--train", "INPUT", "INPUT", "--valid", "INPUT", "INPUT", "--set", "data.weights=0.4"],
        "use larger weights",
    ),
    (["train", "new", "--set", "nonsense"], "write section.key=value"),
    (["train", "new", "--config", "missing.toml"], "missing.toml: cannot be read"),
    (
        ["train", "FULL", "--train", "INPUT", "INPUT", "--valid", "INPUT", "INPUT"],
        "the folder is not empty and is not a run",
    ),
    (["train", "new", "--from", "nowhere", "--train", "INPUT", "INPUT", "--valid", "INPUT", "INPUT"], "no such folder"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(a)[:60] for a, _ in MISTAKES])
def test_a_mistake_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "input").write_text("ab\nba\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    (tmp_path / "marian").mkdir()
    (tmp_path / "marian" / "config.json").write_text('{"model_type": "marian"}')
    (tmp_path / "few").write_text("cat\ndog\n")  # neither falls into the tenth that is held out
    names = {
        "FEW": tmp_path / "few",
        "MODEL": model,
        "INPUT": tmp_path / "input",
        "EMPTY": tmp_path / "empty",
        "FULL": tmp_path / "full",
        "MARIAN": tmp_path / "marian",
    }
    filled = [a.replace("MODEL", str(model)).replace("INPUT", str(names["INPUT"])) for a in arguments]
    filled = [str(names.get(a, a)) for a in filled]
    if filled[0] == "train" and filled[1] == "new":
        filled[1] = str(tmp_path / "new")
    assert main(filled) == 2
    said = capsys.readouterr()
    for name, path in names.items():
        message = message.replace(name, str(path))
    assert message in said.err
    assert said.err.strip().split("\n")[-1].startswith("transduce: ")
    assert "Traceback" not in said.err
    assert not (tmp_path / "new").exists()


def test_device_threads_and_seed_of_training_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in WORDS * 4))
    run, files = str(tmp_path / "run"), ["--train", str(tmp_path / "a.tsv"), "--valid", str(tmp_path / "a.tsv")]
    settings = ["--steps", "1", "--set", *SETTINGS[:6], f"data.cache={tmp_path / 'cache'}"]
    assert main(["train", run, *files, "--device", "cpu", "--threads", "1", "--seed", "3", *settings]) == 0
    train = open_folder(run).config.train
    assert (train.device, train.threads, train.seed) == ("cpu", 1, 3)
    assert main(["train", run, "--threads", "2", "--steps", "2"]) == 0, "--train may be left out"
    train = open_folder(run).config.train
    assert (train.device, train.threads, train.seed, train.steps) == ("cpu", 2, 3, 2)
    assert main(["train", run, "--seed", "4"]) == 2
    assert "train.seed = 3, not 4. train.seed cannot change when a run is resumed" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 300])
def test_too_few_sources_to_hold_any_out(tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int) -> None:
    """All pairs have one source, and it falls into the tenth that is held out: nothing would be left to train on."""
    source = next(word for word in map(str, range(1000)) if crc32(word.encode()) % 10 == 0)
    (tmp_path / "pairs.tsv").write_text(f"{source}\ttarget\n" * count)
    assert main(["train", str(tmp_path / "new"), "--train", str(tmp_path / "pairs.tsv")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"too few different sources ({count} pair" in said
    assert "--valid" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_without_weights(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = shutil.copytree(model, tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors", "ct2"))
    assert main(["translate", str(copied)]) == 2
    said = capsys.readouterr().err
    assert "the folder has no weights: neither best.safetensors nor last.safetensors" in said
    assert f"`transduce train {copied}` trains it" in said


def test_a_run_that_is_training_has_no_weights_yet(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(model, tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors", "ct2"))
    events = [{"event": "train", "step": 7}, {"event": "train", "step": 1_200}]
    (copied / "metrics.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    with alone_in(RunFolder(copied)):
        for command in (["translate", str(copied)], ["evaluate", str(copied), str(model.parent / "valid.tsv")]):
            assert main(command) == 2
            expected = f"{copied}: training is in progress (step 1,200) and has saved no weights yet: wait for its first checkpoint"
            assert capsys.readouterr().err == f"transduce: {expected}\n"


def test_weights_of_a_run_that_is_not_finished(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = shutil.copytree(model, tmp_path / "run", ignore=shutil.ignore_patterns("README.md"))
    log = (copied / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert json.loads(log[-1])["event"] == "finished"
    (copied / "metrics.jsonl").write_text("".join(log[:-1]))
    (copied / "in").write_text("ab\n")
    (copied / "averaged.safetensors").unlink(missing_ok=True)
    step, of = json.loads(log[-1])["step"], int(read_about(copied / "best.safetensors")["step"])
    weights = f"the best weights, of step {of}"
    for command in (
        ["translate", str(copied), str(copied / "in")],
        ["evaluate", str(copied), str(model.parent / "valid.tsv")],
    ):
        assert main(command) == 0
        stopped = f"{copied}: training was stopped (step {step:,}) before the end of its budget; these are {weights}"
        assert capsys.readouterr().err.count(f"{stopped}; `transduce train {copied}` resumes it") == 1
        with alone_in(RunFolder(copied)):
            assert main(command) == 0
        assert (
            f"{copied}: training is in progress (step {step:,}); these are the best weights so far, of step {of}\n"
            in capsys.readouterr().err
        )
        assert main([*command, "--quiet"]) == 0
        assert "training" not in capsys.readouterr().err
        assert main([str(model) if part == str(copied) else part for part in command]) == 0
        assert "training" not in capsys.readouterr().err
    newest = max(steps_saved(RunFolder(copied)))
    later = checkpoint_path(RunFolder(copied), step + 5)
    checkpoint_path(RunFolder(copied), newest).rename(
        later
    )  # as where training is stopped between two events of the log
    assert f"training was stopped (step {step + 5:,}) before" in progress_note(copied)
    assert progress_note(copied, "last").startswith(f"{copied}: training was stopped")
    assert "; these are the last weights, of step " in progress_note(copied, "last")
    shutil.rmtree(copied / "checkpoints")  # training could not be resumed
    assert progress_note(copied) == f"{stopped}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "model", "--beem", "3"], "translate: unrecognized arguments: --beem 3; did you mean --beam?"),
        (["translate", "model", "--beem=3"], "translate: unrecognized arguments: --beem=3; did you mean --beam?"),
        (["translate", "model", "input", "more"], "translate: unrecognized arguments: more"),
        (["runs", "a", "b"], "runs: unrecognized arguments: b; to compare two runs: --diff a b"),
        (["train"], "train: the following arguments are required: run"),
        (["train", "run", "--seed", "one"], "train: argument --seed: invalid int value: 'one'"),
        (["train", "run", "--minutes", "5m"], "train: argument --minutes: '5m': give a number of minutes, such as 5"),
        (["paper", "--minutes", "x"], "paper: argument --minutes: 'x': give a number of minutes, such as 5"),
        (["train", "run", "--device", "gpu"], "train: --device: there is no 'gpu'; did you mean cuda?"),
        (["translate", "run", "--device", "gpu"], "translate: --device: there is no 'gpu'; did you mean cuda?"),
        (
            ["translate", "run", "--beam-size", "5"],
            "translate: unrecognized arguments: --beam-size 5; did you mean --beam?",
        ),
        (["train", "run", "--max-steps", "5"], "train: unrecognized arguments: --max-steps 5; did you mean --steps?"),
        (
            ["train", "run", "--lr=0.1"],
            "train: unrecognized arguments: --lr=0.1; did you mean --set train.learning_rate=...?",
        ),
        (["train", "run", "--preset", "bigg"], "train: --preset: there is no 'bigg'; did you mean big?"),
        (["train", "run", "--device", "abacus"], "train: --device: there is no 'abacus'; choose from auto, cpu, cuda"),
    ],
)
def test_arguments_that_make_no_sense_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"transduce {message} (see `transduce {arguments[0]} --help`)\n"


def test_a_misspelt_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trian"])
    said = capsys.readouterr().err
    assert said == "transduce: there is no command 'trian'; did you mean train? (see `transduce --help`)\n"


def test_output_that_cannot_be_written_is_one_line(model: Path) -> None:
    line = f"echo ab | {sys.executable} -m transduce translate {model} "
    full = subprocess.run(["bash", "-c", line + "> /dev/full"], capture_output=True, text=True, check=False)
    assert (full.returncode, full.stderr.strip()) == (2, "transduce: No space left on device")
    closed = subprocess.run(["bash", "-c", line + ">&-"], capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stderr.strip()) == (2, "transduce: standard output is closed")


def test_output_is_utf_8_whatever_the_locale(model: Path) -> None:
    command = [sys.executable, "-m", "transduce", "translate", str(model), "--json", "--quiet"]
    done = subprocess.run(
        command, input="日本\n".encode(), capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii"}
    )
    assert json.loads(done.stdout.decode())["source"] == "日本"


def test_help_of_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("demo", "train", "translate", "evaluate", "score", "attention"):
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        assert verb in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error(model: Path) -> None:
    line = f"yes ab | head -200000 | {sys.executable} -m transduce translate {model} --beam 1 | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "A B\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("engine", ["torch", "ct2"])
def test_translate_answers_a_line_before_the_next_is_sent(engine: str, tmp_path: Path) -> None:
    if engine == "ct2":
        pytest.importorskip("ctranslate2")
    run = shutil.copytree(Path(__file__).parent / "frozen" / "0.1.0", tmp_path / "run")
    command = [sys.executable, "-m", "transduce", "translate", str(run), "--engine", engine, "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for line in ("the cat", "", "seven dogs"):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answers.append(process.stdout.readline())  # waits for ever where it waits for the next line
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert [bool(answer.strip()) for answer in answers] == [True, False, True]


def test_the_command_line_collects_garbage_less_often_and_leaves_a_disabled_collector_alone() -> None:
    usual = gc.get_threshold()
    try:
        for before, after in ((usual[0], 50_000), (0, 0), (90_000, 90_000)):
            gc.set_threshold(before, *usual[1:])
            with pytest.raises(SystemExit):
                main(["--version"])
            assert gc.get_threshold() == (after, *usual[1:])
    finally:
        gc.set_threshold(*usual)
