"""The safetensors format: equal tensors are equal bytes, the library reads what we write, and no damage goes unnoticed."""

import hashlib
import json
import os
import random
import resource
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from transduce.checkpoint import read_about, read_arrays, read_shapes, read_tensors, write_tensors
from transduce.errors import DamagedFile, RunError, TransduceError
from transduce.tensor_file import HEADER_HASH, KINDS

ABOUT = {"step": "12", "metric": "BLEU", "score": "30.1000", "signature": "nrefs:1|tok:13a", "rank": "30.1"}


def some_tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {
        "weight": torch.randn(3, 5),
        "count": torch.tensor(7),
        "half": torch.randn(4).bfloat16(),
        "flags": torch.tensor([True, False, True]),
        "nothing": torch.zeros(0, 4),
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "file.safetensors", some_tensors(), ABOUT)
    return tmp_path / "file.safetensors"


def header_of(path: Path) -> dict[str, dict[str, object]]:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def with_header(path: Path, header: dict[str, dict[str, object]]) -> None:
    """The file with another header, and no hash of it, as the first versions wrote it."""
    header["__metadata__"].pop(HEADER_HASH, None)
    content = path.read_bytes()
    text = json.dumps(header).encode()
    data = content[8 + int.from_bytes(content[:8], "little") :]
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_tensors_come_back(file: Path) -> None:
    found = read_tensors(file)
    for name, tensor in some_tensors().items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert read_shapes(file)["weight"] == (3, 5)
    assert read_about(file).items() >= ABOUT.items()


def test_the_library_reads_what_we_write(file: Path) -> None:
    found = safetensors.torch.load_file(file)
    assert all(torch.equal(found[name], tensor) for name, tensor in some_tensors().items())
    with safetensors.safe_open(file, "pt") as opened:
        assert opened.metadata() == read_about(file)


def test_every_kind_of_element_comes_back(tmp_path: Path) -> None:
    """One of each, beside what the library makes of it."""
    tensors = {name: torch.tensor([0, 1, 1]).to(getattr(torch, name)) for name, _ in KINDS.values()}
    write_tensors(tmp_path / "file", tensors)
    library = safetensors.torch.load_file(tmp_path / "file")
    for name, tensor in read_tensors(tmp_path / "file").items():
        assert tensor.dtype == library[name].dtype == getattr(torch, name)
        assert tensor.float().tolist() == [0, 1, 1]
    del tensors["bfloat16"]
    write_tensors(tmp_path / "file", tensors)
    assert all(array.astype(np.float32).tolist() == [0, 1, 1] for array in read_arrays(tmp_path / "file").values())


def test_equal_tensors_are_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order they are given in; the very bytes are pinned, so that no version changes them unnoticed."""
    ordered, reversed_ = some_tensors(), dict(reversed(some_tensors().items()))
    write_tensors(tmp_path / "one", ordered, ABOUT)
    write_tensors(tmp_path / "other", reversed_, dict(reversed(ABOUT.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    monkeypatch.setattr("transduce.checkpoint.__version__", "0.1.0")
    write_tensors(tmp_path / "pinned", {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(3)}, ABOUT)
    assert hashlib.sha256((tmp_path / "pinned").read_bytes()).hexdigest().startswith("32f51ac2a46033a5")


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Each bit of the header and of the tensors: refused in one line, or the very same tensors and metadata."""
    path = tmp_path / "file"
    write_tensors(path, {"weight": torch.arange(6.0), "count": torch.tensor(7)}, ABOUT)
    whole, about = read_tensors(path), read_about(path)
    content, unchanged = path.read_bytes(), 0
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found = read_tensors(path), read_about(path)
        except DamagedFile:
            continue
        unchanged += 1
        assert found[1] == about
        assert all(torch.equal(found[0][name], tensor) for name, tensor in whole.items())
    assert unchanged < 8  # white space that became other white space


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", "thirty"), ("rank", "1e"), ("step", "-5"), ("step", "12.5"), ("step", "9" * 30), ("signature", "a\nb"),
        ("metric", ""), ("score", "high"), ("loss", "low"), ("transduce", "new"), ("sha256", "f00"),
        ("source_vocabulary", "x"), ("stepp", "12"),
    ],
)  # fmt: skip
def test_impossible_metadata_are_refused(file: Path, name: str, value: str) -> None:
    """Also in a file of the first versions, whose header has no hash."""
    header = header_of(file)
    header["__metadata__"][name] = value
    with_header(file, header)
    for read in (read_about, read_tensors, read_arrays, read_shapes):
        with pytest.raises(DamagedFile, match=f"file.safetensors: .*{name}"):
            read(file)


