"""The rows of Table 3, scaled to a model of any size, with the paper's figures; and rows that revert a choice of the paper.

The paper varies its base model (8 heads, d_k 64, 6 layers, d_model 512, d_ff 2048). A smaller model is varied by the same factors.
Knows settings and published figures, and trains nothing.
"""

from dataclasses import dataclass

from transduce.paper.cells import is_available


@dataclass(frozen=True)
class Shape:
    """The model that is varied."""

    d_model: int
    heads: int
    layers: int
    dropout: float

    @property
    def settings(self) -> tuple[str, ...]:
        return (
            "model.family=transformer",
            f"model.d_model={self.d_model}",
            f"model.d_ff={4 * self.d_model}",
            f"model.num_heads={self.heads}",
            *layers(self.layers),
            f"model.dropout={self.dropout}",
            "model.norm=post",
        )


@dataclass(frozen=True)
class Row:
    """A variation: what is changed, and what the paper reports for it."""

    group: str  # A to E as in the paper, or "why"
    name: str
    settings: tuple[str, ...]
    perplexity: float | None = None  # of the paper's row, on newstest2013, per token
    bleu: float | None = None

    @property
    def key(self) -> str:
        return f"{self.group}: {self.name}"


BASE = "base"
PAPER_PERPLEXITY, PAPER_BLEU = 4.92, 25.8  # of the paper's base model


def layers(number: int) -> tuple[str, ...]:
    return f"model.num_encoder_layers={number}", f"model.num_decoder_layers={number}"


def rows(base: Shape) -> list[Row]:
    """The base model, the paper's rows that change one thing, and the rows that ask why."""
    width, heads = base.d_model, base.heads
    d_k = width // heads
    fewer, more = max(1, base.layers // 3), max(base.layers + 1, base.layers * 4 // 3)
    middle = max(fewer + 1, base.layers * 2 // 3)
    return [
        Row(BASE, BASE, (), PAPER_PERPLEXITY, PAPER_BLEU),
        Row("A", "1 head", ("model.num_heads=1",), 5.29, 24.9),
        Row("A", f"{heads // 2} heads", (f"model.num_heads={heads // 2}",), 5.00, 25.5),
        Row("A", f"{2 * heads} heads", (f"model.num_heads={2 * heads}",), 4.91, 25.8),
        Row("A", f"{4 * heads} heads", (f"model.num_heads={4 * heads}",), 5.01, 25.4),
        Row("B", f"d_k {d_k // 4}", (f"model.d_k={d_k // 4}",), 5.16, 25.1),
        Row("B", f"d_k {d_k // 2}", (f"model.d_k={d_k // 2}",), 5.01, 25.4),
        Row("C", _layers(fewer), layers(fewer), 6.11, 23.7),
        Row("C", _layers(middle), layers(middle), 5.19, 25.3),
        Row("C", _layers(more), layers(more), 4.88, 25.5),
        Row("C", f"d_model {width // 2}", (f"model.d_model={width // 2}",), 5.75, 24.5),
        Row("C", f"d_model {2 * width}", (f"model.d_model={2 * width}",), 4.66, 26.0),
        Row("C", f"d_ff {2 * width}", (f"model.d_ff={2 * width}",), 5.12, 25.4),
        Row("C", f"d_ff {8 * width}", (f"model.d_ff={8 * width}",), 4.75, 26.2),
        Row("D", "no dropout", ("model.dropout=0.0",), 5.77, 24.6),
        Row("D", f"dropout {base.dropout + 0.1:.1f}", (f"model.dropout={base.dropout + 0.1:.1f}",), 4.95, 25.5),
        Row("D", "no label smoothing", ("train.label_smoothing=0.0",), 4.67, 25.3),
        Row("D", "label smoothing 0.2", ("train.label_smoothing=0.2",), 5.47, 25.7),
        Row("E", "learned positions", ("model.positions=learned",), 4.92, 25.7),
        Row("why", "no positions", ("model.positions=none",)),
        Row("why", "unscaled dot products", ("model.attention=dot",)),
        Row("why", "additive attention", ("model.attention=additive",)),
        Row("why", "self-attention to 4 neighbours", ("model.window=4",)),
        Row("why", "BatchNorm", ("model.norm_kind=batch",)),
        Row("why", "norm before each sub-layer", ("model.norm=pre",)),
    ]


def available_rows(base: Shape) -> list[Row]:
    """The rows that this version has settings for."""
    return [row for row in rows(base) if is_available((*base.settings, *row.settings))]


def _layers(number: int) -> str:
    return f"{number} layer{'s' * (number > 1)}"
