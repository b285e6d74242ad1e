"""Which model is worth training in the time there is: sizes, what they cost and after how many tokens they pay.

The thresholds come from `benchmarks/learning_curves.py` (what each size reaches after how many tokens) and
`benchmarks/cpu_speeds.py` (how fast it sees them); docs/log.md has the figures. Knows numbers only: no data, no device.
"""

from dataclasses import dataclass

# Batches are as large as leaves this many steps: with fewer steps, smaller batches learn more.
ENOUGH_STEPS = {"translation": 1_800, "symbols": 3_000}
SMALLEST_BATCH = {"translation": 512, "symbols": 256}  # tokens
RATE = 0.54  # learning rate times d_model, for batches of RATE_BATCH tokens; it falls with the root of smaller ones
RATE_BATCH = 2_048
HIGHEST_RATE = {"translation": 4e-3, "symbols": 3e-3}
FEW_EPOCHS, SOME_EPOCHS = 12, 25  # up to which little dropout, and then a little more, is best


@dataclass(frozen=True)
class Size:
    """The shape of a model with as many encoder as decoder layers."""

    d_model: int
    heads: int
    layers: int

    def weights(self, vocabulary: int, source_per_target: float) -> float:
        """Weights that a target token is multiplied by, its share of the source included; d_ff is 4 d_model."""
        per_layer = (12 * source_per_target + 16) * self.d_model**2
        return self.layers * per_layer + vocabulary * self.d_model


@dataclass(frozen=True)
class Machine:
    """How fast a device trains: all costs are counted in weights that a token is multiplied by."""

    weights_per_second: float
    per_channel: float  # the cost of everything but matrix products, times d_model and layers
    per_token: float
    step_seconds: float  # no step is shorter, however small its batch

    def tokens_per_second(self, size: Size, vocabulary: int, source_per_target: float = 1.0) -> float:
        channels = self.per_channel * size.d_model * size.layers
        cost = size.weights(vocabulary, source_per_target) + channels + self.per_token
        return self.weights_per_second / cost


REFERENCE = Size(128, 4, 2)  # timed on a CPU to learn how fast it is
REFERENCE_VOCABULARY, REFERENCE_LENGTH = 4_000, 12


def cpu(reference_tokens_per_second: float) -> Machine:
    """A CPU on which the reference model trains at this speed."""
    unit = Machine(1.0, per_channel=4_300, per_token=360_000, step_seconds=0.0)
    each = unit.tokens_per_second(REFERENCE, REFERENCE_VOCABULARY)
    return Machine(reference_tokens_per_second / each, unit.per_channel, unit.per_token, step_seconds=0.003)


def gpu(matrix_flops: float) -> Machine:
    """A GPU whose large matrix products reach this many operations a second; the rest as measured on an H200."""
    return Machine(62e12 * matrix_flops / 700e12, per_channel=1_860, per_token=6.2e6, step_seconds=0.0015)


# The largest size that sees at least this many million target tokens within the budget learns most.
SIZES: dict[str, list[tuple[float, Size]]] = {
    "translation": [
        (30.0, Size(512, 8, 6)),
        (14.0, Size(384, 6, 4)),
        (9.0, Size(256, 4, 3)),
        (7.0, Size(192, 4, 3)),
        (6.0, Size(128, 4, 3)),
        (0.4, Size(128, 4, 2)),
        (0.0, Size(64, 4, 2)),
    ],
    "symbols": [
        (8.0, Size(256, 4, 3)),
        (2.5, Size(128, 4, 3)),
        (0.3, Size(128, 4, 2)),
        (0.0, Size(64, 4, 2)),
    ],
}


@dataclass(frozen=True)
class Work:
    """What is to be learned, in numbers."""

    task: str
    vocabulary: int
    source_per_target: float
    tokens_per_epoch: float


@dataclass(frozen=True)
class Choice:
    """A size with its batches, and how far it comes."""

    size: Size
    tokens_per_batch: int
    steps: int
    tokens_per_second: float

    @property
    def tokens(self) -> float:
        return float(self.steps * self.tokens_per_batch)


@dataclass(frozen=True)
class Batches:
    """The tokens per batch to choose from: halves of the most, down to the least."""

    most: int
    least: int


def choose(machine: Machine, seconds: float, work: Work, largest: Size, batches: Batches) -> Choice:
    """The size and batches that learn most in so many seconds of training, none larger than what the data support."""
    ladder = [(least, size) for least, size in SIZES[work.task] if size.d_model <= largest.d_model]
    for least, size in ladder:
        choice = for_size(machine, seconds, work, size, batches)
        if choice.tokens >= least * 1e6:
            return choice
    return choice


def for_size(machine: Machine, seconds: float, work: Work, size: Size, batches: Batches) -> Choice:
    """The largest batches that leave enough steps, for a size that is given."""
    speed = machine.tokens_per_second(size, work.vocabulary, work.source_per_target)
    batch = batches.most
    while _steps(machine, seconds, batch, speed) < ENOUGH_STEPS[work.task] and batch // 2 >= batches.least:
        batch //= 2
    steps = max(1, int(_steps(machine, seconds, batch, speed)))
    return Choice(size, batch, steps, steps * batch / seconds)


def _steps(machine: Machine, seconds: float, batch: int, speed: float) -> float:
    return seconds / max(machine.step_seconds, batch / speed)


def learning_rate(task: str, d_model: int, tokens_per_batch: int) -> float:
    """Lower for wider models and for smaller batches; rounded, since nobody can tell 0.00211 from 0.0021."""
    rate = RATE / d_model * (min(tokens_per_batch, RATE_BATCH) / RATE_BATCH) ** 0.5
    return float(f"{min(rate, HIGHEST_RATE[task]):.2g}")


def dropout(most: float, epochs: float) -> float:
    """Data that are seen a few times need little of it; what is seen often needs what the size of the data asks for."""
    return min(most, 0.1 if epochs <= FEW_EPOCHS else 0.2 if epochs <= SOME_EPOCHS else most)
