"""Which model size learns most in the available time, from the cost of each size and the tokens it needs to pay off.

The thresholds come from `benchmarks/learning_curves.py` (the quality of each size after a number of tokens) and
`benchmarks/cpu_speeds.py` (the training speed of each size); docs/log.md has the figures. Knows only numbers: no data, no
device.
"""

from dataclasses import dataclass, replace

# Batches are as large as possible while leaving this many steps: with fewer steps, smaller batches learn more.
ENOUGH_STEPS = {"translation": 1_800, "symbols": 3_000, "text": 2_000, "speech": 2_500}
SMALLEST_BATCH = {"translation": 512, "symbols": 256, "text": 512, "speech": 128}  # tokens
FEW_EPOCHS = {"translation": 12, "symbols": 28, "text": 12, "speech": 20}  # up to so many, little dropout is best
MUON_EPOCHS = FEW_EPOCHS | {"text": 40}  # up to so many, Muon learns more than Adam
MUON_RATE = 2.0  # its best learning rate over Adam's
MUON_SHARE = 0.5  # orthogonalising may take at most this share of the time of the rest of a step
HIGHEST_MUON_RATE = {"translation": 6e-3, "symbols": 5e-3, "text": 6e-3, "speech": 4e-3}
SOME_EPOCHS = {"translation": 25, "symbols": 50, "text": 40, "speech": 50}  # up to so many, a little more
DROPOUT = {  # for few epochs, and for some
    "translation": (0.1, 0.2),
    "symbols": (0.1, 0.2),
    "text": (0.0, 0.1),
    "speech": (0.1, 0.1),
}


@dataclass(frozen=True)
class Rate:
    """Adam's learning rate for batches of `tokens`; it is scaled by the square root for smaller ones."""

    times_width: float  # the learning rate times d_model
    tokens: int
    highest: float
    lowest: float = 0.0


RATES = {
    "translation": Rate(0.54, 2_048, highest=4e-3),
    "symbols": Rate(0.54, 2_048, highest=3e-3),
    "text": Rate(0.77, 16_384, highest=3e-3),
    "speech": Rate(0.144, 128, highest=2e-3, lowest=1e-3),
}


@dataclass(frozen=True)
class LayerCost:
    """What a layer costs: weights per d_model squared, and the costs of a machine beyond matrix products."""

    source: float  # weights that a position of the source is multiplied by
    target: float  # weights that a target token is multiplied by
    channels: float  # times `Machine.per_channel`, for each target token
    tokens: float = 1.0  # times `Machine.per_token`
    steps: float = 1.0  # times `Machine.step_seconds`
    of_speech: bool = False  # whether `Machine.per_frame_channel` is added for each position of the source
    muon: float = 1.0  # times `Machine.muon`


PAIRS = LayerCost(source=12, target=16, channels=1.0)
LAYERS = {
    "translation": PAIRS,
    "symbols": PAIRS,
    "text": LayerCost(
        source=0, target=12, channels=0.5, tokens=0.0, muon=0.5
    ),  # a decoder without attention to a source
    # Two Conformer layers in the encoder for each layer of the decoder.
    "speech": LayerCost(source=48, target=16, channels=0.5, steps=5.0, of_speech=True, muon=2.4),
}


@dataclass(frozen=True)
class Size:
    """The shape of a model; its layers are those of the decoder."""

    d_model: int
    heads: int
    layers: int

    def weights(self, vocabulary: int, source_per_target: float, layer: LayerCost = PAIRS) -> float:
        """Weights that each target token is multiplied by, including its share of the source; d_ff is 4 d_model."""
        per_layer = (layer.source * source_per_target + layer.target) * self.d_model**2
        return self.layers * per_layer + vocabulary * self.d_model


@dataclass(frozen=True)
class Machine:
    """The training speed of a device; all costs are measured in weights that a token is multiplied by."""

    weights_per_second: float
    per_channel: float  # the cost of everything but matrix products, per d_model and layer
    per_token: float
    step_seconds: float  # the shortest duration of a step, however small its batch
    muon: float = 0.0  # the cost of a step of Muon beyond that of Adam, per layer and d_model cubed; 0: not measured
    per_frame_channel: float = 0.0  # the same as `per_channel` for speech, per position of the encoder

    def tokens_per_second(
        self, size: Size, vocabulary: int, source_per_target: float = 1.0, layer: LayerCost = PAIRS
    ) -> float:
        per_channel = layer.channels * self.per_channel + layer.of_speech * self.per_frame_channel * source_per_target
        channels = per_channel * size.d_model * size.layers
        cost = size.weights(vocabulary, source_per_target, layer) + channels + layer.tokens * self.per_token
        return self.weights_per_second / cost


REFERENCE = Size(128, 4, 2)  # timed on a CPU to measure its speed
REFERENCE_VOCABULARY, REFERENCE_LENGTH = 4_000, 12


