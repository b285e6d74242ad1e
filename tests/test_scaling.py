"""The model of cost of several GPUs: bytes by counting, limits that must hold, and what a plan says about them."""

import pytest

from transduce.errors import SettingError
from transduce.training.scaling import (
    CHEAP,
    NVLINK,
    Budget,
    Cluster,
    Steps,
    cheap_from,
    cluster_figures,
    reference_cost,
    reference_seconds,
)

BASE = 63_100_000
RUN = Budget(steps=1_000, minutes=False, validating_seconds=80.0, other_seconds=20.0)


def steps(**changed: object) -> Steps:
    usual = {
        "parameters": BASE,
        "tokens": 204_800,
        "step_seconds": 0.2,
        "measured": True,
        "shards": 8,
        "sends_bf16": True,
    }
    return Steps(**usual | changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "tokens", "speed"),
    [(BASE, 25_600, 1_042_268), (BASE, 102_400, 1_113_792), (214_300_000, 25_600, 387_124)],
)
def test_the_reference_gpu_is_as_fast_as_measured(parameters: int, tokens: int, speed: int) -> None:
    assert tokens / reference_seconds(parameters, tokens) == pytest.approx(speed, rel=0.002)


def test_bytes_are_those_of_the_exchange_in_two_levels() -> None:
    one, many = (reference_cost(cluster, 64.0, 100) for cluster in (Cluster(8), Cluster(8, 4)))
    # 64 numbers, 8 for each of 8 GPUs: gradients of 2 bytes and weights of 4 to seven others.
    assert one.bytes_within == many.bytes_within == 7 * 8 * (2 + 4)
    assert one.bytes_across == 0
    assert many.bytes_across == 3 * 2 * (4 + 4)  # 8 numbers, 2 for each of 4 machines, which are sums
    assert reference_cost(Cluster(1, 4), 64.0, 100).bytes_across == 3 * 16 * (2 + 4)


def test_more_tokens_hide_communication_and_a_slower_network_shows_it() -> None:
    shares = [reference_cost(Cluster(8, 8), BASE, tokens).communication for tokens in (10_000, 25_600, 102_400)]
    assert shares == sorted(shares, reverse=True)
    slow = reference_cost(Cluster(8, 8, network_gbits=100), BASE, 25_600)
    assert slow.communication > 2 * shares[1]
    assert reference_cost(Cluster(1), BASE, 25_600).speed_up == 1
    assert reference_cost(Cluster(8, 8), BASE, 102_400).speed_up < 64
    enough = cheap_from(slow, 25_600)
    assert reference_cost(Cluster(8, 8, network_gbits=100), BASE, enough).communication == pytest.approx(CHEAP, rel=0.1)


def test_a_measured_run_is_divided_among_the_gpus() -> None:
    found = cluster_figures(Cluster(8), steps(), RUN)
    assert found.step.compute_seconds == pytest.approx(0.2 / 8)
    assert found.step.exchange_seconds == pytest.approx(7 / 8 * BASE * 6 / NVLINK)
    assert found.tokens_per_gpu == 25_600
    assert found.changes == ()
    assert found.seconds == pytest.approx(1_000 * found.step.seconds + 80 / 8 + 20)
    in_time = cluster_figures(Cluster(8), steps(), Budget(1_000, True, 80.0, 20.0))
    assert in_time.seconds == pytest.approx(300)
    assert in_time.steps == pytest.approx(200 / found.step.seconds, rel=0.01)


@pytest.mark.parametrize(
    ("cluster", "changed", "said"),
    [
        (Cluster(8), {"shards": 2}, "only 2 of 8 GPUs can train: start a new run with --set train.shards=8"),
        (Cluster(8), {"tokens": 8_000}, "1,000 target tokens per GPU and step leave a large GPU idle"),
        (Cluster(8, 8, 25), {"shards": 64}, "fewer machines or a faster network"),
    ],
)
def test_a_plan_says_what_to_change(cluster: Cluster, changed: dict[str, object], said: str) -> None:
    found = cluster_figures(cluster, steps(**changed), RUN)
    assert said in "; ".join(found.changes)
    assert said in "; ".join(text for name, text in found.topics() if name == "change")


def test_following_the_advice_helps() -> None:
    slow = Cluster(8, 8, 25)
    (said,) = cluster_figures(slow, steps(shards=64), RUN).changes
    tokens = int(said.split("train.tokens_per_batch=")[1].split(",")[0])
    larger = steps(shards=64, tokens=tokens, step_seconds=0.2 * tokens / 204_800)
    assert cluster_figures(slow, larger, RUN).changes == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((6, 1, 400.0), "--gpus 6: must be a power of two, such as 4"),
        ((8, 3, 400.0), "--nodes 3: must be a power of two, such as 2"),
        ((8, 2, 0.0), "--network 0: must be above 0"),
    ],
)
def test_what_cannot_be_planned_is_refused(given: tuple[int, int, float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Cluster(*given)
