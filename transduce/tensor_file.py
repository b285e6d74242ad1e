"""The safetensors format: equal tensors and metadata give equal bytes, and headers are checked before use.

The safetensors library writes the entries of the header in random order; here the order is fixed. The header is read first,
so that names and shapes are known before any memory is allocated.
Knows bytes, names and shapes: no torch, no models, and not the meaning of the metadata.
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

# Element types: name in the file -> name in numpy and torch, size in bytes.
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
LONGEST_HEADER = 100_000_000  # bytes, as in the library

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
    """The header of a file, which describes its content."""

    entries: tuple[Entry, ...]  # in the order of their bytes
    metadata: dict[str, str]
    start: int = 0  # where in the file the bytes of the tensors begin

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {entry.name: entry.shape for entry in self.entries}

    def digest(self) -> str:
        """A hash of everything else in the header; does not depend on the order of the entries in the file."""
        rest = {name: value for name, value in self.metadata.items() if name != HEADER_HASH}
        described = {METADATA: rest, **{entry.name: _as_json(entry) for entry in self.entries}}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def sealed(self) -> "Header":
        """The header with its digest in the metadata."""
        return replace(self, metadata={**self.metadata, HEADER_HASH: self.digest()})


@dataclass(frozen=True)
class Stored:
    """The bytes of a tensor, with its name, type and shape."""

    name: str
    kind: str
    shape: tuple[int, ...]
    content: Bytes


# --- writing ---------------------------------------------------------------------------------------------------


def write(file: BinaryIO, tensors: Sequence[Stored], metadata: Mapping[str, str]) -> None:
    """Write tensors in a fixed order: wide elements first, so that all are aligned, then by name; metadata by name."""
    ordered = sorted(tensors, key=lambda one: (-CODES[one.kind][1], one.name))
    entries, offset = [], 0
    for one in ordered:
        entries.append(Entry(one.name, one.kind, one.shape, offset, offset + one.content.nbytes))
        offset += one.content.nbytes
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
    """Read the header of an open file; raises a `ValueError` if something is wrong with it."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, LONGEST_HEADER):
        raise ValueError("its header is truncated")
    try:
        found = json.loads(file.read(length))
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("its header is not a JSON object")
    metadata = found.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not strings")
    entries = sorted((_entry(name, value) for name, value in found.items()), key=lambda one: (one.begin, one.end))
    _check_offsets(entries, size - 8 - length)
    header = Header(tuple(entries), metadata, 8 + length)
    if metadata.get(HEADER_HASH, header.digest()) != header.digest():
        raise ValueError("its header is modified or incomplete: the hash of the header does not match")
    return header


MOST_AXES, LARGEST = 8, 1 << 50  # no tensor has more, and multiplying huge numbers would take minutes


def _entry(name: str, value: Any) -> Entry:
    try:
        kind, size = KINDS[value["dtype"]]
        shape, (begin, end) = tuple(value["shape"]), value["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"its header has an invalid description of {name}") from None
    if len(shape) > MOST_AXES or not all(
        type(number) is int and 0 <= number <= LARGEST for number in (*shape, begin, end)
    ):
        raise ValueError(f"its header has an invalid description of {name}")
    if end - begin != math.prod(shape) * size:
        raise ValueError(f"its header gives {name} a size that does not match its shape")
    return Entry(name, kind, shape, begin, end)


def _check_offsets(entries: Sequence[Entry], size: int) -> None:
    """Tensors must follow each other without gaps and fill the file, as the format requires."""
    ends = [0, *(entry.end for entry in entries)]
    if any(entry.begin != end for entry, end in zip(entries, ends, strict=False)) or ends[-1] != size:
        raise ValueError("its tensors do not fill the file: it is truncated or damaged")


def read_tensors(file: BufferedReader, header: Header) -> Iterator[Stored]:
    """Read the tensors of an open file, one after the other."""
    for entry in header.entries:
        content: Bytes = np.empty(entry.end - entry.begin, np.uint8)
        file.seek(header.start + entry.begin)
        if file.readinto(content.data) != content.nbytes:
            raise ValueError("it was truncated while it was read")
        yield Stored(entry.name, entry.kind, entry.shape, content)
