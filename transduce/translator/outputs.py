"""The output of a translator: translations with their outputs, scores of given targets, attention weights."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from transduce.translator.alignment import Pairs

if TYPE_CHECKING:
    from transduce.model import AttentionMaps


@dataclass(frozen=True)
class Output:
    """One translation of a line, with its score."""

    text: str
    tokens: list[str]  # empty if the request asks for texts only
    score: float  # log-probability divided by the length penalty
    log_probability: float
    token_log_probabilities: list[float]
    alignment: Pairs = field(default_factory=list)  # (source word, output word), if the request asks for it
    length: int = 0  # in tokens, including `</s>`
    at_limit: bool = False  # whether the output reached the length limit; it is then probably incomplete
    newlines: int = 0  # line breaks that were replaced by spaces
    lost: int = 0  # placeholders of the source that it does not contain


@dataclass(frozen=True)
class Translation:
    """The outputs for one line, best first, with counts of what a reader should know about them."""

    source: str
    outputs: list[Output]
    source_tokens: int = 0
    cut: int = 0  # source tokens beyond the longest source; they were not translated
    unknown: int = 0  # characters of the source that are not in the vocabulary; symbols, if it has symbols
    unseen_features: tuple[str, ...] = ()  # features of the source that did not occur in training; each is unknown
    newlines: int = 0  # line breaks in the outputs that were replaced by spaces
    outputs_at_limit: int = 0  # outputs that reached the length limit and are probably incomplete
    lost: int = 0  # placeholders of the source that the best output does not contain

    def of_outputs(self, outputs: list[Output]) -> "Translation":
        """The same line with these outputs, best first, and what is to be known about them."""
        return replace(
            self,
            outputs=outputs,
            newlines=sum(one.newlines for one in outputs),
            outputs_at_limit=sum(one.at_limit for one in outputs),
            lost=outputs[0].lost if outputs else 0,
        )

    @property
    def text(self) -> str:
        """The best output, or an empty string if there is none."""
        return self.outputs[0].text if self.outputs else ""


@dataclass(frozen=True)
class Scored:
    """The log-probabilities of the tokens of a given target."""

    token_log_probabilities: list[float]  # `</s>` last
    cut: int = 0  # tokens of the longer side beyond the longest sequence the model takes

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole target."""
        return sum(self.token_log_probabilities)


@dataclass(frozen=True)
class Attention:
    """The attention weights of every head in every layer for one sentence pair, a recording and its transcript, or a text."""

    source: list[str]  # its tokens; of a recording, the time of each position in seconds
    target: list[str]  # the decoder's input: `<pad>`, then the output
    maps: "AttentionMaps"
    text: str = ""  # the target as text
    following: str = "</s>"  # the token after the target; for a language model, the most probable one
    in_time: bool = False  # whether the source is a recording

    @property
    def written(self) -> list[str]:
        """What the decoder predicts at each of its positions: the output, then what follows it."""
        return [*self.target[1:], self.following]
