"""Whether every way to translate says the same: each engine, in company and alone, beside the plainest search there is.

    python benchmarks/same_outputs.py RUN SOURCE [--lines 1000] [--name same-outputs]

The plainest search is written here: one sentence at a time, no cache, every beam decoded from its beginning for every token,
never stopping before the limit. Shares of lines whose best output has the same tokens as its; where it has not, the largest
difference of their scores. Greedy and beam 4 with n^1. On a GPU the engine of slots works in bfloat16, the others here in float32.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from facts import write_result

from transduce.device import Device, choose_device
from transduce.model import Memory, Tokens, Transformer
from transduce.search import Hypothesis, Penalty, length_penalty
from transduce.text import EOS
from transduce.translator import LoadOptions, SearchRequest, Translator
from transduce.translator.engine import Engine, Ids, SearchBlock
from transduce.translator.slot_engine import SlotEngine
from transduce.translator.torch_engine import TorchEngine

Search = Callable[[list[Ids]], list[Hypothesis]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=1_000)
    parser.add_argument("--name", default="same-outputs")
    options = parser.parse_args()
    lines = options.source.read_text(encoding="utf-8").split("\n")[: options.lines]
    results = {name: compare(options.run, lines, beam) for name, beam in (("greedy", 1), ("beam 4", 4))}
    command = f"python benchmarks/same_outputs.py RUN {options.source.name} --lines {options.lines}"
    print(write_result(options.name, command, ["torch"], lines=len(lines), results=results))
    print(results)


def compare(run: Path, lines: list[str], beam: int) -> dict[str, Any]:
    translator = Translator.load(run, LoadOptions(engine="torch"))
    sources = [translator._cut(ids) for ids in translator.vocabularies.source.encode(lines)]
    request = translator.request(beam=beam, length_penalty="power", alpha=1.0)
    expected = [plainest(translator, source, request) for source in sources]
    return {name: beside(search(sources), expected) for name, search in ways(run, translator, request).items()}


def ways(run: Path, translator: Translator, request: SearchRequest) -> dict[str, Search]:
    model, both, device = translator.model, translator.vocabularies, choose_device()
    plain = TorchEngine(model, replace(device, bf16=False), both.source.pad, both.target.pad, EOS)
    found = {"torch, in company": in_company(plain, request), "torch, alone": alone(plain, request)}
    if device.kind == "cuda":
        slots = SlotEngine(model, device, both.source.pad, both.target.pad, EOS)
        found |= {"slots, in company": in_company(slots, request), "slots, alone": alone(slots, request)}
        autocast = TorchEngine(model, Device("cuda", bf16=True), both.source.pad, both.target.pad, EOS)
        return found | {"torch in bfloat16, in company": in_company(autocast, request)}
    for kind in ("float32", "int8"):
        ct2 = Translator.load(run, LoadOptions(engine="ct2", quantization=kind)).engines.searching(request)  # type: ignore[arg-type]
        found |= {f"ct2 {kind}, in company": in_company(ct2, request), f"ct2 {kind}, alone": alone(ct2, request)}
    return found


def in_company(engine: Engine, request: SearchRequest) -> Search:
    return lambda sources: [found[0] for found in searched(engine, sources, request)]


def alone(engine: Engine, request: SearchRequest) -> Search:
    return lambda sources: [searched(engine, [source], request)[0][0] for source in sources]


def searched(engine: Engine, sources: list[Ids], request: SearchRequest) -> list[list[Hypothesis]]:
    return next(iter(engine.stream([SearchBlock(sources, [()] * len(sources))], request)))


def beside(found: list[Hypothesis], expected: list[Hypothesis]) -> dict[str, float]:
    same = [one.tokens == other.tokens for one, other in zip(found, expected, strict=True)]
    apart = [abs(a.score - b.score) for a, b, equal in zip(found, expected, same, strict=True) if not equal]
    return {"same": sum(same) / len(same), "largest_score_difference_elsewhere": max(apart, default=0.0)}


Predict = Callable[[list[list[int]]], torch.Tensor]


@torch.inference_mode()
def plainest(translator: Translator, source: Ids, request: SearchRequest) -> Hypothesis:
    model, both = translator.model.eval(), translator.vocabularies
    memory = model.encode(Tokens.padded([source], both.source.pad).to(translator.device.torch))
    penalty = length_penalty(request.length_penalty, request.alpha)
    limit = len(source) + request.max_extra
    predict = partial(log_probs, model, memory, both.target.pad)
    return greedily(predict, limit, penalty) if request.beam == 1 else by_beam(predict, limit, request.beam, penalty)


def log_probs(model: Transformer, memory: Memory, pad: int, rows: list[list[int]]) -> torch.Tensor:
    """Of the token after each of these beginnings, each decoded anew."""
    target = Tokens.padded([[pad, *row] for row in rows], pad).to(memory.hidden.device)
    shared = Memory(memory.hidden.expand(len(rows), -1, -1), memory.segment.expand(len(rows), -1))
    return model.project(model.decode(target, shared)[:, -1]).float().log_softmax(-1)


def greedily(predict: Predict, limit: int, penalty: Penalty) -> Hypothesis:
    tokens: list[int] = []
    values: list[float] = []
    while EOS not in tokens[-1:]:
        after = predict([tokens])[0]
        token = int(after.argmax()) if len(tokens) < limit - 1 else EOS
        tokens, values = [*tokens, token], [*values, float(after[token])]
    return Hypothesis(tokens[:-1], sum(values) / penalty(float(len(tokens))), sum(values), values)


def by_beam(predict: Predict, limit: int, beam: int, penalty: Penalty) -> Hypothesis:
    """The rule of beam search word for word, to the limit or until no beam can reach the worst that is kept."""
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    found: list[tuple[float, float, list[int]]] = []
    for length in range(1, limit + 1):
        after = predict([tokens for _, tokens in alive])
        candidates = [
            (total + float(row[token]), [*tokens, token])
            for (total, tokens), row in zip(alive, after, strict=True)
            for token in (row.topk(2 * beam).indices.tolist() if length < limit else [EOS])
        ]
        ranked = sorted(candidates, key=lambda one: -one[0])[: 2 * beam]
        found += [(t / penalty(float(length)), t, tokens) for t, tokens in ranked[:beam] if tokens[-1] == EOS]
        found = sorted(found, key=lambda one: -one[0])[:beam]
        alive = [one for one in ranked if one[1][-1] != EOS][:beam]
        if not alive or (len(found) == beam and alive[0][0] / penalty(float(limit)) <= found[-1][0]):
            break
    score, total, tokens = found[0]
    return Hypothesis(tokens[:-1], score, total, [])


if __name__ == "__main__":
    main()