def cpu(reference_tokens_per_second: float) -> Machine:
    """A CPU on which the reference model trains at this speed."""
    unit = Machine(1.0, per_channel=4_300, per_token=360_000, step_seconds=0.0)
    each = unit.tokens_per_second(REFERENCE, REFERENCE_VOCABULARY)
    speed = reference_tokens_per_second / each
    return replace(unit, weights_per_second=speed, step_seconds=0.003, muon=160, per_frame_channel=18_000)


def gpu(matrix_flops: float) -> Machine:
    """A GPU whose large matrix products reach this many operations per second; other costs as measured on an H200."""
    speed = 62e12 * matrix_flops / 700e12
    return Machine(speed, per_channel=1_860, per_token=6.2e6, step_seconds=0.0015, per_frame_channel=100_000)


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
    "text": [  # in million characters; from 256 on, by recipes for GPUs and the law of Hoffmann et al. 2022
        (2_000.0, Size(768, 12, 12)),
        (300.0, Size(512, 8, 6)),
        (30.0, Size(384, 6, 6)),
        (15.0, Size(256, 4, 4)),
        (2.5, Size(128, 4, 4)),
        (2.5, Size(128, 4, 2)),
        (0.0, Size(64, 4, 2)),
    ],
    "speech": [  # from 144 on, by the recipes for hours of speech
        (40.0, Size(256, 4, 6)),
        (15.0, Size(256, 4, 4)),
        (5.0, Size(144, 4, 3)),
        (1.0, Size(96, 4, 2)),
        (0.0, Size(64, 4, 1)),
    ],
}


@dataclass(frozen=True)
class Work:
    """The size of a training task in numbers."""

    task: str
    vocabulary: int
    source_per_target: float
    tokens_per_epoch: float
    fewest_epochs: float = 0.0  # in fewer, little is learned, however large the model
    characters_per_token: float = 1.0  # of text; for pairs and speech, tokens are counted as they are

    @property
    def layer(self) -> LayerCost:
        return LAYERS[self.task]

    def tokens_per_second(self, machine: Machine, size: Size) -> float:
        """Target tokens that a machine trains a model of this size on in a second, with batches that are large enough."""
        return machine.tokens_per_second(size, self.vocabulary, self.source_per_target, self.layer)


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
    ladder = [one for one in SIZES[work.task] if one[1].d_model <= largest.d_model and one[1].layers <= largest.layers]
    for least, size in ladder:
        choice = for_size(machine, seconds, work, size, batches)
        often_enough = choice.tokens >= work.fewest_epochs * work.tokens_per_epoch
        if often_enough and choice.tokens * work.characters_per_token >= least * 1e6:
            return choice
    return choice


def for_size(machine: Machine, seconds: float, work: Work, size: Size, batches: Batches) -> Choice:
    """The largest batches that leave enough steps, for a given size."""
    speed = work.tokens_per_second(machine, size)
    batch = batches.most
    while _steps(machine, seconds, work, batch, speed) < ENOUGH_STEPS[work.task] and batch // 2 >= batches.least:
        batch //= 2
    steps = max(1, int(_steps(machine, seconds, work, batch, speed)))
    return Choice(size, batch, steps, steps * batch / seconds)


def with_muon(machine: Machine, seconds: float, work: Work, choice: Choice, batches: Batches) -> Choice:
    """The same size for Muon, with larger batches where orthogonalising would take too much of a step."""
    size, batch = choice.size, choice.tokens_per_batch
    speed = work.tokens_per_second(machine, size)
    extra = machine.muon * work.layer.muon * size.layers * size.d_model**3 / machine.weights_per_second
    while extra * speed > MUON_SHARE * batch and 2 * batch <= batches.most:
        batch *= 2
    steps = max(1, int(seconds / (1 / _steps(machine, 1.0, work, batch, speed) + extra)))
    return Choice(size, batch, steps, steps * batch / seconds)


def _steps(machine: Machine, seconds: float, work: Work, batch: int, speed: float) -> float:
    return seconds / max(work.layer.steps * machine.step_seconds, batch / speed)


def learning_rate(task: str, d_model: int, tokens_per_batch: int) -> float:
    """The learning rate: lower for wider models and smaller batches, rounded to two digits for readability."""
    of_task = RATES[task]
    rate = of_task.times_width / d_model * (min(tokens_per_batch, of_task.tokens) / of_task.tokens) ** 0.5
    return float(f"{min(max(rate, of_task.lowest), of_task.highest):.2g}")


def muon_rate(task: str, adams: float) -> float:
    """Muon's learning rate where Adam's is the given one."""
    return float(f"{min(MUON_RATE * adams, HIGHEST_MUON_RATE[task]):.2g}")


def dropout(task: str, most: float, epochs: float) -> float:
    """Dropout by the number of epochs: little if the data is seen a few times, up to `most` if it is seen often."""
    few, some = DROPOUT[task]
    return min(most, few if epochs <= FEW_EPOCHS[task] else some if epochs <= SOME_EPOCHS[task] else most)
