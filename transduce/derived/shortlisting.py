"""Lexical shortlists: the output tokens that a sentence is likely to need, learned from attention.

Half the work of a small model's decoder is the product with the output embeddings. A shortlist has, for each source token,
the target tokens that attended to it in training pairs, and a list of tokens that are common everywhere. CTranslate2 then
computes only the tokens listed for a batch, which is faster and slightly less accurate (docs/log.md).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from transduce.data import Corpus, found_setting, groups_from_setting
from transduce.errors import DataError
from transduce.text import EOS
from transduce.translator import LoadOptions, Translator, open_folder, write_shortlist

PAIRS = 20_000  # to learn the shortlist from
PAIRS_AT_ONCE = 1_024
LISTED = 100  # target tokens for each source token, at most
COMMON = 100  # target tokens that are listed for every sentence

Say = Callable[[str], None]
Pair = tuple[str, str]


def make_shortlist(
    run: str | Path, pairs: Sequence[tuple[str, ...]] = (), *, options: LoadOptions | None = None, say: Say = print
) -> Path:
    """Write `RUN/shortlist.txt`, learned from these pairs or, without any, from the training data of the run."""
    opened = open_folder(run)
    _ = opened.config.transformer  # other families cannot use a shortlist
    data = opened.config.data
    groups = tuple(pairs) or groups_from_setting(found_setting(data.train, Path(run)))
    if not groups:
        raise DataError(f"{run}: the run does not record its training data; give pairs with --train SOURCE TARGET")
    translator = Translator.load(run, options or LoadOptions(engine="torch"))
    tags = () if pairs else data.tags  # pairs that are given have their tags in the text
    corpus = replace(Corpus.of(groups, data), tags=tags, placeholders=data.placeholders)
    read = islice(_pairs(corpus), PAIRS)
    seen, count = _count_alignments(translator, read, say)
    if not count:
        raise DataError(
            "the training data has no pair to learn a shortlist from: give pairs with --train SOURCE TARGET"
        )
    write_shortlist(opened.folder, _as_text(translator, seen))
    return opened.folder.shortlist


def _pairs(corpus: Corpus) -> Iterator[Pair]:
    for block in corpus.blocks():
        yield from (pair for pair in zip(block.source, block.target, strict=True) if all(map(str.strip, pair)))


def _count_alignments(translator: Translator, pairs: Iterator[Pair], say: Say) -> tuple[dict[int, Counter[int]], int]:
    """For each source token, how often each target token attended most to it; and the number of pairs."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    count, both = 0, translator.vocabularies
    while block := list(islice(pairs, PAIRS_AT_ONCE)):
        sources, targets = both.source.encode([s for s, _ in block]), both.target.encode([t for _, t in block])
        fitting = [n for n, ids in enumerate(sources) if max(len(ids), len(targets[n])) <= translator.longest_source]
        sources, targets = [sources[n] for n in fitting], [targets[n] for n in fitting]
        for source, target, aligned in zip(
            sources, targets, translator.engines.torch.align(sources, targets), strict=True
        ):
            for at, token in zip(aligned, target, strict=False):
                seen[source[at]][token] += 1
        count += len(fitting)
        say(f"aligned {count:,} pairs")
    return seen, count


def _as_text(translator: Translator, seen: dict[int, Counter[int]]) -> str:
    """In CTranslate2's format: a source token, a tab, its target tokens; the first line is for every sentence."""
    both, total = translator.vocabularies, Counter[int]()
    for looked in seen.values():
        total.update(looked)
    common = [EOS, *(token for token, _ in total.most_common(COMMON))]
    lines = ["\t" + " ".join(both.target.pieces(common))]
    for source in sorted(seen):
        listed = [token for token, _ in seen[source].most_common(LISTED)]
        lines.append(f"{both.source.pieces([source])[0]}\t{' '.join(both.target.pieces(listed))}")
    return "\n".join(lines) + "\n"
