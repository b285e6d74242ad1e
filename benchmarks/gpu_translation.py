"""Translation on a GPU beside HF `generate`: strings in, strings out, the same weights, and whether they say the same.

    python benchmarks/gpu_translation.py RUN SOURCE REFERENCE [--times 10] [--rounds 3] [--peer-lines 3003]

RUN is a trained model (configs/europarl-gpu.toml makes one). Ours is `Translator` as `transduce translate` has it, over SOURCE
so many times over; HF is what `transduce export --to hf` writes, loaded by its Auto classes in bfloat16, lines sorted by
length, each size of batch in BATCHES tried and the fastest taken, over SOURCE once. Both warmed up before the clock.
Target tokens a second count `</s>`. What bfloat16 changes: outputs beside those of the plain engine in float32, and BLEU.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from facts import write_result

from transduce.device import Device
from transduce.exchange import export_model
from transduce.metrics import translation_scores
from transduce.text import EOS
from transduce.translator import LoadOptions, SearchRequest, Translator
from transduce.translator.engines import OneEngine
from transduce.translator.torch_engine import TorchEngine

BEAMS = {"greedy": 1, "beam 4": 4}
BATCHES = [128, 512]
PARTS = 12  # of a step, the longest
COMPARED = 1_000  # lines, also one by one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peer-lines", type=int, default=10**9, help="how many of the lines HF gets; 0: it is left out"
    )
    options = parser.parse_args()
    lines, references = read(options.source), read(options.reference)
    results = {name: measure(options, beam, lines, references) for name, beam in BEAMS.items()}
    command = f"python benchmarks/gpu_translation.py RUN {options.source.name} {options.reference.name}"
    peer_lines = min(options.peer_lines, len(lines))
    command += f" --peer-lines {peer_lines}" if peer_lines < len(lines) else ""
    settings = {"times": options.times, "rounds": options.rounds, "lines": len(lines), "peer_lines": peer_lines}
    packages = ["torch", "triton", "transformers", "sacrebleu"]
    print(write_result("translation-gpu", command, packages, settings=settings, results=results))
    for name, one in results.items():
        print(name, one)


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def measure(options: argparse.Namespace, beam: int, lines: list[str], references: list[str]) -> dict[str, Any]:
    ours = Translator.load(options.run, LoadOptions(engine="torch", device="cuda"))
    request = ours.request(beam=beam, n_best=1, length_penalty="power", alpha=1.0)
    seconds = [timed(lambda: ours.translate(lines * options.times, request)) for _ in range(options.rounds + 1)][1:]
    found = list(ours.stream(lines, request))
    tokens = sum(len(one.outputs[0].tokens) + 1 for one in found if one.outputs)
    rates = sorted(tokens * options.times / s for s in seconds)
    print(beam, [round(rate) for rate in rates], flush=True)
    texts = [one.text for one in found]
    one_line = statistics.median(timed(partial(ours.translate, [line], request)) for line in lines[:50])
    result = {
        "target_tokens_per_s": round(statistics.median(rates)),
        "least_most": [round(rates[0]), round(rates[-1])],
        "one_line_ms": round(one_line * 1e3, 1),
        **steps_of_device(ours),
        "bleu": bleu(texts, references),
        **beside_the_reference(ours, request, lines[:COMPARED]),
    }
    print(beam, result, flush=True)
    if not options.peer_lines:
        return result
    return result | beside_hf(options, beam, lines[: options.peer_lines], references, statistics.median(rates))


def timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def steps_of_device(ours: Translator) -> dict[str, Any]:
    """What a step of the largest slot pool takes when the host does nothing else; its slots are as their sentences left them."""
    pools = ours.engines.torch.batcher.idle_pools  # type: ignore[attr-defined]
    pool = max(pools.values(), key=lambda pool: pool.positions)
    count = 50
    seconds = timed(lambda: [pool.step() for _ in range(count)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        timed(lambda: [pool.step() for _ in range(count)])
    spent = Counter({event.key[:60]: event.self_device_time_total / count for event in profile.key_averages()})
    return {
        "rows": len(pool.search.position) * pool.beam,
        "step_ms": round(seconds / count * 1e3, 3),
        "kernels": sum(event.count for event in profile.key_averages()) // count,
        "step_us": {name: round(us, 1) for name, us in spent.most_common(PARTS)},
    }


def bleu(texts: list[str], references: list[str]) -> dict[str, Any]:
    score = translation_scores(texts, [[one] for one in references[: len(texts)]]).main
    return {"value": round(score.value, 2), "signature": score.signature}


def beside_the_reference(ours: Translator, request: SearchRequest, lines: list[str]) -> dict[str, Any]:
    """Shares of equal outputs: in slots and in plain batches, with bfloat16 and without, in company and alone."""
    texts = ours.translate(lines, request)
    plain = {name: plainly(ours, bf16).translate(lines, request) for name, bf16 in (("bf16", True), ("float32", False))}
    alone = [ours.translate([line], request)[0] for line in lines[: COMPARED // 10]]
    return {
        "same_as_plain_bf16": same(texts, plain["bf16"]),
        "same_as_plain_float32": same(texts, plain["float32"]),
        "plain_bf16_as_float32": same(plain["bf16"], plain["float32"]),
        "alone_as_in_company": same(alone, texts[: len(alone)]),
    }


def plainly(ours: Translator, bf16: bool) -> Translator:
    """The reference search, operation by operation."""
    both = ours.vocabularies
    engine = TorchEngine(ours.model, Device("cuda", bf16=bf16), both.source.pad, both.target.pad, EOS)
    return Translator(OneEngine(engine), both, ours.config)


def same(one: list[str], other: list[str]) -> float:
    return round(sum(a == b for a, b in zip(one, other, strict=True)) / len(one), 4)


def beside_hf(options: Any, beam: int, lines: list[str], references: list[str], ours: float) -> dict[str, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        export_model(options.run, f"{folder}/hf", "hf", say=print)
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/hf")
        model = AutoModelForSeq2SeqLM.from_pretrained(f"{folder}/hf", dtype=torch.bfloat16).cuda().eval()
    ordered = sorted(range(len(lines)), key=lambda n: -len(lines[n]))

    def translate(size: int, count: int) -> tuple[list[str], int]:
        texts, tokens = [""] * len(lines), 0
        for begin in range(0, count, size):
            numbers = ordered[begin : begin + size]
            batch = tokenizer([lines[n] for n in numbers], return_tensors="pt", padding=True).to("cuda")
            width = batch["input_ids"].shape[1]
            with torch.inference_mode():
                found = model.generate(
                    **batch, num_beams=beam, length_penalty=1.0, max_length=None, max_new_tokens=width + 50
                )
            tokens += int((found[:, 1:] != model.config.pad_token_id).sum())
            for number, text in zip(numbers, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True):
                texts[number] = text
        return texts, tokens

    best: dict[str, Any] = {}
    for size in BATCHES:
        translate(size, size)  # warms up
        begun = time.perf_counter()
        texts, tokens = translate(size, len(lines))
        rate = tokens / (time.perf_counter() - begun)
        if rate > best.get("hf_target_tokens_per_s", 0):
            best = {"hf_target_tokens_per_s": round(rate), "hf_batch": size, "hf_bleu": bleu(texts, references)}
    return best | {"ours_over_hf": round(ours / best["hf_target_tokens_per_s"], 1)}


if __name__ == "__main__":
    main()
