"""Which model size learns most in the available time, from the cost of each size and the tokens it needs to pay off.

The thresholds come from `benchmarks/learning_curves.py` (the quality of each size after a number of tokens) and
`benchmarks/cpu_speeds.py` (the training speed of each size); docs/log.md has the figures. Knows only numbers: no data, no
device.
"""

from dataclasses import dataclass

# Batches are as large as possible while leaving this many steps: with fewer steps, smaller batches learn more.
ENOUGH_STEPS = {"translation": 1_800, "symbols": 3_000}
SMALLEST_BATCH = {"translation": 512, "symbols": 256}  # tokens
RATE = 0.54  # learning rate times d_model for batches of RATE_BATCH tokens; scaled by the square root for smaller ones
RATE_BATCH = 2_048
HIGHEST_RATE = {"translation": 4e-3, "symbols": 3e-3}
FEW_EPOCHS = {"translation": 12, "symbols": 28}  # up to so many, little dropout is best, and Muon learns more than Adam
MUON_RATE = 2.0  # its best learning rate over Adam's
MUON_SHARE = 0.5  # orthogonalising may take at most this share of the time of the rest of a step
HIGHEST_MUON_RATE = {"translation": 6e-3, "symbols": 5e-3}
SOME_EPOCHS = {"translation": 25, "symbols": 50}  # up to so many, a little more


@dataclass(frozen=True)
class Size:
    """The shape of a model with equal numbers of encoder and decoder layers."""

    d_model: int
    heads: int
    layers: int

    def weights(self, vocabulary: int, source_per_target: float) -> float:
        """Weights that each target token is multiplied by, including its share of the source; d_ff is 4 d_model."""
        per_layer = (12 * source_per_target + 16) * self.d_model**2
        return self.layers * per_layer + vocabulary * self.d_model


@dataclass(frozen=True)
class Machine:
    """The training speed of a device; all costs are measured in weights that a token is multiplied by."""

    weights_per_second: float
    per_channel: float  # the cost of everything but matrix products, per d_model and layer
    per_token: float
    step_seconds: float  # the shortest duration of a step, however small its batch
    muon: float = 0.0  # the cost of a step of Muon beyond that of Adam, per layer and d_model cubed; 0: not measured

    def tokens_per_second(self, size: Size, vocabulary: int, source_per_target: float = 1.0) -> float:
        channels = self.per_channel * size.d_model * size.layers
        cost = size.weights(vocabulary, source_per_target) + channels + self.per_token
        return self.weights_per_second / cost


REFERENCE = Size(128, 4, 2)  # timed on a CPU to measure its speed
REFERENCE_VOCABULARY, REFERENCE_LENGTH = 4_000, 12


def cpu(reference_tokens_per_second: float) -> Machine:
    """A CPU on which the reference model trains at this speed."""
    unit = Machine(1.0, per_channel=4_300, per_token=360_000, step_seconds=0.0)
    each = unit.tokens_per_second(REFERENCE, REFERENCE_VOCABULARY)
    speed = reference_tokens_per_second / each
    return Machine(speed, unit.per_channel, unit.per_token, step_seconds=0.003, muon=160)


def gpu(matrix_flops: float) -> Machine:
    """A GPU whose large matrix products reach this many operations per second; other costs as measured on an H200."""
    return Machine(62e12 * matrix_flops / 700e12, per_channel=1_860, per_token=6.2e6, step_seconds=0.0015)


# The best size is the largest that trains on at least this many million target tokens within the budget.
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
    """The size of a training task in numbers."""

    task: str
    vocabulary: int
    source_per_target: float
    tokens_per_epoch: float


@dataclass(frozen=True)
class Choice:
    """A model size with its batch size, and the steps and speed to expect."""

    size: Size
    tokens_per_batch: int
    steps: int
    tokens_per_second: float

    @property
    def tokens(self) -> float:
        return float(self.steps * self.tokens_per_batch)


@dataclass(frozen=True)
class Batches:
    """The candidate batch sizes in tokens: `most`, its half, and so on down to `least`."""

    most: int
    least: int


def choose(machine: Machine, seconds: float, work: Work, largest: Size, batches: Batches) -> Choice:
    """The size and batches that learn most in this many seconds, with no size larger than the data supports."""
    ladder = [(least, size) for least, size in SIZES[work.task] if size.d_model <= largest.d_model]
    for least, size in ladder:
        choice = for_size(machine, seconds, work, size, batches)
        if choice.tokens >= least * 1e6:
            return choice
    return choice


def for_size(machine: Machine, seconds: float, work: Work, size: Size, batches: Batches) -> Choice:
    """The largest batches that leave enough steps, for a given size."""
    speed = machine.tokens_per_second(size, work.vocabulary, work.source_per_target)
    batch = batches.most
    while _steps(machine, seconds, batch, speed) < ENOUGH_STEPS[work.task] and batch // 2 >= batches.least:
        batch //= 2
    steps = max(1, int(_steps(machine, seconds, batch, speed)))
    return Choice(size, batch, steps, steps * batch / seconds)


def with_muon(machine: Machine, seconds: float, work: Work, choice: Choice, batches: Batches) -> Choice:
    """The same size for Muon, with larger batches where orthogonalising would take too much of a step."""
    size, batch = choice.size, choice.tokens_per_batch
    speed = machine.tokens_per_second(size, work.vocabulary, work.source_per_target)
    extra = machine.muon * size.layers * size.d_model**3 / machine.weights_per_second
    while extra * speed > MUON_SHARE * batch and 2 * batch <= batches.most:
        batch *= 2
    steps = max(1, int(seconds / (1 / _steps(machine, 1.0, batch, speed) + extra)))
    return Choice(size, batch, steps, steps * batch / seconds)


def _steps(machine: Machine, seconds: float, batch: int, speed: float) -> float:
    return seconds / max(machine.step_seconds, batch / speed)


def learning_rate(task: str, d_model: int, tokens_per_batch: int) -> float:
    """The learning rate: lower for wider models and smaller batches, rounded to two digits for readability."""
    rate = RATE / d_model * (min(tokens_per_batch, RATE_BATCH) / RATE_BATCH) ** 0.5
    return float(f"{min(rate, HIGHEST_RATE[task]):.2g}")


def muon_rate(task: str, adams: float) -> float:
    """Muon's learning rate where Adam's is the given one."""
    return float(f"{min(MUON_RATE * adams, HIGHEST_MUON_RATE[task]):.2g}")


def dropout(task: str, most: float, epochs: float) -> float:
    """Dropout by the number of epochs: little if the data is seen a few times, up to `most` if it is seen often."""
    return min(most, 0.1 if epochs <= FEW_EPOCHS[task] else 0.2 if epochs <= SOME_EPOCHS[task] else most)
