"""Which part of the training files is held out for validation where no validation data are given.

About a thousand pairs, but at most a tenth. If the manifest of recordings names speakers, whole speakers, with at most a quarter of
the recordings: on voices that occur in training, a model makes fewer errors than on new ones. Of text, the end of each file.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from zlib import crc32

from transduce.data.corpus import Corpus, speakers_of
from transduce.data.scanning import scan
from transduce.data.text_corpus import TextCorpus
from transduce.errors import DataError

PAIRS = 1_000
LINES = 10_000  # of text
LEAST = 10  # at most one pair in so many
LARGEST_SHARE = 0.25  # of the recordings: speakers who would take more are not held out
MOST_SPEAKERS = 50  # so many names fit into the settings of a run


def hold_out(corpus: Corpus, say: Callable[[str], None]) -> Corpus:
    """The same files, divided: as the settings ask for it, or as it suits the data."""
    if corpus.speakers:
        return _with_known_speakers(corpus)
    if corpus.hold_out:
        return corpus
    pairs = scan(corpus, sample_pairs=1).pairs
    if isinstance(corpus, TextCorpus):
        every = max(LEAST, pairs // LINES)
        say(f"no validation text given: holding out the last 1/{every} of the lines of each file (data.hold_out)")
        return replace(corpus, hold_out=every)
    every = max(LEAST, pairs // PAIRS)
    counts = _recordings_by_speaker(corpus)
    if speakers := choose_speakers(counts, every):
        named = ", ".join(speakers[:5]) + (", ..." if len(speakers) > 5 else "")
        say(
            f"no validation data given: holding out the recordings of {len(speakers)} of {len(counts)} speakers: {named} (data.hold_out_speakers)"
        )
        return replace(corpus, speakers=speakers)
    say(f"no validation data given: holding out about one training pair in {every} (data.hold_out)")
    if any(counts):
        say(
            "note: the same speakers are in both parts, so expect more errors on new voices than validation reports; set data.hold_out_speakers to hold out speakers"
        )
    return replace(corpus, hold_out=every)


def choose_speakers(counts: Mapping[str, int], every: int) -> tuple[str, ...]:
    """Speakers with about one recording in `every`; none if a recording has no speaker, or if there are too few speakers."""
    if not all(counts):
        return ()
    total, chosen, held_out = sum(counts.values()), list[str](), 0
    for speaker in sorted(counts, key=lambda name: crc32(name.encode())):
        if held_out * every >= total or len(chosen) == MOST_SPEAKERS:
            break
        if held_out + counts[speaker] <= LARGEST_SHARE * total:
            chosen.append(speaker)
            held_out += counts[speaker]
    return tuple(sorted(chosen))


def _recordings_by_speaker(corpus: Corpus) -> Counter[str]:
    """How many recordings each speaker has; nothing if the corpus is not one of recordings, which its first block tells."""
    counts: Counter[str] = Counter()
    for block in corpus.blocks():
        if not block.places:
            return Counter()
        counts.update(speakers_of(block))
    return counts


def _with_known_speakers(corpus: Corpus) -> Corpus:
    known = _recordings_by_speaker(replace(corpus, speakers=()))
    if unknown := [speaker for speaker in corpus.speakers if speaker not in known]:
        named = ", ".join(sorted(filter(None, known))[:10])
        there = f"they have {named}" if named else "they name no speakers"
        raise DataError(f"data.hold_out_speakers: the training data have no speaker {unknown[0]!r}: {there}")
    return corpus
