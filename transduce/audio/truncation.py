"""Truncated recordings: WAV and Ogg files without their end, as after an interrupted copy.

libsndfile reads them in silence, as if they were whole. Knows bytes, and not how sound is decoded.
"""

import os
import re
from typing import BinaryIO

_HEADER_BYTES = 44  # of a wav; some programs count them as sound
_CHUNKS = 1_000  # of a wav, before its sound; more make no sense and would take long
_STREAMED = (range(0x7FFE_0000, 0x8001_0000), range(0xFFFE_0000, 0x1_0000_0000))
_PAGE_BYTES = 65_307  # of an Ogg file, at most
_PAGE = re.compile(rb"OggS\0[\0-\7]")  # its version and its flags


def truncation(file: BinaryIO) -> str:
    """What is missing at the end of a recording that ends too early; an empty string for others."""
    head = file.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return _missing_in_wav(file)
    return _missing_in_ogg(file) if head[:4] == b"OggS" else ""


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
