"""Checks of what training and search require of any model: a family of your own can be tested before it is trained.

Each check is a function of a model that yields one line for each failure. `check_family` makes a small model and runs them all.
The sources are tokens: the checks do not fit a family that reads frames or running text.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model.families import make_model
from transduce.model.losses import IGNORED
from transduce.model.model import Model, State
from transduce.model.tokens import Tokens

SIZE = 12  # of both vocabularies
PAD = SIZE - 1
SOURCES = [[3, 4, 5, 0], [6, 0], [1, 2, 3, 4, 5, 6, 0]]
TARGETS = [[7, 8, 0], [9, 9, 9, 9, 0], [0]]
SELECTIONS = ([2, 2, 0], [0, 0, 2, 2, 1], [1])  # rows in another order, more rows, fewer
ROUNDING = 1e-5  # below it, a difference of logits is one of rounding
LONG_ROUNDING = 1e-4  # the same where the order of computation differs
EXACT_ROUNDING = 1e-6  # the same where only the values of other positions differ

Check = Callable[[Model], Iterator[str]]


def check_family(config: ModelConfig) -> list[str]:
    """What is wrong with a family, given the settings of a small model: one line for each failure.

    If shapes are wrong, or if evaluation is random, nothing else is checked, since every check would fail.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = make_model(replace(config, dropout=0.0), SIZE, SIZE).eval()
        for checks in ([shapes], [repeatable], CHECKS):
            if found := [line for check in checks for line in failures(check, model)]:
                return found
    return []


def failures(check: Check, model: Model) -> list[str]:
    """The lines of a check; an exception of the model is one of them."""
    found: list[str] = []
    try:
        found.extend(check(model))
    except Exception as error:
        found.append(f"{where_raised(error, check.__name__)}: {reason(error)}")
    return found


def where_raised(error: Exception, otherwise: str) -> str:
    """The method of the model that was called, with its file and line."""
    frames = extract_tb(error.__traceback__)
    ours = max(number for number, frame in enumerate(frames) if frame.filename == __file__)
    if ours + 1 == len(frames):
        return otherwise.replace("_", " ")
    called = frames[ours + 1]
    return f"{called.name} ({Path(called.filename).name}:{called.lineno})"


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


# --- the checks ------------------------------------------------------------------------------------------------


@torch.no_grad()
def shapes(model: Model) -> Iterator[str]:
    """Every method returns what its caller expects."""
    memory, target = encoded(model, SOURCES), shifted(TARGETS)
    hidden = model.decode(target, memory)
    yield from wrong_shape("decode", hidden, (*target.shape, model.output_embedding.embedding_dim))
    if hidden.shape[:-1] == target.shape:
        yield from wrong_shape("project", model.project(hidden), (*target.shape, PAD))
    state: Any = model.begin(memory)
    if isinstance(state, State):
        yield from wrong_shape("step", model.step(target.ids[:, 0], state), (len(TARGETS), PAD))
    else:
        yield f"begin: the state is a {type(state).__name__} without the method select(rows), with which search reorders beams"


@torch.no_grad()
def repeatable(model: Model) -> Iterator[str]:
    """In evaluation mode nothing is random."""
    if differ(logits(model, SOURCES, TARGETS), logits(model, SOURCES, TARGETS), EXACT_ROUNDING):
        yield "decode: two passes differ in evaluation mode, where nothing may be random: use transduce.model.Dropout"


@torch.no_grad()
def steps(model: Model) -> Iterator[str]:
    """Step by step is all at once."""
    at_once, inputs = logits(model, SOURCES, TARGETS), shifted(TARGETS)
    state = model.begin(encoded(model, SOURCES))
    for position in range(inputs.width):
        real = inputs.real[:, position]
        stepped = model.step(inputs.ids[:, position], state)
        if differ(stepped[real], at_once[real, position], LONG_ROUNDING):
            yield f"step: at target position {position} its logits are not those of project(decode(...)), which was trained"
            return


@torch.no_grad()
def selection(model: Model) -> Iterator[str]:
    """A state follows the rows that are selected."""
    for rows in SELECTIONS:
        state, tokens = model.begin(encoded(model, SOURCES)), torch.tensor([5, 6, 7, 8, 9][: len(rows)])
        model.step(torch.full((len(SOURCES),), PAD), state)
        chosen = Tokens.padded([*(SOURCES[row] for row in rows), SOURCES[2]], PAD)  # the last, for the same padding
        same = chosen.rows(slice(len(rows)))
        other = model.begin(model.encode(same))
        model.step(torch.full((len(rows),), PAD), other)
        expected, wrong = model.step(tokens, other), f"state.select({rows}): the next step is not that of these rows"
        try:
            found = model.step(tokens, state.select(torch.tensor(rows)))
        except Exception as error:  # such as a number of rows that does not fit
            yield f"{wrong}: {reason(error)}"
            return
        if differ(found, expected, ROUNDING):
            yield f"{wrong}: select everything that has rows, including the memory"
            return


