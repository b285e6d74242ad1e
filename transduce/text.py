"""Vocabularies: strings to ids and back, with sentencepiece models of kind bpe, unigram, char or word.

Ids are in Marian's order, so that exports need not renumber them: `</s>` 0, `<unk>` 1, the pieces, and `<pad>` last.
`<pad>` is not a piece of the sentencepiece model, so no text can produce it.
Differs from the paper: byte-pair encoding is done by sentencepiece on raw text; the paper used subword-nmt on tokenised text.
Knows no files but its own, no corpora and no tensors.
"""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal, Self

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from transduce.errors import DamagedFile, DataError, SettingError
from transduce.files import read_plain

Units = Literal["bpe", "unigram", "char", "word"]

EOS = 0
UNKNOWN = 1
WORD_START = "▁"  # sentencepiece: a piece that begins with it begins a word

_RESERVED = ("</s>", "<unk>", "<pad>")
_SUBWORDS = ("bpe", "unigram")
_LONGEST_LINE = 4_000  # characters used for training: with more, unigram's suffix array takes minutes
_LONGEST_WORD = 256  # characters: sentencepiece aborts the process if a BPE word has 65,536
_OVERLONG_WORD = re.compile(rf"(\S{{{_LONGEST_WORD}}})(?=\S)")
_SEPARATORS = str.maketrans("\0\t\n\r", "    ")  # characters that end a field or a line in the trainer's input format
# Fractions of the text whose characters become pieces; the rarest characters are better spelt in bytes. If the characters do not
# fit into the vocabulary, as in a small one for Chinese, the next lower coverage is tried.
COVERAGES = (0.9999, 0.9995, 0.999, 0.995, 0.99, 0.98)
_SEEDING = Lock()


WORTH_THREADS = 64  # lines: for fewer, starting threads takes longer than the work
WORTH_SPELLING = 64  # texts: for fewer, building the table of spellings takes longer than it saves
WORTH_A_BATCH = 8  # lines: sentencepiece starts a thread for every batch, which takes longer than a few short lines


@dataclass(frozen=True)
class Decoded:
    """Texts of one line each; `newlines` counts the line breaks (byte fallback can spell one) replaced by spaces."""

    texts: list[str]
    newlines: list[int]


