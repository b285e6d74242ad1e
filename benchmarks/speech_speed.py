"""Speech models of the same size beside each other: memory and speed of training, and the speed of transcription, by length.

    python benchmarks/speech_speed.py --device cuda        10 to 60 s of sound, under three minutes
    python benchmarks/speech_speed.py --device cpu         10 and 30 s of sound, under six minutes on two cores
    taskset -c 1 python benchmarks/speech_speed.py --device cpu --lengths 10 30 60 --rounds 2        on one core, four minutes

Self-attention reads thousands of frames at once, so its cost shows here. Ours (12 layers over a quarter of the frames, 256 wide, 4
decoder layers) with the encoder of the paper, with it but without CTC, which is the work that the other does, and with a convolution in
each layer, which is the default; the other is Hugging Face's Speech2Text, whose convolutions have as many channels as make it equally
large. All read the same features of synthetic sound, in rows of one utterance each: the family `speech` has no packed rows. A step
trains on the same seconds of sound whatever the length. On a GPU all train in bfloat16, as `train` does and with autocast; ours searches
under autocast as `transcribe` does, and the other in bfloat16 throughout. On a CPU all compute in float32. A search writes a fixed number
of tokens. Systems take turns; a ratio is the median over the rounds, with the smallest and the largest. On a CPU there are also ratios
of the computing time of all cores, which other programs on the same cores change less than the clock.
"""

import argparse
import contextlib
import copy
import gc
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from facts import write_result
from family_speed import update_of
from numpy.typing import NDArray

from transduce.audio.features import FRAME_SECONDS, RATE
from transduce.audio.utterances import Features, features_of
from transduce.config import SpeechConfig, TrainConfig
from transduce.data.batches import Batch, make_batch
from transduce.device import Device, choose_device
from transduce.memory import peak_resident, restart_peak
from transduce.model.speech import SpeechModel
from transduce.text import EOS
from transduce.training.update import Update
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.torch_engine import TorchEngine

OTHER = "HF Speech2Text"
BEAM = 4
TOKENS_PER_SECOND = 3  # of sound: English in subwords
CLIP_NORM = 5.0


@dataclass(frozen=True)
class Shape:
    """The size of the models."""

    d_model: int = 256
    d_ff: int = 1024
    num_heads: int = 4
    num_encoder_layers: int = 12
    num_decoder_layers: int = 4
    ids: int = 1_000
    convolution: int = 15
    other_channels: int = 256  # of the convolutions in front of the other's encoder


@dataclass(frozen=True)
class Work:
    """What is measured on a device."""

    lengths: tuple[int, ...]  # seconds of an utterance
    seconds: int  # of sound in a training step, and in a transcription
    steps: int  # of training in a round
    rounds: int


TOY = Shape(32, 64, 2, 2, 1, 64, 3, 16)  # loads libraries and compiles kernels before anything is measured
WORK = {"cuda": Work((10, 20, 30, 45, 60), 480, 4, 3), "cpu": Work((10, 30), 60, 1, 3)}


class Utterances:
    """Synthetic sound and random texts, as pairs that batches are made from."""

    groups = ()

    def __init__(self, length: float, seconds: float, ids: int) -> None:
        self.seconds = np.linspace(length, 0.9 * length, max(1, round(seconds / length)))
        begun = time.perf_counter()
        self.features = [features_of(torch.from_numpy(sound(one, n))) for n, one in enumerate(self.seconds)]
        self.features_seconds = time.perf_counter() - begun
        draw = np.random.default_rng(1)
        counts = [max(2, round(TOKENS_PER_SECOND * one)) for one in self.seconds]
        self.texts = [np.append(draw.integers(3, ids - 1, count - 1), EOS) for count in counts]
        self.source_lengths = np.array([len(one) for one in self.features], np.int32)
        self.target_lengths = np.array(counts, np.int32)

    @property
    def sound_seconds(self) -> float:
        return float(self.seconds.sum())

    def source(self, index: int) -> Features:
        return self.features[index]

    def target(self, index: int) -> NDArray[np.integer[Any]]:
        return self.texts[index]

    def batch(self, pad: int) -> Batch:
        return make_batch(self, np.arange(len(self.texts)), pad, pad)  # type: ignore[arg-type]


