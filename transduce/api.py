"""The Python API: what the command line does, for programs.

model = transduce.load("runs/en-de")
model.translate(["a sentence"])
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from transduce.translator import Attention, Translation, Translator
from transduce.translator.evaluation import Evaluation, TestSet, evaluate, merges_references


class Model:
    """A trained model: text in, text out."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def translate(self, lines: Sequence[str], *, beam: int | None = None, alpha: float | None = None) -> list[str]:
        """The best translation of each line."""
        return self.translator.translate(_lines(lines), self.translator.request(beam=beam, alpha=alpha))

    def n_best(self, lines: Sequence[str], n: int, *, alpha: float | None = None) -> list[Translation]:
        """The `n` best translations of each line, with tokens and scores."""
        beam = max(n, self.translator.config.search.beam)
        request = self.translator.request(beam=beam, alpha=alpha, n_best=n)
        return list(self.translator.stream(_lines(lines), request))

    def sample(
        self,
        lines: Sequence[str],
        n: int = 1,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
    ) -> list[Translation]:
        """`n` translations of each line drawn from the model."""
        request = self.translator.request(
            sampling=True, n_best=n, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
        )
        return list(self.translator.stream(_lines(lines), request))

    def evaluate(
        self,
        sources: Sequence[str],
        *references: Sequence[str],
        beam: int | None = None,
        alpha: float | None = None,
        metrics: Sequence[str] = (),
        merge: Literal["auto", "separate", "merged"] = "auto",
    ) -> Evaluation:
        """Scores with signatures, given one or several lists of references, line by line.

        `metrics` are names as `transduce evaluate --metrics` takes them; without them, those of the task. `merge` says
        whether equal sources on several lines are one source with several references.
        """
        merged = merges_references(self.translator.config, _lines(sources), merge)
        test = TestSet.of(sources, *map(_lines, references), merged=merged)
        named = (metrics,) if isinstance(metrics, str) else metrics
        return evaluate(self.translator, test, self.translator.request(beam=beam, alpha=alpha), named)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each given pair."""
        return [scored.log_probability for scored in self.translator.score(_lines(sources), _lines(targets))]

    def attention(self, source: str, target: str | None = None, *, picture: str | Path = "") -> Attention:
        """Every layer's and head's weights for a pair, drawn to a file if one is named."""
        attention = self.translator.attention(source, target)
        if picture:
            from transduce.explore import draw_attention

            draw_attention(attention, picture)
        return attention


def _lines(lines: Sequence[str]) -> Sequence[str]:
    if isinstance(lines, str):
        raise TypeError("give a list of lines, not one string")
    for line in lines:
        if not isinstance(line, str):
            raise TypeError(f"give a list of strings: {line!r} is none (a word and its features are 'word\tFEATURES')")
    return lines