class Vocabulary:
    """One sentencepiece model, and `<pad>` after its last piece."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = _processor(model)
        self.size: int = self._processor.get_piece_size() + 1

    @property
    def pad(self) -> int:
        return self.size - 1

    @property
    def digest(self) -> str:
        """A hash, which weight files store to identify the vocabulary they were trained with."""
        return hashlib.sha256(self.model).hexdigest()

    @classmethod
    def load(cls, path: str | Path, digest: str = "") -> Self:
        """Load a vocabulary; if `digest` is given, a file with another one is refused before sentencepiece parses it."""
        try:
            model = read_plain(path)
            if digest and hashlib.sha256(model).hexdigest() != digest:
                raise DamagedFile("modified, incomplete or not the vocabulary that the model was trained with")
            return cls(model)
        except DamagedFile as error:
            raise DamagedFile(f"{path}: {error}") from None
        except OSError as error:
            raise DamagedFile(f"{path}: the vocabulary cannot be read ({error.strerror})") from None

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.model)

    def encode(self, lines: Sequence[str], every_core: bool = False) -> list[list[int]]:
        """The ids of each line, `</s>` last.

        Uses one thread unless `every_core` is set. The work releases Python's lock, so callers can run several in parallel.
        """
        encode = self._processor.encode
        try:
            if len(lines) < WORTH_A_BATCH:
                return [encode(line, add_eos=True) for line in lines]
            threads = -1 if every_core and len(lines) >= WORTH_THREADS else 1
            ids: list[list[int]] = encode(list(lines), add_eos=True, num_threads=threads)
        except (TypeError, UnicodeError, RuntimeError):
            raise _not_unicode(lines) from None
        return ids

    def encode_sampled(self, lines: Sequence[str], rate: float, seed: int) -> list[list[int]]:
        """The ids of one random segmentation of each line, deterministic given the lines, rate and seed.

        `rate` is the dropout of BPE (Provilkov et al. 2020) or the alpha of unigram (Kudo 2018; smaller is more random).
        Characters and words have only one segmentation.
        """
        if rate == 0 or not self._samples:
            return self.encode(lines)
        # sentencepiece reads its seed, a global variable, when a thread samples for the first time.
        with ThreadPoolExecutor(max_workers=1) as fresh_thread:
            with _SEEDING:
                sentencepiece.set_random_generator_seed(seed % 2**32)
                fresh_thread.submit(self._sample, [self._longest_learned], rate).result()
            return fresh_thread.submit(self._sample, lines, rate).result()

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence, always a single line."""
        return self.decode_counted(ids).texts

    def decode_counted(self, ids: Sequence[Sequence[int]]) -> Decoded:
        """The texts, and how many line breaks were replaced by spaces."""
        texts = self._spelling.texts(ids) if len(ids) >= WORTH_SPELLING else list(map(self._decode, ids))
        newlines = [text.count("\n") for text in texts]
        return Decoded([text.replace("\n", " ") for text in texts] if any(newlines) else texts, newlines)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id, as attention maps and `--json` show it."""
        return list(map(self._names.__getitem__, ids))

    def unknown_share(self, lines: Sequence[str]) -> float:
        """The share of the characters of these lines that the vocabulary does not have: `<unk>`, or bytes in its place."""
        unknown = known = 0
        for line, ids in zip(lines, self.encode(lines), strict=True):
            for piece, one in zip(self.written(line)[:-1], ids[:-1], strict=True):
                if self._processor.is_byte(one):
                    unknown += self._begins_a_character(one)
                elif one == UNKNOWN:
                    unknown += len(piece.replace(WORD_START, ""))
                else:
                    known += len(piece.replace(WORD_START, ""))
        return unknown / (unknown + known) if unknown else 0.0

    def _begins_a_character(self, byte: int) -> bool:
        """Whether the byte that this id stands for, `<0xE2>`, is the first of a character in UTF-8."""
        return int(self._names[byte][3:-1], 16) & 0xC0 != 0x80

    def written(self, line: str) -> list[str]:
        """The pieces of a line as spelt in it, `</s>` last; an unknown piece is shown as its text, not as `<unk>`."""
        return [*self._processor.encode(line, out_type=str), "</s>"]

    def unknown_texts(self, line: str) -> list[str]:
        """What each `<unk>` of a line stands for: one or more characters, without the spaces between them."""
        ids = self.encode([line])[0]
        return [
            piece.replace(WORD_START, "") for piece, one in zip(self.written(line), ids, strict=True) if one == UNKNOWN
        ]

    @cached_property
    def has_only_symbols(self) -> bool:
        """Whether tokens are separated by spaces: then no piece is a letter that continues a word."""
        return not any(len(name) == 1 and name != WORD_START for name in self._names)

    @cached_property
    def language_tags(self) -> tuple[str, ...]:
        """The pieces that ask for a target language, such as `>>de<<`."""
        return tuple(name for name in self._names if name.startswith(">>") and name.endswith("<<") and len(name) > 4)

    @cached_property
    def feature_symbols(self) -> tuple[str, ...]:
        """The pieces that are features of words, such as `;PST`, sorted."""
        return tuple(sorted(name for name in self._names if name.startswith(";") and len(name) > 1))

    def _decode(self, ids: Sequence[int]) -> str:
        marks = {EOS, self.pad}
        text: str = self._processor.decode([int(i) for i in ids if i not in marks])
        return text

    @cached_property
    def _spelling(self) -> "Spelling":
        return Spelling(self)

    @cached_property
    def _names(self) -> list[str]:
        return [*map(self._processor.id_to_piece, range(self.pad)), "<pad>"]

    def _sample(self, lines: Sequence[str], rate: float) -> list[list[int]]:
        encode = self._processor.encode
        return [encode(text, add_eos=True, enable_sampling=True, nbest_size=-1, alpha=rate) for text in lines]

    @cached_property
    def _samples(self) -> bool:
        try:
            self._sample(["a"], 0.5)
        except RuntimeError:
            return False
        return True

    @cached_property
    def _longest_learned(self) -> str:
        """A text whose segmentation uses a random number, if any text does; bytes and symbols (score 0) do not."""
        learned = (i for i in range(2, self.pad) if self._processor.get_score(i) < 0)
        return max(map(self._processor.id_to_piece, learned), key=len, default="")


class Spelling:
    """Decodes many texts at once from a table of what each id spells, which is faster than calling sentencepiece.

    Each row of the table is padded with zero bytes, which are removed from the result, and a line break ends each text.
    """

    WIDEST: ClassVar = 48  # bytes: a wider table for a few long pieces would slow down all others

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.decode_one, processor, self.count = vocabulary._decode, vocabulary._processor, vocabulary.size
        ids = range(vocabulary.pad)
        alone = processor.decode([[i] for i in ids])
        begin = next((i for i in ids if alone[i] and not processor.is_byte(i)), UNKNOWN)
        after = processor.decode([[begin, i] for i in ids])
        # None: what a byte spells depends on its neighbours, and after an empty first piece the next one may lose its space.
        first: list[str | None] = [*(text or None for text in alone), None]
        later: list[str | None] = [*(text[len(alone[begin]) :] for text in after), ""]
        for byte in filter(processor.is_byte, ids):
            first[byte] = later[byte] = None
        spelt = [text.encode() if text is not None and self._fits(text) else None for text in (*later, *first)]
        self.table = np.array([*(text or b"" for text in spelt), b"\n"])
        # Texts with these ids are decoded by sentencepiece.
        self.irregular = np.array([*(text is None for text in spelt), False])

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row; in the table, what an id spells at the start of a text is `count` rows further down."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ends = np.cumsum(lengths)
        ids = _joined(rows)
        ids[(ends - lengths)[lengths > 0]] += self.count
        ids = np.insert(ids, ends, len(self.table) - 1)
        texts = self.table.take(ids).tobytes().translate(None, b"\0").decode().split("\n")[:-1]
        for row in set(np.repeat(np.arange(len(rows)), lengths + 1)[self.irregular.take(ids)].tolist()):
            texts[row] = self.decode_one(rows[row])
        return texts

    def _fits(self, text: str) -> bool:
        return len(text.encode()) <= self.WIDEST and not {"\0", "\n"} & set(text)


def _joined(rows: Sequence[Any]) -> NDArray[np.int64]:
    if isinstance(rows[0], np.ndarray):
        return np.concatenate(rows, dtype=np.int64)
    return np.fromiter(chain.from_iterable(rows), np.int64)


@dataclass(frozen=True)
class Vocabularies:
    """The source and target vocabularies; a joint vocabulary is used as both."""

    source: Vocabulary
    target: Vocabulary


def train_vocabulary(
    lines: Iterable[str],
    *,
    units: Units,
    size: int,
    unknown: Literal["bytes", "unk"] = "bytes",
    normalization: str = "nmt_nfkc",
    symbols: Sequence[str] = (),
) -> Vocabulary:
    """Learn a vocabulary of at most `size` ids from these lines; `symbols` become pieces that are never split.

    Character and word vocabularies have no byte fallback: anything else becomes `<unk>`.
    """
    _check_symbols(symbols)
    by_bytes = unknown == "bytes" and units in _SUBWORDS
    # Each distinct line once, with its count: unigram's suffix array takes minutes on lines that repeat.
    counted = Counter(map(_bounded, lines))
    *first, last = COVERAGES if by_bytes else (1.0,)
    for coverage in first:
        with suppress(_TooManyCharacters):
            return _learn(counted, units, size, coverage, normalization, symbols, by_bytes)
    return _learn(counted, units, size, last, normalization, symbols, by_bytes)


def _learn(
    counted: Counter[str],
    units: Units,
    size: int,
    coverage: float,
    normalization: str,
    symbols: Sequence[str],
    by_bytes: bool,
) -> Vocabulary:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{text}\t{count}" for text, count in counted.items()),
            input_format="tsv",
            model_writer=model,
            model_type=units,
            vocab_size=size - 1,  # without `<pad>`
            hard_vocab_limit=False,
            byte_fallback=by_bytes,
            character_coverage=coverage,
            normalization_rule_name=normalization,
            remove_extra_whitespaces=normalization != "identity",
            add_dummy_prefix=units != "char",
            user_defined_symbols=list(dict.fromkeys(symbols)),
            max_sentence_length=4 * _LONGEST_LINE,  # bytes; longer lines would be skipped silently
            input_sentence_size=0,
            train_extremely_large_corpus=False,
            num_threads=2,
            minloglevel=3,
            bos_id=-1,
            pad_id=-1,
            eos_id=EOS,
            unk_id=UNKNOWN,
        )
    except RuntimeError as error:
        raise _training_error(str(error), size) from None
    return Vocabulary(model.getvalue())


class _TooManyCharacters(SettingError):
    """The vocabulary has fewer ids than the text has characters."""


def _bounded(line: str) -> str:
    text = line[:_LONGEST_LINE].translate(_SEPARATORS)
    return _OVERLONG_WORD.sub(r"\1 ", text)[:_LONGEST_LINE] if len(text) > _LONGEST_WORD else text


def _training_error(message: str, size: int) -> DataError | SettingError:
    if required := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return _TooManyCharacters(
            f"data.vocabulary_size = {size}: the single characters of the text already need {int(required[1]) + 1} ids: "
            f"set data.vocabulary_size={int(required[1]) + 1} or more"
        )
    if "sentences_.empty()" in message:
        return DataError("no text to learn a vocabulary from: every line is empty")
    return DataError(f"no vocabulary can be learned from this text: {' '.join(message.split())}")


def _check_symbols(symbols: Sequence[str]) -> None:
    for symbol in symbols:
        if symbol in _RESERVED or symbol.split() != [symbol] or WORD_START in symbol:
            raise SettingError(
                f"data.symbols: {symbol!r} cannot be a symbol: it is reserved, empty or contains a space"
            )


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError:
        raise DamagedFile("not a sentencepiece model") from None
    names = [processor.id_to_piece(i) for i in range(min(2, processor.get_piece_size()))]
    if names != ["</s>", "<unk>"] or not (processor.is_control(EOS) and processor.is_unknown(UNKNOWN)):
        raise DamagedFile(f"the sentencepiece model starts with the ids {', '.join(names)}, but needs </s>, <unk>")
    return processor


def _not_unicode(lines: Sequence[str]) -> DataError:
    for number, line in enumerate(lines, 1):
        try:
            line.encode()
        except UnicodeError:
            return DataError(f"line {number} of the text is not valid Unicode: it contains half a surrogate pair")
    return DataError("sentencepiece cannot encode this text")
