"""Europarl German-English for some minutes of one GPU: ours through the command line, and HF MarianMT on the same data.

    python benchmarks/europarl.py ours --minutes 4 --run runs/europarl-4
    python benchmarks/europarl.py hf --minutes 4 --run runs/europarl-4        the same vocabulary and pairs

Two of the four shards unless told otherwise. BLEU with its signature on Europarl's test set and on newstest2014, beam 4.
HF gets what serves it best here: bfloat16 autocast, fused Adam, batches of similar lengths made ahead by a thread, a learning
rate that ends with its minutes, attention that need not be planned for each shape. Its clock stands still while it is measured half-way.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from facts import default_data, write_result
from train_speed import Case, marian

from transduce.checkpoint import RunFolder
from transduce.config import TransformerConfig
from transduce.data.batches import Batch, Batching, make_batch
from transduce.metrics import translation_scores
from transduce.model import Tokens
from transduce.model.losses import smoothed_loss
from transduce.threads import prefetch
from transduce.training.feed import PREFETCHED_STEPS, TrainingData
from transduce.training.prepare import prepare
from transduce.training.request import TrainingRequest, requested_settings

HERE = Path(__file__).parent
END = 0  # the id of `</s>`
TOKENS, PEAK, WARMUP = 12_800, 5e-4, 800  # of HF's steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=["ours", "hf"])
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--run", type=Path, required=True, help="ours: written; hf: whose data and vocabulary it takes")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--shards", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--halfway", action="store_true", help="hf: also score it half-way")
    options = parser.parse_args()
    tests = test_sets(options.data)
    found = train_ours(options, tests) if options.system == "ours" else train_hf(options, tests)
    name = f"europarl-{options.system}-{options.minutes:g}"
    shards = " ".join(map(str, options.shards))
    command = (
        f"python benchmarks/europarl.py {options.system} --minutes {options.minutes:g} --shards {shards} --run RUN"
    )
    print(write_result(name, command, ["torch", "sacrebleu", "transformers"], minutes=options.minutes, **found))
    print(json.dumps(found["scores"]))


def test_sets(data: Path) -> dict[str, tuple[Path, Path]]:
    europarl, news = data / "europarl-de-en", data / "newstest"
    return {
        "europarl": (europarl / "test.de", europarl / "test.en"),
        "newstest2014": (news / "newstest2014.de", news / "newstest2014.en"),
    }


# --- ours ------------------------------------------------------------------------------------------------------


def train_ours(options: argparse.Namespace, tests: dict[str, tuple[Path, Path]]) -> dict[str, Any]:
    europarl, begun = options.data / "europarl-de-en", time.perf_counter()
    groups = [["--train", *(str(europarl / f"train-{n}.{side}.xz") for side in ("de", "en"))] for n in options.shards]
    valid = ["--valid", str(europarl / "valid.de"), str(europarl / "valid.en"), "--languages", "de", "en"]
    config = ["--config", str(HERE.parent / "configs" / "europarl-gpu.toml")]
    settings = ["--set", f"train.minutes={options.minutes}", *options.set]
    arguments = ["train", str(options.run), *[a for group in groups for a in group], *valid, *config, *settings]
    trained = json.loads(call([*arguments, "--json"]))
    seconds = time.perf_counter() - begun
    scores = {}
    for name, (source, target) in tests.items():
        tested = json.loads(call(["evaluate", str(options.run), str(source), str(target), "--beam", "4", "--json"]))
        scores[name] = tested["scores"]["BLEU"]
    log = (options.run / "metrics.jsonl").read_text().splitlines()
    return {"scores": scores, "training_s": trained["seconds"], "command_s": round(seconds, 1), "steps": trained["steps"],
            "log": [json.loads(line) for line in log if '"event": "valid"' in line]}  # fmt: skip


def call(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "transduce", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


# --- HF --------------------------------------------------------------------------------------------------------


def train_hf(options: argparse.Namespace, tests: dict[str, tuple[Path, Path]]) -> dict[str, Any]:
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape, .2 s each: half of HF's time
    nothing = requested_settings(TrainingRequest())
    training_data = prepare(RunFolder(options.run), nothing, print).training_data
    vocabulary = training_data.vocabularies.target
    model = marian(Case("base", TransformerConfig(), vocabulary.size, TOKENS)).cuda().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    batching, budget = Batching(TOKENS, TOKENS, seed=1), options.minutes * 60
    spent, step, tokens, halfway = 0.0, 0, 0, {}
    with prefetch(made_batches(training_data, batching), PREFETCHED_STEPS) as steps:
        for batches in steps:
            begun = time.perf_counter()
            step += 1
            size = sum(batch.tokens for batch in batches)
            for group in optimizer.param_groups:
                group["lr"] = PEAK * min(step / WARMUP, 1.0) * max(0.0, 1 - spent / budget)
            for batch in batches:
                (loss_of(model, batch.to("cuda")) / size).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                torch.cuda.synchronize()
            spent, tokens = spent + time.perf_counter() - begun, tokens + size
            if options.halfway and spent >= budget / 2 and not halfway:
                halfway = {name: score_hf(model, vocabulary, *files) for name, files in tests.items()}
                print(f"half-way, step {step}: {json.dumps(halfway)}", flush=True)
                model.train()
            if spent >= budget:
                break
    scores = {name: score_hf(model, vocabulary, *files) for name, files in tests.items()}
    return {"scores": scores, "halfway": halfway, "steps": step, "target_tokens_per_s": round(tokens / spent)}


def made_batches(training_data: TrainingData, batching: Batching) -> Iterator[list[Batch]]:
    """The batches of every step, made while the GPU works, as ours are."""
    pad = training_data.vocabularies.target.pad
    for epoch in range(1000):
        for step in batching.plan(training_data.train, epoch):
            yield [make_batch(training_data.train, part, pad, pad).pinned() for part in step]


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(
            input_ids=batch.source.ids, attention_mask=batch.source.real.long(), decoder_input_ids=batch.target.ids
        ).logits
    return smoothed_loss(logits, batch.labels, 0.1)


def score_hf(model: Any, vocabulary: Any, source: Path, target: Path) -> dict[str, Any]:
    """Beam 4, length penalty 1, longest lines first, 500 at a time."""
    model.eval()
    lines, references = (path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (source, target))
    ids = vocabulary.encode(lines)
    order = sorted(range(len(ids)), key=lambda n: -len(ids[n]))
    outputs = [""] * len(ids)
    for begin in range(0, len(order), 500):
        numbers = order[begin : begin + 500]
        asked = Tokens.padded([ids[n] for n in numbers], vocabulary.pad).to("cuda")
        with torch.autocast("cuda", torch.bfloat16), torch.inference_mode():
            found = model.generate(
                input_ids=asked.ids, attention_mask=asked.real.long(), num_beams=4, length_penalty=1.0,
                max_new_tokens=min(250, asked.width + 50), use_cache=True,
            )  # fmt: skip
        rows = [row[1:] for row in found.tolist()]
        texts = vocabulary.decode([row[: row.index(END)] if END in row else row for row in rows])
        for number, text in zip(numbers, texts, strict=True):
            outputs[number] = text
    bleu = translation_scores(outputs, [[reference] for reference in references]).main
    return {"value": bleu.value, "signature": bleu.signature}


if __name__ == "__main__":
    main()
