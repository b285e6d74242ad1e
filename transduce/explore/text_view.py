"""The view of a language model on one text: attention of the text to itself, and the next token after each of its tokens.

A dictionary for JSON with the keys that the page's panel Look inside reads. There is no source: the panel shows the decoder's
self-attention only. A line break is shown as a token of its own.
"""

from typing import Any

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.explore.head_statistics import Kinds, head_statistics
from transduce.explore.views import MOST_TOKENS, View, rounded
from transduce.model import watch
from transduce.model.positions import sinusoids
from transduce.model.tokens import keep_earlier
from transduce.text import Vocabulary
from transduce.translator.language_model import LanguageModel

ALTERNATIVES = 5
LINE_BREAK = "\u21b5"  # how `</s>` is shown: in a text, it is no end


def text_view(model: LanguageModel, text: str) -> View:
    """The attention weights of every head for a text, and the most probable tokens at each of its positions.

    The last position predicts a token that the text does not have yet: the most probable one is shown.
    """
    inputs = model.input_ids(text)
    if len(inputs) > MOST_TOKENS:
        raise DataError(f"the text has {len(inputs)} tokens: at most {MOST_TOKENS} can be shown")
    with watch(model.model) as maps:
        log_probs = model.next_log_probs(inputs)
    predicted = [*inputs[1:], int(log_probs[-1].argmax())]
    read, written = (_names(model.vocabulary, ids) for ids in (inputs, predicted))
    kinds = Kinds.of(model.vocabulary.pieces(inputs))
    steps = _steps(model.vocabulary, log_probs, predicted)
    return {
        "source": {"text": text, "tokens": read},
        "target": {
            "text": text,
            "decoder_input_tokens": read,
            "tokens": written,
            "log_probabilities": [step["log_probability"] for step in steps],
        },
        "predictions": {"text": text, "tokens": steps},
        "maps": {"encoder": [], "decoder": [rounded(layer[0]) for layer in maps.decoder], "cross": []},
        "statistics": {"decoder": [head_statistics(layer[0].cpu(), kinds) for layer in maps.decoder]},
        "positions": _positions(model, len(inputs)),
        "masks": {"encoder": [], "decoder": _mask(model, len(inputs)), "cross": []},
        "can_switch_off": False,
        "off": [],
    }


def _names(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    return [LINE_BREAK if name == "</s>" else name for name in vocabulary.pieces(ids)]


def _steps(vocabulary: Vocabulary, log_probs: Tensor, predicted: list[int]) -> list[View]:
    """Each token with its log-probability and the most probable others in its place."""
    taken = torch.tensor(predicted, device=log_probs.device)[:, None]
    others, ids = log_probs.scatter(1, taken, -torch.inf).topk(min(ALTERNATIVES, log_probs.shape[1] - 1), dim=1)
    own = rounded(log_probs.gather(1, taken)[:, 0])
    rows = zip(_names(vocabulary, predicted), own, ids.tolist(), rounded(others), strict=True)
    return [
        {"token": name, "log_probability": value, "alternatives": _alternatives(vocabulary, numbers, values)}
        for name, value, numbers, values in rows
    ]


def _alternatives(vocabulary: Vocabulary, ids: list[int], values: list[float]) -> list[View]:
    return [
        {"token": name, "log_probability": value} for name, value in zip(_names(vocabulary, ids), values, strict=True)
    ]


def _positions(model: LanguageModel, length: int) -> View:
    """A row for each position: what is added to the embeddings, or sine and cosine of the angle of rotary positions."""
    positions, config = model.model.positions, model.model.config
    rotary = positions.kind == "rotary"
    rows = sinusoids(torch.arange(length), config.key_width) if rotary else positions.table_of(length)
    return {"kind": positions.kind, "source": rounded(rows, 3), "target": []}


def _mask(model: LanguageModel, length: int) -> Any:
    """1 where a query, a row, may attend to a key, a column."""
    keep = keep_earlier(torch.ones(1, length, dtype=torch.long), model.model.config.window)
    return keep.mask[0, 0].int().tolist()
