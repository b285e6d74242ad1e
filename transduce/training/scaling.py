"""The model of cost of training on several GPUs: bytes and seconds of a step, and what they mean for a run.

A step is computation followed by two exchanges that do not overlap with it: gradients are added within each machine and then
across machines, and updated weights come back the same way (`transduce/training/exchange.py`). docs/scaling.md explains the
assumptions and has tables made by these functions; `transduce plan --gpus` applies them to a run. Knows numbers only.
"""

from dataclasses import asdict, dataclass
from typing import Any

from transduce.errors import SettingError
from transduce.training.clock import duration

NVLINK = 360e9  # bytes/s per GPU and direction within a machine: 80 % of the nominal 450 GB/s
NETWORK_GBITS = 400.0  # per GPU, between machines
NETWORK_SHARE = 0.9  # of the nominal speed
CHEAP = 0.1  # share of a step that communication may take before something should change
FEW_TOKENS = 10_000  # per GPU and step: with fewer, a large GPU is not busy

# One NVIDIA H200, fitted to three measurements (benchmarks/results/train-speed-gpu*.json): base with 25,600 and with 102,400
# target tokens per step, and big with 25,600.
STEP_S, TOKEN_S, WEIGHT_S = 2.103e-3, 0.1997e-6, 1.074e-14  # per step, per token, per token and parameter


def reference_seconds(parameters: float, tokens: float) -> float:
    """How long one NVIDIA H200 computes on a step of so many target tokens."""
    return STEP_S + tokens * (TOKEN_S + parameters * WEIGHT_S)