def test_a_header_without_a_hash_is_taken(file: Path) -> None:
    with_header(file, header_of(file))
    assert torch.equal(read_tensors(file)["weight"], some_tensors()["weight"])
    assert HEADER_HASH not in read_about(file)


def test_an_altered_header_is_noticed(file: Path) -> None:
    """One that could be: the file would be taken for better than it is."""
    file.write_bytes(file.read_bytes().replace(b'"rank":"30.1"', b'"rank":"-5.1"'))
    with pytest.raises(DamagedFile, match="the hash of the header does not match"):
        read_about(file)


def test_missing_metadata_are_named(file: Path) -> None:
    assert read_about(file, ["step", "metric"])["metric"] == "BLEU"
    with pytest.raises(DamagedFile, match="its header lacks loss"):
        read_about(file, ["step", "loss"])


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]},
        {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 64]},
        {"dtype": "F32", "shape": [3, -5], "data_offsets": [0, -60]},
        {"dtype": "F32", "shape": [True, 15], "data_offsets": [0, 60]},
        {"dtype": "F32", "shape": [3, 5], "data_offsets": [4, 64]},
        {"dtype": "F99", "shape": [3, 5], "data_offsets": [0, 60]},
        {"dtype": ["F32"], "shape": [3, 5], "data_offsets": [0, 60]},
        {"dtype": "F32", "shape": 15, "data_offsets": [0, 60]},
        {"shape": [3, 5], "data_offsets": [0, 60]},
        [],
        "text",
    ],
)
def test_impossible_descriptions_are_refused(tmp_path: Path, entry: object) -> None:
    path = tmp_path / "file"
    write_tensors(path, {"weight": torch.randn(3, 5)})
    header = header_of(path)
    header["weight"] = entry  # type: ignore[assignment]
    with_header(path, header)
    with pytest.raises(DamagedFile, match="cannot be read as safetensors"):
        read_tensors(path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"short", (10**15).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[]",
        (100_000).to_bytes(8, "little") + b"[" * 100_000, (20).to_bytes(8, "little") + b'{"__metadata__": {}}more',
        (20).to_bytes(8, "little") + b'{"__metadata__": [1]', (2).to_bytes(8, "little") + b"\xff\xff",
    ],
)  # fmt: skip
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DamagedFile, match="file: cannot be read as safetensors"):
        read_tensors(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    with pytest.raises(DamagedFile, match="not a regular file"):
        read_about(tmp_path / "file")


def test_the_limit_of_open_files_is_named(file: Path) -> None:
    """The library says "No such file" of a file that is there; and no older checkpoint is taken in its place."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, hard))
        with pytest.raises(RunError, match="Too many open files") as raised:
            read_tensors(file)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(held[0])
    assert not isinstance(raised.value, DamagedFile)


def test_random_damage_is_one_line(file: Path) -> None:
    """Bytes overwritten, cut or added anywhere."""
    content, draw = file.read_bytes(), random.Random(1)
    for _ in range(300):
        damaged = bytearray(content)
        start = draw.randrange(len(content))
        damaged[start : start + draw.randint(0, 40)] = draw.randbytes(draw.randint(0, 40))
        file.write_bytes(damaged)
        if damaged != content:
            with pytest.raises(TransduceError, match=r"file\.safetensors"):
                read_tensors(file)
