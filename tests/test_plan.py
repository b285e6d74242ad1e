"""A budget in minutes: the plan meets it on a simulated clock, whatever the machine does on the way."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.training.plan import (
    EARLY,
    FEWEST_LINES,
    FINAL_SHARE,
    FINAL_VALIDATIONS,
    LEAST_TRAINING,
    VALIDATIONS,
    Costs,
    Plan,
    end_of_training,
    ends_early,
    final_seconds,
    lines_for,
    pauses_left,
    revise,
    validated_pauses,
)

Pace = Callable[[float], float]  # seconds of a step at a moment of the run


def simulate(minutes: float, started: float, costs: Costs, pace: Pace) -> tuple[float, list[Plan]]:
    """The whole command in seconds, and every plan there was: the loop of training with a clock that is a number."""
    spent, step = started, 0
    plan = revise(Plan(minutes, started, 0, 1.0, 0, 0, False, 100), 0, spent, costs)
    plans = [plan]
    since = (step, spent)
    while True:
        spent += pace(spent)
        step += 1
        if spent >= end_of_training(plan, costs):
            break
        early = step >= plan.last_step and ends_early(plan, spent, costs)
        if step >= plan.last_step and not early:
            break
        if early or step >= plan.pause:
            costs.step = (spent - since[1]) / (step - since[0])
            spent += costs.validation * (plan.validates and not early)
            plan = revise(plan, step, spent, costs)
            plans.append(plan)
            spent += costs.checkpoint
            since = (step, spent)
    return spent + costs.ending, plans


@given(
    minutes=st.floats(0.5, 60),
    started=st.floats(0, 0.4),
    steps=st.integers(300, 20_000),
    guess=st.floats(0.3, 4),
    validation=st.floats(0.001, 0.02),
    checkpoint=st.floats(0.0001, 0.004),
)
@settings(max_examples=60, deadline=None)
def test_the_command_ends_on_time(
    minutes: float, started: float, steps: int, guess: float, validation: float, checkpoint: float
) -> None:
    """Within 5 % of the budget, however wrong the first guess of the pace was."""
    seconds = 60 * minutes
    true = seconds / steps
    costs = Costs(step=guess * true, validation=validation * seconds, checkpoint=checkpoint * seconds)
    whole, plans = simulate(minutes, started * seconds, costs, lambda _: true)
    assert 0.95 * seconds <= whole <= 1.01 * seconds + 2 * true
    shares = [plan.left for plan in plans]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("slower", [0.4, 2.5])
@pytest.mark.parametrize("moment", [0.3, 0.7, 0.93])
def test_another_job_that_starts_or_stops_beside_it(slower: float, moment: float) -> None:
    costs = Costs(step=0.1, validation=2.0, checkpoint=0.2)
    whole, _ = simulate(5, 20, costs, lambda spent: 0.1 * (slower if spent > moment * 300 else 1.0))
    assert 0.93 * 300 <= whole <= 1.02 * 300


def test_validations_take_a_tenth_at_most() -> None:
    for validation in (0.01, 0.3, 2.0, 5.0, 9.0, 20.0):
        costs = Costs(step=0.1, validation=validation, checkpoint=0.1)
        _, plans = simulate(5, 10, costs, lambda _: 0.1)
        count = sum(plan.validates for plan in plans[:-1]) + FINAL_VALIDATIONS
        assert count == FINAL_VALIDATIONS or count * validation <= VALIDATIONS * 300


def test_pauses_are_fewer_where_a_checkpoint_takes_long() -> None:
    quick, slow = Costs(1, 1, 0.1), Costs(1, 1, 10)
    assert len(pauses_left(5, 0.0, slow)) < len(pauses_left(5, 0.0, quick))
    assert pauses_left(5, 0.5, quick)[0] > 0.5


@pytest.mark.parametrize("checkpoint", [0.01, 10.0], ids=["many pauses", "few pauses"])
def test_as_many_validations_as_the_budget_allows(checkpoint: float) -> None:
    for count in range(1, 12):
        costs = Costs(step=1, validation=VALIDATIONS * 300 / (count + FINAL_VALIDATIONS + 0.01), checkpoint=checkpoint)
        pauses = validated_pauses(5, costs)
        assert len(pauses) == len(set(pauses)) == min(count, 3 if checkpoint > 1 else 7)
        assert min(pauses) >= 0.2
    assert validated_pauses(5, Costs(1, 20, 0.1)) == []


def test_time_is_reserved_for_the_final_score() -> None:
    assert final_seconds(5, 0.1, lines=40, most=1_000) == FINAL_SHARE * 300
    assert final_seconds(5, 0.01, lines=40, most=100) == 1.0  # all lines take no longer
    assert final_seconds(5, 0.01, lines=100, most=100) == 0
    costs = Costs(step=0.1, validation=2.0, checkpoint=0.2, final_score=20.0)
    assert costs.ending == replace(costs, final_score=0.0).ending + 20
    whole, _ = simulate(5, 20, costs, lambda _: 0.1)
    assert 0.95 * 300 <= whole <= 1.01 * 300


def test_the_learning_rate_falls_with_the_time_that_is_left() -> None:
    plan = Plan(5, 0, step=100, left=0.6, last_step=399, pause=200, validates=False, lines=10)
    assert plan.left_at(100) == pytest.approx(0.6)
    assert plan.left_at(250) == pytest.approx(0.3)
    assert plan.left_at(400) == 0
    costs = Costs(step=1.0, validation=0, checkpoint=0)
    slower = revise(plan, 200, 240, costs)
    assert slower.left == pytest.approx((300 - costs.ending - 240) / (300 - costs.ending))


def test_the_share_that_is_left_never_rises() -> None:
    """Even if the end of the run turns out to be cheaper than it seemed; the learning rate follows it."""
    expensive, cheap = Costs(step=1.0, validation=30.0, checkpoint=1.0), Costs(step=1.0, validation=1.0, checkpoint=1.0)
    plan = revise(Plan(5, 10, 0, 1.0, 0, 0, False, 10), 100, 110, expensive)
    assert 0 < plan.left < 0.6
    assert revise(plan, 101, 111, cheap).left == plan.left
    assert revise(plan, 200, 210, cheap).left < plan.left


def test_a_budget_that_is_over_leaves_no_steps() -> None:
    over = revise(Plan(1, 5, 0, 1.0, 100, 10, False, 10), 50, 61, Costs(0.1, 1, 0.1))
    assert (over.last_step, over.left) == (50, 0.0)


def test_where_reading_the_data_took_the_whole_budget_something_is_trained_all_the_same() -> None:
    late = revise(Plan(1, 70, 0, 1.0, 0, 0, False, 10), 0, 70, Costs(0.1, 0.01, 0.01))
    assert 0.8 * LEAST_TRAINING * 600 < late.last_step <= LEAST_TRAINING * 600
    assert late.left == 1.0
    slow = revise(Plan(2, 60, 0, 1.0, 0, 0, False, 10), 0, 60, Costs(0.1, 0.5, 10))  # a checkpoint takes 10 s
    assert slow.last_step > 50


def test_a_run_that_would_end_early_goes_on() -> None:
    plan, costs = Plan(5, 0, 0, 1.0, 100, 10, False, 10), Costs(0.1, 0, 0)
    assert ends_early(plan, 300 * (1 - 2 * EARLY), costs)
    assert not ends_early(replace(plan, step=90), 299, costs)


@pytest.mark.parametrize(
    ("per_line", "most", "lines"), [(1.0, 1000, FEWEST_LINES), (0.01, 1000, 450), (1e-5, 1000, 1000), (1.0, 5, 5)]
)
def test_a_validation_translates_what_the_budget_allows(per_line: float, most: int, lines: int) -> None:
    assert lines_for(5, per_line, most) == pytest.approx(lines, abs=1)


def test_a_run_without_an_average_ends_sooner() -> None:
    costs = {
        averages: Costs(step=1, validation=5, checkpoint=2, closing=3, averages=averages) for averages in (True, False)
    }
    assert (costs[True].ending, costs[False].ending) == (2 * 5 + 3 * 2 + 3, 5 + 2 * 2 + 3)