def sound(seconds: float, seed: int) -> NDArray[np.float32]:
    """A voice-like tone whose pitch and loudness change, with some noise."""
    draw = np.random.default_rng(seed)
    at = np.arange(round(seconds * RATE)) / RATE
    pitch = 120 * np.exp(0.3 * np.sin(2 * np.pi * draw.uniform(0.2, 0.5) * at))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(n * phase) / n for n in (1, 2, 3, 5, 8, 13, 21))
    loudness = 0.55 + 0.45 * np.sin(2 * np.pi * draw.uniform(2, 5) * at)
    return np.asarray(0.1 * loudness * voice + 0.003 * draw.standard_normal(len(at)), np.float32)


class Endless(SpeechModel):
    """Ends no text before the limit, so that all systems write equally many tokens."""

    @property
    def never(self) -> tuple[int, ...]:
        return (EOS, *super().never)


@dataclass
class System:
    """One of the models on a device: a training step, and a transcription with a beam that writes so many tokens."""

    parameters: int
    train: Callable[[], None]
    transcribe: Callable[[int, int], list[int]]  # returns how many tokens each text has, the last one included
    memory_gib: float = 0.0
    seconds: dict[str, list[float]] = field(default_factory=dict)  # of each job in each round, by the clock
    core_seconds: dict[str, list[float]] = field(default_factory=dict)  # that the cores of the CPU computed


def config_of(shape: Shape, **changes: Any) -> SpeechConfig:
    return SpeechConfig(
        family="speech", d_model=shape.d_model, d_ff=shape.d_ff, num_heads=shape.num_heads, dropout=0.1,
        num_encoder_layers=shape.num_encoder_layers, num_decoder_layers=shape.num_decoder_layers, **changes,
    )  # fmt: skip


def our_system(shape: Shape, heard: Utterances, device: Device, **changes: Any) -> System:
    torch.manual_seed(1)
    model = Endless(config_of(shape, **changes), shape.ids, shape.ids).to(device.torch)
    update = update_of(model, device, TrainConfig(clip_norm=CLIP_NORM, label_smoothing=0.1))
    made, pad = heard.batch(shape.ids - 1), shape.ids - 1
    batch = made.pinned() if device.kind == "cuda" else made
    engine = TorchEngine(model, device, pad, pad, EOS)

    def transcribe(beam: int, tokens: int) -> list[int]:
        count = len(heard.features)
        block = SearchBlock(heard.features, [()] * count, at_most=[tokens] * count)  # type: ignore[arg-type]
        (found,) = engine.stream([block], SearchRequest(beam=beam, log_probs="none"))
        return [len(best[0].tokens) + 1 for best in found]

    return System(_parameters(model), _step(update, batch), transcribe)


def _step(update: Update, batch: Batch) -> Callable[[], None]:
    tokens = batch.tokens

    def step() -> None:
        update.begin(1)
        update.add(batch, tokens)
        update.apply(1e-4)

    return step


def other_model(shape: Shape) -> Any:
    from transformers import Speech2TextConfig, Speech2TextForConditionalGeneration

    torch.manual_seed(1)
    return Speech2TextForConditionalGeneration(
        Speech2TextConfig(
            vocab_size=shape.ids, d_model=shape.d_model, dropout=0.1, conv_channels=shape.other_channels,
            encoder_layers=shape.num_encoder_layers, decoder_layers=shape.num_decoder_layers,
            encoder_ffn_dim=shape.d_ff, decoder_ffn_dim=shape.d_ff,
            encoder_attention_heads=shape.num_heads, decoder_attention_heads=shape.num_heads,
        )
    )  # fmt: skip


def other_system(shape: Shape, heard: Utterances, device: Device) -> System:
    model, on_gpu = other_model(shape).to(device.torch), device.kind == "cuda"
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    made = heard.batch(shape.ids - 1)
    inputs = [made.source.values.float(), made.source.real.long(), made.labels]  # type: ignore[union-attr]
    inputs = [tensor.pin_memory() for tensor in inputs] if on_gpu else inputs

    def train() -> None:
        model.train()
        features, real, labels = (tensor.to(device.torch, non_blocking=True) for tensor in inputs)
        with free_convolutions(), device.mixed_precision():
            loss = model(input_features=features, attention_mask=real, labels=labels, use_cache=False).loss
        with free_convolutions():
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    @cache
    def searched() -> Any:
        """A copy in bfloat16, made when the memory of training has been measured; on a CPU the model itself."""
        return copy.deepcopy(model).to(torch.bfloat16) if on_gpu else model

    def transcribe(beam: int, tokens: int) -> list[int]:
        features, real = (tensor.to(device.torch) for tensor in inputs[:2])
        with torch.inference_mode(), free_convolutions():
            found = searched().eval().generate(
                input_features=features.to(searched().dtype), attention_mask=real, num_beams=beam, do_sample=False,
                min_new_tokens=tokens, max_new_tokens=tokens, length_penalty=1.0, early_stopping=False,
            )  # fmt: skip
        return [len(row) - 1 for row in found.tolist()]  # without the token that it starts from

    return System(_parameters(model), train, transcribe)


