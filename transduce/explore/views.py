"""The views of the page as dictionaries for JSON.

Knows the translator and its model; no HTTP, no HTML and no drawing. All numbers come from the PyTorch model with its
original weights, even if another engine translates, so that the views agree with each other.
Log-probabilities are natural logarithms; layers, heads and positions count from 0.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.errors import DataError, SettingError
from transduce.explore.head_statistics import Kinds, head_statistics
from transduce.explore.inside import Inside, Pair, Seen
from transduce.explore.runs import training_view
from transduce.explore.tree import Tree
from transduce.model import Head, Prefix, Transformer, has_heads
from transduce.model.positions import Positions, sinusoids
from transduce.model.tokens import Keep, keep_earlier, keep_same_sentence, keep_source
from transduce.search import Hypothesis, length_penalty
from transduce.text import EOS, Vocabulary
from transduce.translator import Translator
from transduce.translator.engine import Ids

__all__ = ["attention_view", "training_view", "translate_view", "tree_view"]

View = dict[str, Any]
MOST_OUTPUTS = 20
MOST_ALTERNATIVES = 20
MOST_BEAMS = 12
MOST_TOKENS = 200  # on each side: the weights of every head grow with the square
LEAST_LOG_PROBABILITY = -1e4  # JSON has no infinity


def translate_view(translator: Translator, text: str, n_best: int = 4, alternatives: int = 5) -> View:
    """The best outputs; each token with its log-probability and its most probable alternatives."""
    _check_count("n_best", n_best, 1, MOST_OUTPUTS)
    _check_count("alternatives", alternatives, 0, MOST_ALTERNATIVES)
    source, line = translator.source_ids(text), translator.forms.learned([text])[0].text
    whole = translator.sources.encode([line])[0]
    view: View = {
        "source": {"text": text, "tokens": translator.vocabularies.source.pieces(source)},
        "outputs": [],
        "cut": len(whole) - len(source),
        "unknown": translator.unknown_in(line, whole),
    }
    if text.strip():
        inside = Inside(translator)
        found = inside.search(source, translator.request(n_best=n_best))
        view["outputs"] = [_output(translator, inside, source, one, alternatives) for one in found]
    return view


def attention_view(
    translator: Translator, text: str, target_text: str | None = None, off: Iterable[Sequence[Any]] = ()
) -> View:
    """The attention weights of every head, for the model's own translation or a given target.

    A map is [layer][head][query][key]. A query of the decoder reads one target token and predicts the next.
    `off` lists heads as [part, layer, head]: they are switched off, and the sentence is translated without them.
    """
    heads = [_head(one) for one in off]
    inside, both = Inside(translator, heads), translator.vocabularies
    source = _some_ids(translator, text)
    target = (
        both.target.encode([target_text])[0] if target_text is not None else _translated(translator, inside, source)
    )
    _check_length(target)
    pair = Pair(source, target)
    seen = inside.see(pair)
    source_tokens, decoder_input_tokens = both.source.pieces(source), both.target.pieces(inside.decoder_input(target))
    return {
        "source": {"text": text, "tokens": source_tokens},
        "target": {
            "text": both.target.decode([target])[0],
            "decoder_input_tokens": decoder_input_tokens,
            "tokens": both.target.pieces(target),
            "log_probabilities": rounded(_of_tokens(seen.log_probs, target)),
        },
        "maps": {part: [rounded(layer[0]) for layer in layers] for part, layers in vars(seen.maps).items()},
        "statistics": _statistics(seen, source_tokens, decoder_input_tokens),
        "positions": _positions(inside, pair),
        "masks": _masks(inside, pair),
        "can_switch_off": has_heads(inside.model),
        "off": [[head.part, head.layer, head.number] for head in heads],
    }


def tree_view(translator: Translator, text: str, beam: int = 4) -> View:
    """Beam search step by step: the candidates, which of them were kept or finished, and the outputs."""
    _check_count("beam", beam, 2, MOST_BEAMS)
    source, vocabulary = _some_ids(translator, text), translator.vocabularies.target
    request = translator.request(beam=beam, n_best=beam)
    tree = Tree(EOS, length_penalty(request.length_penalty, request.alpha), vocabulary.pieces)
    found = Inside(translator).search_watched(source, request, tree.observe)
    texts = vocabulary.decode([one.tokens for one in found])
    return {
        "source": {"text": text, "tokens": translator.vocabularies.source.pieces(source)},
        "beam": beam,
        "steps": tree.steps,
        "outputs": [
            {"text": text, "score": round(one.score, 4), "path": tree.path(one.tokens)}
            for text, one in zip(texts, found, strict=True)
        ],
    }


# --- validation ------------------------------------------------------------------------------------------------


def _check_count(name: str, value: int, least: int, most: int) -> None:
    if not (isinstance(value, int) and least <= value <= most):
        raise SettingError(f"{name} = {value}: must be a whole number from {least} to {most}")


def _check_length(ids: Ids) -> None:
    if len(ids) > MOST_TOKENS:
        raise DataError(f"the sentence has {len(ids)} tokens: at most {MOST_TOKENS} on each side can be shown")


def _some_ids(translator: Translator, text: str) -> list[int]:
    if not text.strip():
        raise DataError("the sentence is empty: there is nothing to show")
    ids = translator.source_ids(text)
    _check_length(ids)
    return ids


def _head(named: Any) -> Head:
    """A head from JSON that was not validated, or an error of one line."""
    match named:
        case [str(part), int(layer), int(number)]:
            return Head(part, layer, number)
    raise SettingError(f'{named!r}: a head must be [part, layer, head], such as ["encoder", 0, 0]')


# --- contents --------------------------------------------------------------------------------------------------


def _translated(translator: Translator, inside: Inside, source: Ids) -> list[int]:
    found = inside.search(source, translator.request())
    return [*(found[0].tokens if found else ()), EOS]


def _output(translator: Translator, inside: Inside, source: Ids, one: Hypothesis, alternatives: int) -> View:
    vocabulary = translator.vocabularies.target
    target = [*one.tokens, EOS]
    log_probs = inside.log_probs(Pair(source, target))
    return {
        "text": vocabulary.decode([one.tokens])[0],
        "score": round(one.score, 4),
        "log_probability": round(one.log_probability, 4),
        "tokens": [
            {"token": name, "log_probability": log_probability, "alternatives": others}
            for name, log_probability, others in zip(
                vocabulary.pieces(target),
                rounded(_of_tokens(log_probs, target)),
                _alternatives(vocabulary, log_probs, target, alternatives),
                strict=True,
            )
        ],
    }


def _alternatives(vocabulary: Vocabulary, log_probs: Tensor, target: Ids, count: int) -> list[list[View]]:
    """The most probable tokens at each position, except the one in the output."""
    others = log_probs.scatter(1, torch.tensor(target, device=log_probs.device)[:, None], -torch.inf)
    best, ids = others.topk(min(count, others.shape[1] - 1), dim=1)
    return [
        [{"token": name, "log_probability": value} for name, value in zip(vocabulary.pieces(row), values, strict=True)]
        for row, values in zip(ids.tolist(), rounded(best), strict=True)
    ]


def _of_tokens(log_probs: Tensor, target: Ids) -> Tensor:
    return log_probs.gather(1, torch.tensor(target, device=log_probs.device)[:, None])[:, 0]


def _statistics(seen: Seen, source: list[str], decoder_input: list[str]) -> View:
    def of(layers: list[Tensor], tokens: list[str]) -> list[list[dict[str, float]]]:
        return [head_statistics(layer[0].cpu(), Kinds.of(tokens)) for layer in layers]

    maps = seen.maps
    return {
        "encoder": of(maps.encoder, source),
        "decoder": of(maps.decoder, decoder_input),
        "cross": of(maps.cross, source),
    }


def _positions(inside: Inside, pair: Pair) -> View:
    """A row for each position: what is added to the embeddings, or sine and cosine of the angle of rotary positions.

    Other families have no rows: they know positions by how they read.
    """
    match model := inside.model:
        case Transformer():
            source, target, begin = model.source_positions, model.target_positions, 0
        case Prefix():
            source, target, begin = model.positions, model.positions, len(pair.source)
        case _:
            return {"kind": "implicit", "source": [], "target": []}
    width, key_width = model.config.d_model, model.config.key_width

    def rows(positions: Positions, begin: int, length: int) -> Any:
        indices = torch.arange(begin, begin + length)
        if positions.kind == "rotary":
            return rounded(sinusoids(indices, key_width), 3)
        nothing = torch.zeros(1, length, width, device=inside.engine.device.torch)
        return rounded(positions(nothing, indices[None].to(nothing.device), begin + length)[0], 3)

    return {
        "kind": source.kind,
        "source": rows(source, 0, len(pair.source)),
        "target": rows(target, begin, len(pair.target)),
    }


def _masks(inside: Inside, pair: Pair) -> View:
    """Masks as [query][key]; 1 means that the query may attend to the key. Empty where the model has no such attention."""

    def rows(keep: Keep) -> Any:
        return keep.mask[0, 0].int().tolist()

    model = inside.model
    window = model.config.window if isinstance(model, Transformer) else 0
    causal_source = isinstance(model, Prefix) and model.config.source_mask == "causal"
    source, target = (inside.tokens(ids).segment for ids in (pair.source, inside.decoder_input(pair.target)))
    masks = {
        "encoder": keep_earlier(source) if causal_source else keep_same_sentence(source, window),
        "decoder": keep_earlier(target, window),
        "cross": keep_source(target, source),
    }
    used = model.attentions()
    return {part: rows(keep) if used[part] else [] for part, keep in masks.items()}


def rounded(values: Tensor, digits: int = 4) -> Any:
    """Nested lists, rounded in double precision so that the numbers are short in JSON."""
    return values.detach().cpu().double().clamp(min=LEAST_LOG_PROBABILITY).round(decimals=digits).tolist()
