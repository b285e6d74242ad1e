"""What the recurrent families share: embeddings, the state of a search, and one description of the decoder for both ways to run it.

A family says what its decoder computes (`hidden`), with each layer run by a function that it is given: over all positions at
once in `decode`, and over one position in `step`.

Axes: R rows, W target positions, D width of a layer, O width of the output layer, V target classes.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from transduce.config import RecurrentConfig
from transduce.model.dropout import Dropout
from transduce.model.embeddings import make_embedding, tied
from transduce.model.model import Matrices, Model
from transduce.model.recurrent.attention import AttendedSource
from transduce.model.recurrent.layers import LayerState, RecurrentLayer
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Tokens

RunLayer = Callable[[int, Tensor], Tensor]  # the number of a decoder layer and its input, to its hidden states


@dataclass(frozen=True)
class RecurrentMemory:
    """The state in which each decoder layer begins, and what the decoder attends to, if it does."""

    initial: list[LayerState]
    source: AttendedSource | None = None


@dataclass
class RecurrentState:
    """Translations in progress: the states of the decoder's layers."""

    layers: list[LayerState]
    memory: RecurrentMemory

    def select(self, rows: Int[Tensor, "N"]) -> "RecurrentState":
        self.layers = [tuple(tensor.index_select(0, rows) for tensor in layer) for layer in self.layers]
        source = self.memory.source
        self.memory = RecurrentMemory([], source.select(rows) if source else None)
        return self


class RecurrentModel(Model):
    """A decoder of recurrent layers, whatever the encoder is."""

    config: RecurrentConfig
    decoder: Sequence[RecurrentLayer]

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad = config, target_size - 1
        widths = config.embedding_width, config.embedding_width, config.output_width
        tables = [
            make_embedding(size, width)
            for size, width in zip((source_size, target_size, target_size), widths, strict=True)
        ]
        self.source_embedding, self.target_embedding, self.output_embedding = tied(tables, config.tie)
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad)) if config.output_bias else None
        self.dropout = Dropout(config.dropout)

    @abstractmethod
    def hidden(self, ids: Int[Tensor, "R W"], memory: RecurrentMemory, run: RunLayer) -> Float[Tensor, "R W O"]:
        """What the next tokens are predicted from; `run` computes a layer of the decoder."""

    def decode(self, target: Tokens, memory: RecurrentMemory) -> Float[Tensor, "R W O"]:
        return self.hidden(target.ids, memory, lambda number, x: self.decoder[number](x, memory.initial[number]))

    def begin(self, memory: RecurrentMemory) -> RecurrentState:
        return RecurrentState(list(memory.initial), memory)

    def step(self, tokens: Int[Tensor, "R"], state: RecurrentState) -> Float[Tensor, "R V"]:
        def run(number: int, x: Tensor) -> Tensor:
            state.layers[number] = self.decoder[number].step(x[:, 0], state.layers[number])
            return state.layers[number][0][:, None]

        return self.project(self.hidden(tokens[:, None], state.memory, run)[:, 0])

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Without the Transformer's factor sqrt(d_model)."""
        return self.dropout(embedding(ids, table.weight, table.padding_idx))

    def matrices(self) -> Matrices:
        """The gates of a recurrent layer are stacked in one parameter."""
        stacked: Matrices = {
            weight: (weight.shape[0] // module.hidden_size) * [module.hidden_size]
            for module in self.modules()
            if isinstance(module, nn.RNNBase)
            for weight in module.parameters()
        }
        return {matrix: stacked.get(matrix, heights) for matrix, heights in super().matrices().items()}


@torch.no_grad()
def initialise(model: RecurrentModel, bound: float) -> None:
    """Every weight from the uniform distribution between -bound and bound; the embedding of `<pad>` stays zero.

    Bounds are published for one width. Times the root of that width over the model's, sums are as large in any model.
    """
    for parameter in model.parameters():
        parameter.uniform_(-bound, bound)
    for table in (model.source_embedding, model.target_embedding, model.output_embedding):
        table.weight[-1].zero_()
