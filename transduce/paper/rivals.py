"""The systems of Table 2: the Transformer and other architectures, as settings, with the paper's figures.

A system that this version does not have is left out of the tables. Knows settings and published figures, and trains nothing.
"""

from dataclasses import dataclass
from typing import Any

from transduce.config.models import FAMILIES
from transduce.paper.cells import is_available

CLIP_NORM = 1.0  # where a family asks for no other


@dataclass(frozen=True)
class System:
    """A row of Table 2."""

    name: str
    family: str
    about: str
    settings: tuple[str, ...] = ()  # besides the family and its shape

    def shaped(self, width: int, layers: int, joint: bool = True) -> tuple[str, ...]:
        """The settings of a model of this size; each family says how its shape follows from that of a Transformer."""
        fitted = self._fitted(width, layers, joint)
        model = [f"model.{name}={_written(value)}" for name, value in fitted["model"].items() if name != "dropout"]
        return (
            f"model.family={self.family}",
            *model,
            f"train.clip_norm={fitted['train']['clip_norm']}",
            *self.settings,
        )

    def learning_rate(self, transformers: float) -> float:
        """The rate at which this family trains, where a Transformer trains at the given one."""
        return float(f"{transformers * self._fitted(64, 2, True)['train']['learning_rate']:.2g}")

    def _fitted(self, width: int, layers: int, joint: bool) -> dict[str, dict[str, Any]]:
        shape = {
            "d_model": width,
            "d_ff": 4 * width,
            "num_heads": max(4, width // 64),
            "num_encoder_layers": layers,
            "num_decoder_layers": layers,
            "dropout": 0.1,
            "norm": "pre",
            "tie": "all" if joint else "target",
        }
        return FAMILIES[self.family].fitted({"model": shape, "train": {"learning_rate": 1.0, "clip_norm": CLIP_NORM}})


def _written(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


BASELINE = "transformer"
SYSTEMS = [
    System("ff", "ff", "averaged embeddings"),
    System("seq2seq", "seq2seq", "LSTM encoder-decoder without attention (Sutskever et al. 2014)"),
    System("rnn", "rnn", "GRU with additive attention (Bahdanau et al. 2015)"),
    System("gnmt", "gnmt", "stacked LSTMs with attention (Wu et al. 2016)"),
    System("bytenet", "bytenet", "dilated convolutions (Kalchbrenner et al. 2016)"),
    System("convs2s", "convs2s", "gated convolutions with attention (Gehring et al. 2017)"),
    System("moe", "moe", "sparsely gated experts (Shazeer et al. 2017)"),
    System("prefix", "prefix", "one decoder that reads source and target (Liu et al. 2018)"),
    System("window", "transformer", "the Transformer with self-attention to 8 neighbours", ("model.window=8",)),
    System(BASELINE, "transformer", "Vaswani et al. 2017"),
]


def available_systems() -> list[System]:
    return [system for system in SYSTEMS if system.family in FAMILIES and is_available(system.settings)]


@dataclass(frozen=True)
class Published:
    """A row of the paper's Table 2: newstest2014, and training cost in FLOPs; None where the paper has none."""

    model: str
    system: str  # its counterpart here, or ""
    en_de: float | None
    en_fr: float | None
    flops_en_de: float | None
    flops_en_fr: float | None


PUBLISHED = [
    Published("ByteNet", "bytenet", 23.75, None, None, None),
    Published("Deep-Att + PosUnk", "", None, 39.2, None, 1.0e20),
    Published("GNMT + RL", "gnmt", 24.6, 39.92, 2.3e19, 1.4e20),
    Published("ConvS2S", "convs2s", 25.16, 40.46, 9.6e18, 1.5e20),
    Published("MoE", "moe", 26.03, 40.56, 2.0e19, 1.2e20),
    Published("Transformer (base)", BASELINE, 27.3, 38.1, 3.3e18, 3.3e18),
    Published("Transformer (big)", "", 28.4, 41.8, 2.3e19, 2.3e19),
]
