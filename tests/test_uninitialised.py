"""Models without drawn weights are what models are, but for the values."""

import subprocess
import sys

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.model import Tokens, Transformer, parameter_shapes, uninitialised_model

VARIANTS = [
    TransformerConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2, **changes)
    for changes in (
        {},
        {"positions": "learned", "norm": "pre", "tie": "none", "max_positions": 40},
        {"positions": "rotary", "norm_kind": "rms", "activation": "swiglu"},
        {"positions": "marian", "output_bias": True, "tie": "target", "activation": "swish"},
    )
]


@pytest.mark.parametrize("config", VARIANTS, ids=lambda config: config.positions)
def test_shapes_and_tables_are_those_of_the_model(config: TransformerConfig) -> None:
    sizes = (11, 11) if config.tie == "all" else (11, 13)
    usual, bare = Transformer(config, *sizes).eval(), uninitialised_model(config, *sizes).eval()
    assert parameter_shapes(config, *sizes) == {name: p.shape for name, p in usual.named_parameters()}
    bare.load_state_dict(usual.state_dict())
    tokens = Tokens.padded([[3, 4, 5], [6]], pad=10)
    memories = usual.encode(tokens), bare.encode(tokens)
    assert torch.equal(memories[0].hidden, memories[1].hidden)


def test_shapes_of_an_enormous_model_take_no_memory() -> None:
    config = TransformerConfig(d_model=100_000, d_ff=100_000, num_heads=8, num_encoder_layers=2, num_decoder_layers=2)
    shapes = parameter_shapes(config, 50, 50)
    assert any(shape == (100_000, 100_000) for shape in shapes.values())


def test_neither_imports_a_compiler() -> None:
    program = (
        "import sys; from transduce.config import TransformerConfig; from transduce import model;"
        "c = TransformerConfig(d_model=16, d_ff=16, num_heads=2); model.parameter_shapes(c, 9, 9); model.uninitialised_model(c, 9, 9);"
        "sys.exit('torch._dynamo.symbolic_convert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
