"""Writes the tables of docs/scaling.md from the model of cost described there.

python docs/scaling.py            rewrites the tables between their marks
"""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "scaling.md"
BEGIN, END = "<!-- tables: python docs/scaling.py -->", "<!-- end of tables -->"

NVLINK, NETWORK = 360e9, 45e9  # bytes/s per GPU and direction, 80 % and 90 % of what is printed on the box
NODE = 8  # GPUs
# Parameters, and target tokens/s of one NVIDIA H200 by the tokens of a step (benchmarks/results/train-speed-gpu*.json).
MODELS = {"base": (63.1e6, {25_600: 1_042_268, 102_400: 1_113_792}), "big": (214.3e6, {25_600: 387_124})}


@dataclass(frozen=True)
class Cost:
    """One step of one GPU."""

    compute_s: float
    exchange_s: float
    network_bytes: float

    @property
    def efficiency(self) -> float:
        """The share of the time that is computation, as nothing overlaps."""
        return self.compute_s / (self.compute_s + self.exchange_s)


def flat(parameters: float, gpus: int, compute_s: float) -> Cost:
    """Two exchanges (gradients there, weights back) of an equal part with every other GPU."""
    part = 4 * parameters / gpus
    inside, outside = (min(gpus, NODE) - 1) * part, max(0, gpus - NODE) * part
    return Cost(compute_s, 2 * max(inside / NVLINK, outside / NETWORK), 2 * outside)


def in_two_levels(parameters: float, gpus: int, compute_s: float) -> Cost:
    """The same within each machine first, and then among the GPUs of equal number of all machines."""
    nodes = max(1, gpus // NODE)
    inside = 4 * parameters * (NODE - 1) / NODE
    outside = 4 * parameters / NODE * (nodes - 1) / nodes
    return Cost(compute_s, 2 * (inside / NVLINK + outside / NETWORK), 2 * outside)


def table() -> str:
    lines = [
        "| model, tokens per GPU | GPUs | computing | exchanging | network, GB per GPU | efficiency | in two levels |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (parameters, speeds) in MODELS.items():
        for tokens in (25_600, 102_400):
            speed = speeds.get(tokens, speeds[25_600])
            for gpus in (8, 64):
                one, two = (way(parameters, gpus, tokens / speed) for way in (flat, in_two_levels))
                lines.append(
                    f"| {name}, {tokens:,} | {gpus} | {1000 * one.compute_s:.1f} ms | {1000 * one.exchange_s:.1f} ms | "
                    f"{one.network_bytes / 1e9:.2f} | {one.efficiency:.0%} | {two.efficiency:.0%} |"
                )
    return "\n".join(lines)


def replaced(text: str) -> str:
    """The page with an up-to-date table between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
