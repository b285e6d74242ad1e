"""What the explorer's routes return: the documentation of the views, which `explore/views.py` computes as dictionaries."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from transduce.server.api import TokenAnswer, Weights


class View(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SourceView(View):
    """The source sentence."""

    text: str = Field(description="The sentence as it was sent.")
    tokens: list[str] = Field(description="Its tokens, ending in `</s>`.")


class ConsideredToken(TokenAnswer):
    """A token of an output and its most probable alternatives."""

    alternatives: list[TokenAnswer] = Field(description="Other tokens at this position, most probable first.")


class ConsideredOutput(View):
    """An output of beam search."""

    text: str = Field(description="The translation.")
    score: float = Field(description="The log-probability divided by the length penalty. Outputs are ranked by it.")
    log_probability: float = Field(description="The natural logarithm of the probability of the whole output.")
    tokens: list[ConsideredToken] = Field(description="The tokens, ending in `</s>`.")


class TranslateView(View):
    """The outputs for a sentence and the alternatives to each of their tokens."""

    source: SourceView
    outputs: list[ConsideredOutput] = Field(description="The outputs, best first.")
    cut: int = Field(description="How many source tokens were cut off because the sentence is too long for the model.")
    unknown: int = Field(
        description="How many characters of the source are not in the vocabulary; symbols, if the model reads symbols separated by spaces."
    )


class TargetView(View):
    """The target sentence."""

    text: str = Field(description="The sentence.")
    tokens: list[str] = Field(description="The tokens that the decoder predicts, ending in `</s>`.")
    decoder_input_tokens: list[str] = Field(
        description="The decoder's input: the start token, then every target token except the last."
    )
    log_probabilities: list[float] = Field(description="The log-probability of each target token.")


class HeadStatistics(View):
    """Statistics of a head on this sentence. Shares are of its total attention, from 0 to 1."""

    entropy: float = Field(description="The mean entropy of the attention weights, in bits.")
    distance: float = Field(description="The mean distance between query and key, in tokens.")
    previous: float = Field(description="The share on the key one position before the query.")
    same: float = Field(description="The share on the key at the position of the query.")
    next: float = Field(description="The share on the key one position after the query.")
    punctuation: float = Field(description="The share on punctuation.")
    marks: float = Field(description="The share on the start token and `</s>`.")


class AttentionWeights(View):
    """Attention weights as [layer][head][query][key]."""

    encoder: Weights = Field(description="Encoder self-attention.")
    decoder: Weights = Field(description="Decoder self-attention.")
    cross: Weights = Field(description="Cross-attention.")


class AttentionStatistics(View):
    """Statistics of every head as [layer][head]."""

    encoder: list[list[HeadStatistics]] = Field(description="Encoder self-attention.")
    decoder: list[list[HeadStatistics]] = Field(description="Decoder self-attention.")
    cross: list[list[HeadStatistics]] = Field(description="Cross-attention.")


class AttentionMasks(View):
    """Masks as [query][key]; 1 means that the query may attend to the key."""

    encoder: list[list[int]] = Field(description="Encoder self-attention.")
    decoder: list[list[int]] = Field(description="Decoder self-attention.")
    cross: list[list[int]] = Field(description="Cross-attention.")


class PositionalEncoding(View):
    """The positional encoding of each token as [position][feature]."""

    kind: str = Field(description="The kind of encoding, such as `sinusoidal`, `learned` or `rotary`.")
    source: list[list[float]] = Field(description="The encoding of the source positions.")
    target: list[list[float]] = Field(description="The encoding of the target positions.")


class AttentionView(View):
    """Everything the page shows about the attention of a sentence pair."""

    source: SourceView
    target: TargetView
    maps: AttentionWeights
    statistics: AttentionStatistics
    positions: PositionalEncoding
    masks: AttentionMasks
    off: list[tuple[str, int, int]] = Field(description="The heads that are switched off: [part, layer, head].")
    can_switch_off: bool = Field(description="Whether heads of this model can be switched off.")


class Candidate(View):
    """A candidate that beam search ranked."""

    id: str = Field(description="The candidate's name: step.rank.")
    parent: str = Field(description="The candidate that it extends, or `start`.")
    token: str = Field(description="The token that it adds.")
    token_id: int = Field(description="The id of this token in the vocabulary.")
    log_probability: float = Field(description="The log-probability of this token, given the tokens before it.")
    total: float = Field(description="The log-probability of the whole candidate.")
    score: float = Field(description="The total divided by the length penalty.")
    state: Literal["kept", "ended", "dropped"] = Field(
        description="`kept`: the search extends it; `ended`: it is a finished translation; `dropped`: neither."
    )


class SearchStep(View):
    """A step of beam search."""

    candidates: list[Candidate] = Field(description="The candidates in the order of their rank.")
    attainable: float | None = Field(description="The best score that an unfinished candidate can still reach.")
    worst_kept: float | None = Field(description="The worst score among the finished translations in the beam.")


class TreeOutput(View):
    """An output of beam search."""

    text: str = Field(description="The translation.")
    score: float = Field(description="The log-probability divided by the length penalty.")
    path: list[str] = Field(description="The ids of its candidates, from the first token to `</s>`.")


class TreeView(View):
    """Beam search on a sentence, step by step."""

    source: SourceView
    beam: int = Field(description="The beam size.")
    steps: list[SearchStep] = Field(description="The steps of the search.")
    outputs: list[TreeOutput] = Field(description="The outputs, best first.")


class TrainingStep(View):
    """A logged training step. A value is null if it was not logged or is not a finite number."""

    step: float | None = Field(description="The number of the step.")
    epoch: float | None = Field(description="The epoch.")
    learning_rate: float | None = Field(description="The learning rate.")
    gradient_norm: float | None = Field(description="The norm of the gradient.")
    tokens_per_second: float | None = Field(description="The training speed.")
    loss: float | None = Field(description="The cross-entropy per target token, without label smoothing if known.")


class Sample(BaseModel):
    """A validation sentence that the model translated."""

    source: str = Field(description="The source sentence.")
    output: str = Field(description="The translation of the model.")
    reference: str = Field(description="The reference translation.")


class Validation(View):
    """A validation during training."""

    step: float | None = Field(description="The number of the training step.")
    loss: float | None = Field(description="The cross-entropy per target token.")
    perplexity: float | None = Field(description="The perplexity per target token.")
    scores: dict[str, float | None] = Field(description="The scores by metric, such as BLEU and chrF.")
    samples: list[Sample] = Field(description="Some sentences with their translations.")


class TrainingView(View):
    """The training log of a run."""

    name: str = Field(description="The name of the run folder.")
    running: bool = Field(description="Whether the run is training now.")
    steps: list[TrainingStep] = Field(description="The logged steps, thinned out to at most 1,500.")
    validations: list[Validation] = Field(description="The validations so far.")
    averaged: list[Validation] = Field(description="The validation of the averaged weights, if there is one.")
    card: str = Field(description="The model card in Markdown; empty while the run is training.")