@torch.no_grad()
def order(model: Model) -> Iterator[str]:
    """Later target tokens change nothing earlier, and earlier ones change what is later."""
    one, other = (logits(model, SOURCES[:1], [[7, 8, last, 3, 0]]) for last in (4, 5))
    if differ(one[:, :3], other[:, :3], EXACT_ROUNDING):
        yield "decode: a later target token changes an earlier position, so training sees what it must predict"
    if not differ(one[:, 3], other[:, 3], ROUNDING):
        yield "decode: the newest target token does not change its own position"


@torch.no_grad()
def padding(model: Model) -> Iterator[str]:
    """A sentence alone is the sentence in a batch, whatever ids the padding has."""
    for filler in (PAD, 0):
        memory = model.encode(Tokens.padded(SOURCES, filler))
        together = model.project(model.decode(shifted(TARGETS, filler), memory))
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            if differ(logits(model, [source], [target])[0], together[row, : len(target)], ROUNDING):
                yield "encode or decode: padding changes the output of a sentence: ignore positions where real is False"
                return


@torch.no_grad()
def packing(model: Model) -> Iterator[str]:
    """Families that share rows on GPUs compute every sentence as if it were alone, whatever its neighbours are."""
    if not model.page_width:
        return
    inputs = [[PAD, *target[:-1]] for target in TARGETS]
    packed = model.project(model.decode(Tokens.packed([inputs], PAD), model.encode(Tokens.packed([SOURCES], PAD))))[0]
    begin = 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        alone = logits(model, [source], [target])[0]
        if differ(packed[begin : (begin := begin + len(target))], alone, LONG_ROUNDING):
            yield "encode or decode: sentences of a packed row see each other: respect segment, or set page_width = None"
            return


@torch.no_grad()
def source_tokens(model: Model) -> Iterator[str]:
    """Every source token matters to some position of a target that is as long as the source."""
    target = [[7, 8, 9, 0]]
    for position in range(3):
        changed = [2 if at == position else token for at, token in enumerate(SOURCES[0])]
        if not differ(logits(model, [changed], target), logits(model, SOURCES[:1], target), ROUNDING):
            yield f"encode: the source token at position {position} of 4 changes no output"


def gradients(model: Model) -> Iterator[str]:
    """Every weight gets a gradient."""
    model.train()
    labels = Tokens.padded(TARGETS, IGNORED).ids
    model.loss(Tokens.padded(SOURCES, PAD), shifted(TARGETS), labels, 0.1).minimised.backward()
    yield from (f"loss: no gradient reaches {name}" for name, one in model.named_parameters() if one.grad is None)
    model.zero_grad()
    model.eval()


@torch.no_grad()
def dropout(model: Model) -> Iterator[str]:
    """The setting that every family has is used."""
    dropped = make_model(replace(model.config, dropout=0.5), SIZE, SIZE).train()
    if not differ(logits(dropped, SOURCES, TARGETS), logits(dropped, SOURCES, TARGETS), ROUNDING):
        yield "model.dropout: it changes nothing in training: use transduce.model.Dropout(config.dropout)"


CHECKS: list[Check] = [steps, selection, order, padding, packing, source_tokens, gradients, dropout]  # of right shapes


# --- what they share -------------------------------------------------------------------------------------------


def shifted(targets: list[list[int]], filler: int = PAD) -> Tokens:
    """What the decoder reads: each target behind `<pad>` and without its last token."""
    return Tokens.padded([[PAD, *target[:-1]] for target in targets], filler)


def encoded(model: Model, sources: list[list[int]]) -> object:
    return model.encode(Tokens.padded(sources, PAD))


@torch.no_grad()
def logits(model: Model, sources: list[list[int]], targets: list[list[int]]) -> Tensor:
    return model.project(model.decode(shifted(targets), encoded(model, sources)))


def differ(one: Tensor, other: Tensor, rounding: float) -> bool:
    return not torch.allclose(one, other, atol=rounding, rtol=rounding)


def wrong_shape(method: str, found: Tensor, expected: tuple[int, ...]) -> Iterator[str]:
    if found.shape != expected:
        yield f"{method}: its result has the shape {list(found.shape)} instead of {list(expected)}"
