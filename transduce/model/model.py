"""The interface of a model, whatever its family.

Training, search, translation and exchange call only these methods. A family (`transduce/model/families.py`) is
a subclass with its own settings: the Transformer, a language model without an encoder, a speech model whose sources are
frames of sound, and others.

Axes: R rows, W target positions, D width of the hidden states, V target classes (all ids but `<pad>`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.functional import linear

from transduce.config import ModelConfig
from transduce.errors import SettingError
from transduce.model.losses import Loss, OutputLayer, projected_loss, projected_r_drop
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens

Matrices = dict[Tensor, list[int]]  # parameters, and the heights of the matrices that are stacked in each


@runtime_checkable
class State(Protocol):
    """A search in progress, one hypothesis per row."""

    def select(self, rows: Int[Tensor, "N"]) -> "State":
        """Keep these rows in this order; rows may be repeated."""
        ...


@runtime_checkable
class Attention(Protocol):
    """A module with attention. Its tap, if it has one, receives the weights of each pass: [R, heads, queries, keys]."""

    tap: Callable[[Tensor], None] | None


class Model(nn.Module, ABC):
    """A sequence-to-sequence model that predicts one target token after the other.

    `encode` returns a memory and `begin` a state; only the family knows what is in them.
    """

    page_width: int | None = None
    """How many positions a packed row has in training on a GPU; None if the family needs one pair per row."""

    captured_in_rows: bool = False
    """Whether a GPU can capture its training steps with one pair per row: nothing in them may wait for the device."""

    config: ModelConfig
    output_embedding: nn.Embedding
    output_bias: nn.Parameter | None
    target_pad: int

    @abstractmethod
    def encode(self, source: Source) -> Any:
        """Read the source. A model without an encoder gets empty sources and may return anything."""

    @abstractmethod
    def decode(self, target: Tokens, memory: Any) -> Float[Tensor, "R W D"]:
        """The hidden states from which each next token is predicted, for all target positions at once."""

    @abstractmethod
    def begin(self, memory: Any) -> State:
        """The state before the first target token."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "R"], state: Any) -> Float[Tensor, "R V"]:
        """Logits of the next token of each row, given its newest one; updates the state."""

    def project(self, hidden: Float[Tensor, "*positions D"]) -> Float[Tensor, "*positions V"]:
        """Logits over every target id except `<pad>`, the last one.

        Differs from the paper, where every id is a class: without `<pad>`, the model need not learn never to predict it.
        """
        return linear(hidden, *self.classes)

    @property
    def never(self) -> tuple[int, ...]:
        """Columns of the result of `step` that a search must not choose."""
        return ()

    @property
    def classes(self) -> OutputLayer:
        """The matrix and the bias of `project`."""
        return self.output_embedding.weight[: self.target_pad], self.output_bias

    def loss(self, source: Source, target: Tokens, labels: Int[Tensor, "R W"], smoothing: float) -> Loss:
        """Label-smoothed cross-entropy of a batch, summed over its target tokens."""
        hidden = self.decode(target, self.encode(source))
        return projected_loss(hidden, self.output_embedding.weight, self.output_bias, labels, smoothing)

    def r_drop_loss(
        self, source: Source, target: Tokens, labels: Int[Tensor, "R W"], smoothing: float, weight: float
    ) -> Loss:
        """R-Drop (Liang et al. 2021): two passes with different dropout, and the divergence between them.

        Both passes run as one batch with twice the rows. Differs from the paper, which has one pass.
        """
        hidden = self.decode(target.doubled(), self.encode(source.doubled()))
        table, bias = self.output_embedding.weight, self.output_bias
        return projected_r_drop(hidden, table, bias, labels, smoothing, weight)

    def attentions(self) -> Mapping[str, Sequence[Attention]]:
        """The modules with attention, by use: encoder, decoder and cross. Each use may have none."""
        raise SettingError(f"model.family = {self.config.family}: this model has no attention")

    @contextmanager
    def counting(self) -> Iterator[dict[str, list[int]]]:
        """Count what is worth a line in the log inside the context, such as the tokens of each expert; complete at its end."""
        yield {}

    def matrices(self) -> Matrices:
        """The matrices inside the layers, which the Muon optimizer orthogonalises, with the heights of stacked ones."""
        return {
            parameter: [parameter.shape[0]]
            for name, parameter in self.named_parameters()
            if parameter.dim() == 2 and "embedding" not in name and "positions" not in name
        }


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that a checkpoint holds, by name: each parameter once, and persistent buffers such as running statistics."""
    skipped = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    buffers = {name: buffer for name, buffer in model.named_buffers() if name not in skipped}
    return {**dict(model.named_parameters()), **buffers}


def has_running_statistics(model: nn.Module) -> bool:
    """Whether the forward pass changes what a checkpoint holds, as BatchNorm does.

    Such a model cannot be trained by copies of itself: each copy would have statistics of its own.
    """
    return len(stored_tensors(model)) > len(list(model.named_parameters()))
