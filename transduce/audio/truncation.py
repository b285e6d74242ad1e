"""Truncated recordings: WAV, Ogg and MP3 files without their end, as after an interrupted copy.

libsndfile reads the first two in silence, as if they were whole. For the third, libmpg123 writes a warning to stderr that names no file and
cannot be turned off: such files must be refused before they are opened. Knows bytes, and not how sound is decoded.
"""

import os
import re
from typing import BinaryIO

_HEADER_BYTES = 44  # of a wav; some programs count them as sound
_CHUNKS = 1_000  # of a wav, before its sound; more make no sense and would take long
_STREAMED = (range(0x7FFE_0000, 0x8001_0000), range(0xFFFE_0000, 0x1_0000_0000))
_PAGE_BYTES = 65_307  # of an Ogg file, at most
_PAGE = re.compile(rb"OggS\0[\0-\7]")  # its version and its flags
_TAGS = 10  # before the sound of an mp3
_XING = re.compile(
    rb"\xff[\xe0-\xff].{11,36}?(?:Xing|Info)\0\0\0(.)(.{8})", re.DOTALL
)  # after the side information of the first frame
_HAS_FRAMES, _HAS_BYTES = 1, 2  # flags: which counts follow
_XING_TOLERANCE = 1.01  # libmpg123 warns beyond it


def truncation(file: BinaryIO) -> str:
    """What is missing at the end of a recording that ends too early; an empty string for others."""
    head = file.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return _missing_in_wav(file)
    if head[:4] == b"OggS":
        return _missing_in_ogg(file)
    return _missing_in_mp3(file) if head[:3] == b"ID3" or head[:1] == b"\xff" else ""


def _missing_in_wav(file: BinaryIO) -> str:
    promised = _promised_bytes(file)
    begin, end = file.tell(), file.seek(0, os.SEEK_END)
    found = max(0, end - begin)  # a chunk before may reach beyond the end
    if promised <= found + _HEADER_BYTES or any(promised in sizes for sizes in _STREAMED):
        return ""
    return f"its header promises {promised:,} bytes of sound, but there are {found:,}"


def _promised_bytes(file: BinaryIO) -> int:
    """The size of the sound by the header, and the file at its first byte.

    Programs that write to a pipe do not know it: they write 0, or about the largest number (ffmpeg) or half of that: arecord a little
    more, GStreamer 64 kB less, sox a little less and then rounded down to whole samples.
    """
    for _ in range(_CHUNKS):
        chunk = file.read(8)
        size = int.from_bytes(chunk[4:], "little")
        if chunk[:4] == b"data":
            return size
        file.seek(size + size % 2, os.SEEK_CUR)
    return 0


def _missing_in_ogg(file: BinaryIO) -> str:
    """Only the last page is looked at. It need not be marked as the last one of its stream: broadcasts that were recorded have no such page."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _PAGE_BYTES))
    end = file.read()
    begins = [page.start() for page in _PAGE.finditer(end)]
    return "" if begins and _is_whole(end[begins[-1] :]) else "its last Ogg page is cut off"


def _is_whole(page: bytes) -> bool:
    """Whether a page has all its bytes: 27, the sizes of its segments, and the segments."""
    header = 27 + (page[26] if len(page) > 26 else 255)
    return len(page) >= header + sum(page[27:header])


def _missing_in_mp3(file: BinaryIO) -> str:
    """By the size in the header of Xing, which not all encoders write.

    It counts from the first frame, or with some encoders from the tags before it, so it is compared with the whole file.
    """
    promised, found = _xing_bytes(file), file.seek(0, os.SEEK_END)
    if promised <= found * _XING_TOLERANCE:
        return ""
    return f"its header promises {promised:,} bytes, but there are {found:,}"


def _xing_bytes(file: BinaryIO) -> int:
    """The size of an mp3 by its first frame; 0 if it does not say."""
    file.seek(0)
    for _ in range(_TAGS):
        begin = file.read(64)
        if begin[:3] != b"ID3":
            break
        size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(begin[6:10])))
        file.seek(10 + size - len(begin), os.SEEK_CUR)
    header = _XING.match(begin)
    if not header or not header[1][0] & _HAS_BYTES:
        return 0
    first = 4 if header[1][0] & _HAS_FRAMES else 0
    return int.from_bytes(header[2][first : first + 4], "big")
