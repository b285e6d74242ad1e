"""The safetensors format: equal tensors and metadata give equal bytes, and headers are checked before use.

The library writes the entries of its header in a random order; here they stand in a fixed one. Reading takes the header
first, so that names and shapes are known before any memory is asked for, and opens plain files only.
Knows bytes, names and shapes: no torch, no models, and nothing of what the metadata mean.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

# The types of elements by their names in a file: their names in numpy and torch, and how many bytes they have.
KINDS: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
    "F64": ("float64", 8),
}
CODES = {name: (code, size) for code, (name, size) in KINDS.items()}
METADATA = "__metadata__"
HEADER_HASH = "header_sha256"  # the entry of the metadata that covers the rest of the header
LONGEST_HEADER = 100_000_000  # bytes, as the library has it

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Entry:
    """A tensor as the header describes it."""

    name: str
    kind: str  # as numpy and torch name it, e.g. float32
    shape: tuple[int, ...]
    begin: int  # of its bytes, counted from the end of the header
    end: int


@dataclass(frozen=True)
class Header:
    """What a file says of its content."""

    entries: tuple[Entry, ...]  # in the order of their bytes
    metadata: dict[str, str]
    start: int = 0  # where in the file the bytes of the tensors begin

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {entry.name: entry.shape for entry in self.entries}

    def digest(self) -> str:
        """A hash of everything but itself, whatever the order of the entries in the file."""
        rest = {name: value for name, value in self.metadata.items() if name != HEADER_HASH}
        described = {METADATA: rest, **{entry.name: _as_json(entry) for entry in self.entries}}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def sealed(self) -> "Header":
        """With that hash among the metadata."""
        return replace(self, metadata={**self.metadata, HEADER_HASH: self.digest()})


@dataclass(frozen=True)
class Stored:
    """A tensor's bytes, and what they are."""

    name: str
    kind: str
    shape: tuple[int, ...]
    content: Bytes


# --- writing ---------------------------------------------------------------------------------------------------


def write(file: BinaryIO, tensors: Sequence[Stored], metadata: Mapping[str, str]) -> None:
    """Everything in a fixed order: wide elements first, so that all are aligned, then by name; metadata by name."""
    ordered = sorted(tensors, key=lambda one: (-CODES[one.kind][1], one.name))
    entries, place = [], 0
    for one in ordered:
        entries.append(Entry(one.name, one.kind, one.shape, place, place + one.content.nbytes))
        place += one.content.nbytes
    header = Header(tuple(entries), dict(metadata)).sealed()
    described = {METADATA: dict(sorted(header.metadata.items())), **{e.name: _as_json(e) for e in entries}}
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for one in ordered:
        file.write(one.content.data)


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "dtype": CODES[entry.kind][0],
        "shape": list(entry.shape),
        "data_offsets": [entry.begin, entry.end],
    }


# --- reading ---------------------------------------------------------------------------------------------------


def read_header(file: BufferedReader) -> Header:
    """The header of an open file, or a `ValueError` that says what is wrong with it."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, LONGEST_HEADER):
        raise ValueError("its header is cut short")
    try:
        found = json.loads(file.read(length))
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("its header is not a JSON object")
    metadata = found.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not texts")
    entries = sorted((_entry(name, value) for name, value in found.items()), key=lambda one: (one.begin, one.end))
    _check_places(entries, size - 8 - length)
    header = Header(tuple(entries), metadata, 8 + length)
    if metadata.get(HEADER_HASH, header.digest()) != header.digest():
        raise ValueError("its header was altered or torn: the hash of the header does not match")
    return header


MOST_AXES, LARGEST = 8, 1 << 50  # more makes no tensor, and multiplying such numbers would take minutes


def _entry(name: str, value: Any) -> Entry:
    try:
        kind, size = KINDS[value["dtype"]]
        shape, (begin, end) = tuple(value["shape"]), value["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"its header does not describe {name}") from None
    if len(shape) > MOST_AXES or not all(
        type(number) is int and 0 <= number <= LARGEST for number in (*shape, begin, end)
    ):
        raise ValueError(f"its header does not describe {name}")
    if end - begin != math.prod(shape) * size:
        raise ValueError(f"its header gives {name} another size than its shape has")
    return Entry(name, kind, shape, begin, end)


def _check_places(entries: Sequence[Entry], size: int) -> None:
    """Tensors stand one after the other and fill the file, as the format demands."""
    ends = [0, *(entry.end for entry in entries)]
    if any(entry.begin != end for entry, end in zip(entries, ends, strict=False)) or ends[-1] != size:
        raise ValueError("its tensors do not fill the file: it is cut short or damaged")


def read_tensors(file: BufferedReader, header: Header) -> Iterator[Stored]:
    """The tensors of an open file whose header was read, one after the other."""
    for entry in header.entries:
        content: Bytes = np.empty(entry.end - entry.begin, np.uint8)
        file.seek(header.start + entry.begin)
        if file.readinto(content.data) != content.nbytes:
            raise ValueError("it was cut short while it was read")
        yield Stored(entry.name, entry.kind, entry.shape, content)
