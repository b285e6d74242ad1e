"""HF MarianMT's training speed, for `benchmarks/cpu_peers.py`; run by the peers' interpreter, sees nothing of ours.

    python peer_hf.py FOLDER STEPS SHAPE UPDATES

FOLDER holds train.en and train.de, tokens as t0, t1, ...; STEPS is a JSON file of pair numbers, [update][batch][row];
SHAPE a JSON object. Prints target tokens a second over UPDATES updates, three times; the first is for warming up.
Label smoothing is torch's own on HF's logits, cheaper than the Trainer's, and Adam is fused: both in HF's favour.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

VOCABULARY, EOS = 8_000, 0
PAD = VOCABULARY - 1
IGNORED = -100

Ids = list[list[int]]


def main() -> None:
    folder, steps_file, shape, updates = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(2)
    sources, targets = (read(folder / f"train.{side}") for side in ("en", "de"))
    model = make_model(shape).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    steps = itertools.cycle(json.loads(steps_file.read_text()))
    for _ in range(3):
        begin, tokens = time.perf_counter(), 0
        for step in itertools.islice(steps, updates):
            tokens += update(model, optimizer, [(rows(sources, n), rows(targets, n)) for n in step])
        print(tokens / (time.perf_counter() - begin), flush=True)


def read(path: Path) -> Ids:
    return [[int(token[1:]) for token in line.split()] + [EOS] for line in path.read_text().splitlines()]


def rows(ids: Ids, numbers: list[int]) -> Ids:
    return [ids[n] for n in numbers]


def make_model(shape: dict[str, int]) -> MarianMTModel:
    torch.manual_seed(1)
    return MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=shape["d_model"],
            encoder_layers=shape["layers"],
            decoder_layers=shape["layers"],
            encoder_attention_heads=shape["heads"],
            decoder_attention_heads=shape["heads"],
            encoder_ffn_dim=shape["d_ff"],
            decoder_ffn_dim=shape["d_ff"],
            activation_function="relu",
            dropout=0.1,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
        )
    )


def update(model: MarianMTModel, optimizer: torch.optim.Optimizer, batches: list[tuple[Ids, Ids]]) -> int:
    """One update from the sum of the batches' gradients; its real target tokens."""
    tokens = sum(len(target) for _, targets in batches for target in targets)
    for sources, targets in batches:
        source, labels = padded(sources, PAD), padded(targets, IGNORED)
        inputs = labels.roll(1, dims=1).masked_fill(labels.roll(1, dims=1) == IGNORED, PAD)
        inputs[:, 0] = PAD
        logits = model(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=0.1, reduction="sum"
        )
        (loss / tokens).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return tokens


def padded(ids: Ids, pad: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True, padding_value=pad)


if __name__ == "__main__":
    main()
