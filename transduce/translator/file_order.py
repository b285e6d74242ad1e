"""Signs that the files of a test set were given in the wrong order, or do not belong together. Knows texts and their scores.

Outputs are in the language of the references. If they look like the sources instead, the model has read the wrong side. A low score
must agree, because the two sides of a test set can be in one language, as in corrections of grammar.
"""

from collections.abc import Mapping, Sequence

from transduce.data.trigrams import profile, resembles

LOW = {"BLEU": 5.0, "chrF2": 25.0}  # scores below these are unusual for a trained model
FEWEST_LINES = 10
MOST = 0.8  # share of the lines
UNRELATED_BLEU = 2.0  # below this, outputs and references share hardly more than chance
TRAINED_BLEU = 10.0  # of the validation data, above which a score below `UNRELATED_BLEU` is a surprise


def order_warning(
    sources: Sequence[str], references: Sequence[Sequence[str]], outputs: Sequence[str], scores: Mapping[str, float]
) -> str:
    """One line about files that look swapped, or about references that are the sources; otherwise nothing."""
    if len(sources) < FEWEST_LINES:
        return ""
    copies = sum(source in accepted for source, accepted in zip(sources, references, strict=True))
    if copies > MOST * len(sources):
        return (
            f"warning: {copies:,} of {len(sources):,} references are equal to their sources: is the reference file a copy of "
            "the source file?"
        )
    low = next((f"{name} {value:.2f}" for name, value in scores.items() if value < LOW.get(name, 0.0)), "")
    if not low or not _look_like_sources(sources, references, outputs):
        return ""
    return (
        f"warning: the outputs look more like the sources than like the references ({low}): did you give the source file "
        "first and the reference file second?"
    )


def unrelated_warning(lines: int, scores: Mapping[str, float], metric: str, validation: float) -> str:
    """One line about references that are probably of other sources; `validation` is the score of the run's validation data."""
    test = scores.get("BLEU", UNRELATED_BLEU)
    if lines < FEWEST_LINES or metric != "BLEU" or test >= UNRELATED_BLEU or validation <= TRAINED_BLEU:
        return ""
    return (
        f"warning: BLEU {test:.2f} is far below that of the run's validation data ({validation:.2f}): are these references of "
        "these sources?"
    )


def _look_like_sources(sources: Sequence[str], references: Sequence[Sequence[str]], outputs: Sequence[str]) -> bool:
    of_sources, of_references = profile(sources), profile([text for accepted in references for text in accepted])
    like_sources = sum(resembles(output, of_sources, of_references) for output in outputs)
    return like_sources > MOST * len(outputs)