@dataclass(frozen=True)
class Cluster:
    """Machines with equally many GPUs, one process on each GPU."""

    gpus: int  # per machine
    nodes: int = 1
    network_gbits: float = NETWORK_GBITS

    def __post_init__(self) -> None:
        for option, count in (("--gpus", self.gpus), ("--nodes", self.nodes)):
            if count < 1 or count & (count - 1):
                raise SettingError(
                    f"{option} {count}: must be a power of two, such as {1 << max(0, count.bit_length() - 1)}: only a power "
                    "of two of processes can share a step"
                )
        if not self.network_gbits > 0:
            raise SettingError(f"--network {self.network_gbits:g}: must be above 0 Gb/s")

    @property
    def processes(self) -> int:
        return self.gpus * self.nodes

    def of_processes(self, count: int) -> "Cluster":
        """The first `count` GPUs, a power of two."""
        gpus = min(self.gpus, count)
        return Cluster(gpus, max(1, min(self.nodes, count // gpus)), self.network_gbits)


@dataclass(frozen=True)
class StepCost:
    """One step of one GPU."""

    alone_seconds: float  # the same step on a single GPU
    compute_seconds: float
    bytes_within: float  # sent to other GPUs of the machine
    bytes_across: float  # sent over the network
    exchange_seconds: float

    @property
    def seconds(self) -> float:
        return self.compute_seconds + self.exchange_seconds

    @property
    def communication(self) -> float:
        """The share of a step that is not hidden behind computation, as nothing overlaps."""
        return self.exchange_seconds / self.seconds

    @property
    def speed_up(self) -> float:
        return self.alone_seconds / self.seconds


def step_cost(
    cluster: Cluster, parameters: float, alone_seconds: float, compute_seconds: float, sends_bf16: bool
) -> StepCost:
    """The cost of a step; with `sends_bf16`, the first sum is over gradients of two bytes per parameter."""
    first, weights = (2 if sends_bf16 else 4), 4
    within = (cluster.gpus - 1) / cluster.gpus * parameters * (first + weights)
    first = 4 if cluster.gpus > 1 else first  # what a machine has added is float32
    across = (cluster.nodes - 1) / cluster.nodes * parameters / cluster.gpus * (first + weights)
    seconds = within / NVLINK + across / (NETWORK_SHARE * cluster.network_gbits * 1e9 / 8)
    return StepCost(alone_seconds, compute_seconds, within, across, seconds)


def reference_cost(cluster: Cluster, parameters: float, tokens_per_gpu: float, sends_bf16: bool = True) -> StepCost:
    """The cost of a step on NVIDIA H200s."""
    alone = reference_seconds(parameters, cluster.processes * tokens_per_gpu)
    return step_cost(cluster, parameters, alone, reference_seconds(parameters, tokens_per_gpu), sends_bf16)


def cheap_from(step: StepCost, tokens_per_gpu: float) -> int:
    """Tokens per GPU and step from which communication takes less than `CHEAP`, if computing grows with them."""
    return round((1 / CHEAP - 1) * step.exchange_seconds * tokens_per_gpu / step.compute_seconds)


@dataclass(frozen=True)
class Steps:
    """What a plan for one device knows about the steps of a run."""

    parameters: int
    tokens: float  # target tokens of a step, over all GPUs
    step_seconds: float  # on one device
    measured: bool  # on a GPU, rather than on a CPU
    shards: int
    sends_bf16: bool


@dataclass(frozen=True)
class Budget:
    """What is left of a run on one device."""

    steps: int
    minutes: bool  # whether the time is fixed and the steps follow from it
    validating_seconds: float  # in all; divided among the processes
    other_seconds: float  # to start, and to save checkpoints


@dataclass(frozen=True)
class ClusterFigures:
    """A run on several GPUs."""

    cluster: Cluster
    processes: int  # that train; the others stand by
    measured: bool
    tokens_per_gpu: float
    step: StepCost
    cheap_from: int  # tokens per GPU and step from which communication takes less than `CHEAP`
    steps: int
    seconds: float  # to the end of the budget
    changes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        step = self.step
        derived = {"seconds": step.seconds, "communication": step.communication, "speed_up": step.speed_up}
        return asdict(self) | {"step": asdict(step) | derived}

    def topics(self) -> list[tuple[str, str]]:
        """The figures as text: names and values."""
        step, cluster = self.step, self.cluster
        basis = "" if self.measured else " (predicted for NVIDIA H200s: no GPU was measured)"
        machines = f"{cluster.nodes} machines of " if cluster.nodes > 1 else ""
        across = f" and {_gigabytes(step.bytes_across)} over the network ({cluster.network_gbits:g} Gb/s per GPU)"
        only = "" if self.measured else " of training steps alone"
        return [
            (
                "cluster",
                f"{machines}{cluster.gpus} GPUs: {1000 * step.compute_seconds:.1f} ms of computing and "
                f"{1000 * step.exchange_seconds:.1f} ms of communication per step; {step.speed_up:.1f} times one GPU, "
                f"{step.speed_up / self.processes:.0%} of linear{basis}",
            ),
            (
                "bytes",
                f"per step, each GPU sends {_gigabytes(step.bytes_within)} within its machine"
                f"{across if cluster.nodes > 1 else ''}; communication is {step.communication:.0%} of a step with {self.tokens_per_gpu:,.0f} target tokens "
                f"per GPU, and below {CHEAP:.0%} from {self.cheap_from:,} tokens per GPU on",
            ),
            ("end", f"{self.steps:,} steps in {duration(self.seconds)}{only}"),
            *(("change", change) for change in self.changes),
        ]


def cluster_figures(cluster: Cluster, steps: Steps, budget: Budget) -> ClusterFigures:
    """What a run that was planned on one device would take on a cluster."""
    processes = min(cluster.processes, steps.shards)
    used, tokens = cluster.of_processes(processes), steps.tokens / processes
    if steps.measured:  # the shards were computed one after the other
        alone, compute = steps.step_seconds, steps.step_seconds / processes
    else:
        alone, compute = (reference_seconds(steps.parameters, count) for count in (steps.tokens, tokens))
    sends_bf16 = steps.sends_bf16 and processes == steps.shards
    step = step_cost(used, steps.parameters, alone, compute, sends_bf16)
    number, seconds = _end(step.seconds, steps, budget, processes)
    return ClusterFigures(
        cluster=cluster,
        processes=processes,
        measured=steps.measured,
        tokens_per_gpu=tokens,
        step=step,
        cheap_from=cheap_from(step, tokens),
        steps=number,
        seconds=seconds,
        changes=tuple(_changes(cluster, processes, tokens, step)),
    )


def _end(step_seconds: float, steps: Steps, budget: Budget, processes: int) -> tuple[int, float]:
    """The steps to the end of the budget, and their seconds."""
    training = budget.steps * steps.step_seconds
    if budget.minutes:
        other = budget.validating_seconds + budget.other_seconds
        return round(training / step_seconds), training + (other if steps.measured else 0.0)
    other = budget.validating_seconds / processes + budget.other_seconds
    return budget.steps, budget.steps * step_seconds + (other if steps.measured else 0.0)


def _changes(cluster: Cluster, processes: int, tokens: float, step: StepCost) -> list[str]:
    found = []
    if processes < cluster.processes:
        found.append(
            f"only {processes} of {cluster.processes} GPUs can train: start a new run with --set train.shards={cluster.processes}"
        )
    least = max(FEW_TOKENS, cheap_from(step, tokens))
    larger = f"--set train.tokens_per_batch={least * processes}, with a higher learning rate and a longer warm-up"
    if step.communication > CHEAP:
        network = step.exchange_seconds - step.bytes_within / NVLINK > step.exchange_seconds / 2
        other = ", fewer machines or a faster network" if network else ""
        found.append(f"communication takes {step.communication:.0%} of a step: {larger}{other}")
    elif tokens < FEW_TOKENS:
        found.append(f"{tokens:,.0f} target tokens per GPU and step leave a large GPU idle: {larger}; or fewer GPUs")
    return found


def _gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.2f} GB"