@contextlib.contextmanager
def free_convolutions() -> Iterator[None]:
    """Whichever convolutions are fastest: ours are limited to those that repeat the same bits."""
    before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def _parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


SYSTEMS: dict[str, Callable[[Shape, Utterances, Device], System]] = {
    "ours, no CTC": lambda shape, heard, device: our_system(
        shape, heard, device, convolution=0, ctc_weight=0.0, ctc_search=0.0
    ),
    "ours": lambda shape, heard, device: our_system(shape, heard, device, convolution=0),
    "ours, convolution": lambda shape, heard, device: our_system(shape, heard, device, convolution=shape.convolution),
    OTHER: other_system,
}
JOBS = ("training", "greedy", "beam")


def measure(length: int, shape: Shape, work: Work, device: Device) -> list[dict[str, Any]]:
    """A row for each system at one length of utterances."""
    heard = Utterances(length, work.seconds, shape.ids)
    tokens = max(2, round(TOKENS_PER_SECOND * length))
    systems = {name: built(make, shape, heard, device) for name, make in SYSTEMS.items()}
    for one in systems.values():
        for beam in (1, BEAM):
            one.transcribe(beam, 2)
    for number in range(work.rounds):
        take_turns(systems, number, tokens, work.steps, device)
    rows = [describe(name, one, systems[OTHER], length, heard) for name, one in systems.items()]
    systems.clear()
    release(device)
    return rows


def built(
    make: Callable[[Shape, Utterances, Device], System], shape: Shape, heard: Utterances, device: Device
) -> System:
    """A system after its first training steps, with the memory that it takes: weights, optimizer and a step."""
    release(device)
    before = allocated(device)
    system = make(shape, heard, device)
    for _ in range(2):
        system.train()
    system.memory_gib = (peak(device) - before) / 2**30
    return system


def release(device: Device) -> None:
    gc.collect()
    if device.kind == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        restart_peak()


def allocated(device: Device) -> int:
    return torch.cuda.memory_allocated() if device.kind == "cuda" else peak_resident()


def peak(device: Device) -> int:
    return torch.cuda.max_memory_allocated() if device.kind == "cuda" else peak_resident()


def take_turns(systems: dict[str, System], number: int, tokens: int, steps: int, device: Device) -> None:
    """A round: each job by each system; another one begins in each round."""
    names = list(systems)
    names = names[number % len(names) :] + names[: number % len(names)]
    for job in JOBS:
        for one in [systems[name] for name in names]:
            taken = timed(lambda one=one, job=job: run(one, job, tokens, steps), device)  # type: ignore[misc]
            for clock, seconds in zip((one.seconds, one.core_seconds), taken, strict=True):
                clock.setdefault(job, []).append(seconds / (steps if job == "training" else 1))


def run(system: System, job: str, tokens: int, steps: int) -> None:
    if job == "training":
        for _ in range(steps):
            system.train()
        return
    written = system.transcribe(BEAM if job == "beam" else 1, tokens)
    assert set(written) == {tokens}, f"{written} tokens instead of {tokens}"


def timed(job: Callable[[], None], device: Device) -> tuple[float, float]:
    """Seconds by the clock, and those that the cores of the CPU computed."""
    wait = torch.cuda.synchronize if device.kind == "cuda" else lambda: None
    wait()
    begun, computed = time.perf_counter(), time.process_time()
    job()
    wait()
    return time.perf_counter() - begun, time.process_time() - computed


