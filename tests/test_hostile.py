"""Lines nobody would write, through the command line and both engines: a line in is a line out, in order."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.checkpoint import RunFolder, write_tensors
from transduce.config import Config, SearchConfig, TransformerConfig, to_toml
from transduce.model import Transformer
from transduce.text import train_vocabulary

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
PLAIN = "amen"
LONG = 100_000

Draw = random.Random


def scattered(alphabet: str) -> Callable[[Draw], bytes]:
    return lambda draw: "".join(draw.choices(alphabet, k=draw.randint(1, 40))).encode()


KINDS: dict[str, Callable[[Draw], bytes]] = {
    "plain": lambda draw: PLAIN.encode(),
    "empty": lambda draw: b"",
    "blank": lambda draw: draw.choice([b" ", b"\t", b"\t \t", b"\xc2\xa0", b"\xe3\x80\x80", b"\r"]),
    "zero width": lambda draw: draw.choice(["\u200b", "\ufeff", "\u200d", "\u2060", "\u00ad"]).encode(),
    "control characters": scattered("\x00\x01\x07\x08\x0b\x0c\x1b\x7f\x85a "),
    "other line breaks": scattered("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1ea"),
    "carriage returns": lambda draw: b"a\rb\r\rc\r",
    "bad bytes": lambda draw: bytes(b for b in draw.randbytes(30) if b != 10),
    "half a character": lambda draw: "日本語".encode()[: draw.randint(1, 8)],
    "surrogates as bytes": lambda draw: b"a\xed\xa0\x80b\xed\xb0\x80",
    "emoji": scattered("😀👩‍👩‍👧‍👦🏳️‍🌈🇩🇪👍🏽"),
    "right to left": scattered("שלום עולם\u202e\u202dمرحبا "),
    "combining": lambda draw: ("a" + "\u0301" * draw.randint(1, 300)).encode(),
    "unknown": scattered("漢字仮名交じり文ዘመናይꙮ"),
    "special tokens": lambda draw: draw.choice([b"</s>", b"<pad>", b"<unk> </s>", b"<s>", "▁▁a▁".encode(), b"<0x0A>"]),
    "a long word": lambda draw: b"ab" * draw.randint(50, 200),
    "shell": lambda draw: b"$(rm -rf) `x` | \\n \\0 %s %n {0} ||| \"'",
    "highest": lambda draw: "\U0010ffff\ue000\ufffe\uffff".encode(),
}


def hostile_lines(count: int, long: int) -> list[bytes]:
    """Every kind in turn with random content, and some lines of a hundred thousand characters."""
    draw = random.Random(7)
    kinds = list(KINDS.values())
    lines = [kinds[number % len(kinds)](draw) for number in range(count - long)]
    for number in range(long):
        unit = ["a", "ab ", "日", "\u0301", "\x00"][number % 5]
        lines.insert(draw.randrange(len(lines)), (unit * (LONG // len(unit))).encode())
    assert not any(b"\n" in line for line in lines)
    return lines


@pytest.fixture(scope="module")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Characters in, symbols out; what is outside the vocabulary is unknown."""
    return Path(shutil.copytree(FROZEN, tmp_path_factory.mktemp("hostile") / "run"))


@pytest.fixture(scope="module")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Subwords with byte fallback and random weights: outputs of any bytes, line breaks among them."""
    folder = RunFolder(tmp_path_factory.mktemp("hostile"))
    vocabulary = train_vocabulary(["a cat", "ab abba amen", "small dogs"] * 20, units="bpe", size=300)
    model = TransformerConfig(d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    search = SearchConfig(beam=2, alpha=1.0, length_penalty="power", max_extra=2)
    folder.config.write_text(to_toml(Config(model=model, search=search)))
    vocabulary.save(folder.vocabulary("joint"))
    write_tensors(folder.weights("best"), dict(Transformer(model, vocabulary.size, vocabulary.size).named_parameters()))
    return folder.path


def check(run: Path, engine: str, lines: list[bytes], *options: str) -> None:
    command = [
        sys.executable,
        "-m",
        "transduce",
        "translate",
        str(run),
        "--engine",
        engine,
        "--max-extra",
        "2",
        *options,
    ]
    done = subprocess.run(command, input=b"\n".join(lines) + b"\n", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    outputs = done.stdout.split(b"\n")
    assert outputs.pop() == b""
    assert len(outputs) == len(lines)
    plain = {output for output, line in zip(outputs, lines, strict=True) if line == PLAIN.encode()}
    assert len(plain) == 1
    assert plain != {b""}
    assert {output for output, line in zip(outputs, lines, strict=True) if not line.strip()} == {b""}
    said = done.stderr.decode()
    assert re.search("lines were longer than the model's maximum of [0-9,]+ tokens and cut \\(lines", said)
    assert "lines are not valid UTF-8" in said


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("subwords", "torch"),
        ("subwords", "ct2"),
        ("characters", "ct2"),
        pytest.param("characters", "torch", marks=pytest.mark.slow),
    ],
)
def test_a_line_in_is_a_line_out(model: str, engine: str, request: pytest.FixtureRequest) -> None:
    check(request.getfixturevalue(model), engine, hostile_lines(120, long=2), "--beam", "2")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("engine", ["torch", "ct2"])
@pytest.mark.parametrize("model", ["characters", "subwords"])
def test_ten_thousand_lines_in_are_ten_thousand_lines_out(
    model: str, engine: str, request: pytest.FixtureRequest
) -> None:
    check(request.getfixturevalue(model), engine, hostile_lines(10_000, long=20), "--beam", "1")