def describe(name: str, one: System, other: System, length: int, heard: Utterances) -> dict[str, Any]:
    middle = {job: statistics.median(seconds) for job, seconds in one.seconds.items()}
    return {
        "length_s": length,
        "system": name,
        "parameters": one.parameters,
        "utterances": len(heard.features),
        "sound_s": round(heard.sound_seconds, 2),
        "padding": round(1 - float(heard.source_lengths.mean() / heard.source_lengths.max()), 3),
        "memory_gib": round(one.memory_gib, 3),
        "memory_ratio": round(other.memory_gib / one.memory_gib, 2) if one.memory_gib > 0 else None,
        "sound_s_per_s": round(heard.sound_seconds / middle["training"], 2),
        "real_time_factor": {job: round(middle[job] / heard.sound_seconds, 6) for job in JOBS[1:] if job in middle},
        "features_real_time_factor": round(heard.features_seconds / heard.sound_seconds, 6),
        "seconds": {job: [round(s, 5) for s in seconds] for job, seconds in one.seconds.items()},
        "core_seconds": {job: [round(s, 5) for s in seconds] for job, seconds in one.core_seconds.items()},
        "speed_ratio": {job: ratio(one.seconds[job], other.seconds[job]) for job in middle},
        "core_ratio": {job: ratio(one.core_seconds[job], other.core_seconds[job]) for job in middle},
    }


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """How many times faster than the other: over the rounds."""
    found = [their / our for our, their in zip(ours, theirs, strict=True)]
    middle = {"median": statistics.median(found), "least": min(found), "most": max(found)}
    return {name: round(value, 3) for name, value in middle.items()}


def table(rows: list[dict[str, Any]], which: str = "speed_ratio") -> str:
    """Memory and speeds; beside each speed of ours, how many times the other's it is."""
    lines = [
        f"{'sound':5}  {'system':17} {'param.':>6} {'GiB':>7} {'training s/s':>28} {'greedy RTF':>26} {'beam RTF':>26}"
    ]
    for row in rows:
        ratios, factors = row[which] if row["system"] != OTHER else {}, row["real_time_factor"]
        times = [_times(ratios[job]) if job in ratios else "" for job in JOBS]
        factor = {job: f"{factors[job]:.5f}" if job in factors else "" for job in JOBS[1:]}
        speeds = [f"{row['sound_s_per_s']:,.1f}", *factor.values()]
        lines.append(
            f"{row['length_s']:>3} s  {row['system']:17} {row['parameters'] / 1e6:>5.1f}M {row['memory_gib']:>7.2f} "
            f"{speeds[0]:>10} {times[0]:17} {speeds[1]:>8} {times[1]:17} {speeds[2]:>8} {times[2]:17}".rstrip()
        )
    by = {"speed_ratio": "by the clock", "core_ratio": "by the computing time of all cores"}[which]
    return "\n".join([*lines, f"RTF: real-time factor; times: as fast as {OTHER} {by}, least and most of the rounds"])


def _times(one: dict[str, float]) -> str:
    return f"{one['median']:.2f}x {one['least']:.2f}-{one['most']:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(WORK), default="cuda")
    parser.add_argument("--lengths", type=int, nargs="+", help="seconds of an utterance")
    parser.add_argument("--seconds", type=int, help="of sound in a training step and in a transcription")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--name", help="of the file in benchmarks/results; empty: write none")
    options = parser.parse_args()
    device, usual = choose_device(options.device), WORK[options.device]
    lengths = tuple(options.lengths or usual.lengths)
    work = Work(lengths, options.seconds or usual.seconds, usual.steps, options.rounds or usual.rounds)
    rows: list[dict[str, Any]] = []
    begun = time.perf_counter()
    measure(1, TOY, Work((1,), 2, 1, 1), device)
    for length in work.lengths:
        rows += measure(length, Shape(), work, device)
        print(f"{length} s: measured after {time.perf_counter() - begun:.0f} s", flush=True)
    name = options.name if options.name is not None else f"speech-speed-{'gpu' if device.kind == 'cuda' else 'cpu'}"
    if name:
        command = f"python benchmarks/speech_speed.py {shlex.join(sys.argv[1:])}".strip()
        write_result(name, command, ["torch", "transformers", "numpy"], settings=settings(work, device), rows=rows)
    if device.kind == "cpu":
        print(table(rows, "core_ratio"))
    print(table(rows))


def settings(work: Work, device: Device) -> dict[str, Any]:
    return {
        "device": device.name,
        "precision": "bfloat16" if device.bf16 else "float32",
        "seconds_per_step": work.seconds,
        "rounds": work.rounds,
        "beam": BEAM,
        "tokens_per_second": TOKENS_PER_SECOND,
        "frame_s": FRAME_SECONDS,
        "layout": "one utterance per row; the family speech has no packed rows",
    }


if __name__ == "__main__":
    main()
