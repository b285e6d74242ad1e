"""The clock of a run: when it ends, when it pauses, and how much is left."""

import re
import time

import pytest

from transduce.config import TrainConfig
from transduce.training.clock import Clock, _until, duration
from transduce.training.minutes import MinutesBudget
from transduce.training.plan import Costs, Plan
from transduce.training.processes import Alone
from transduce.training.progress import Progress


def clock(config: TrainConfig, progress: Progress, spent: float = 0.0) -> Clock:
    costs = Costs(step=1.0, validation=0.0, checkpoint=0.0, closing=0.0)
    return Clock(config, progress, 10, costs, time.perf_counter() - spent)


def test_a_budget_in_steps_has_no_plan_and_ends_at_its_last_step() -> None:
    progress = Progress()
    run = clock(TrainConfig(steps=20), progress)
    assert (run.plan, run.last_step, run.is_over, run.pause_due()) == (None, 20, False, None)
    progress.step = 20
    assert run.is_over
    assert run.forecast().seconds == 0


def test_a_run_that_is_out_of_time_ends_at_this_step() -> None:
    plan = Plan(1.0, 0.0, 0, 1.0, last_step=100, pause=50, validates=False, lines=10)
    progress = Progress(step=30, plan=plan)
    run = clock(TrainConfig(steps=0, minutes=1.0), progress, spent=61.0)
    assert run.pause_due() is None
    assert (run.last_step, run.is_over) == (30, True)


def test_a_spent_budget_is_described_without_an_end() -> None:
    plan = Plan(1.0, 13.0, 0, 1.0, last_step=31, pause=50, validates=False, lines=10)
    run = clock(TrainConfig(steps=0, minutes=1.0), Progress(step=30, plan=plan), spent=84.0)
    assert run.describe().endswith("; the budget is already spent: the run will be validated and finished")


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (TrainConfig(steps=0, minutes=3.0), TrainConfig(steps=0, minutes=1.0), "a budget of 3 minutes, of which 1.1 are used; with --minutes 1"),
        (TrainConfig(steps=2_000), TrainConfig(steps=50), "a budget of 2,000 steps, of which 60 are used; with --steps 50"),
        (TrainConfig(steps=0, epochs=8.0), TrainConfig(steps=0, epochs=2.0), "a budget of 8 epochs, of which 6 are used; with --epochs 2"),
        (TrainConfig(steps=0, minutes=3.0), TrainConfig(steps=50, minutes=3.0), "no limit in steps; so far 60 are used; with --steps 50"),
    ],
)  # fmt: skip
def test_a_smaller_budget_that_ends_a_resumed_run_is_named(before: TrainConfig, now: TrainConfig, message: str) -> None:
    progress = Progress(step=60, spent=66.0)
    assert clock(now, progress).cut_short(before) == f"this run had {message} it ends now"
    assert clock(before, progress).cut_short(before) == ""


def test_a_finished_run_is_not_cut_short() -> None:
    assert clock(TrainConfig(steps=20), Progress(step=60)).cut_short(TrainConfig(steps=60)) == ""


def test_a_run_pauses_where_its_plan_says() -> None:
    plan = Plan(1.0, 0.0, 0, 1.0, last_step=100, pause=50, validates=True, lines=10)
    progress = Progress(step=49, plan=plan)
    run = clock(TrainConfig(steps=0, minutes=1.0), progress, spent=30.0)
    assert run.pause_due() is None
    progress.step = 50
    assert run.pause_due() == plan
    progress.step = 100  # much time is left: the run goes on, without a validation
    due = run.pause_due()
    assert due is not None
    assert not due.validates


def test_the_time_left_of_steps_follows_the_measured_pace() -> None:
    progress = Progress()
    run = clock(TrainConfig(steps=100, validate_every=50, checkpoint_every=50), progress)
    run.costs = Costs(step=9.0, validation=3.0, checkpoint=1.0, closing=2.0, averages=False)
    assert run.run_time().left == pytest.approx(
        100 * 9 + 3 + 1 + run.costs.ending
    )  # the estimate, before the first step
    run.restart_pace()
    run._paced = (0, run._paced[1] - 24.0)
    run.validated(3.0)
    run.saved(1.0)
    progress.step = 40  # 20 s of steps: the validation and the checkpoint do not count
    left = run.run_time()
    assert left.left == pytest.approx(60 * 0.5 + 3 + 1 + run.costs.ending, rel=0.01)
    assert left.minutes == 0


def test_the_time_of_a_budget_in_minutes_is_its_share() -> None:
    plan = Plan(5.0, 0.0, 0, 1.0, last_step=100, pause=50, validates=False, lines=10)
    passed = clock(TrainConfig(steps=0, minutes=5.0), Progress(step=30, plan=plan), spent=126.0).run_time()
    assert (passed.minutes, round(passed.passed), round(passed.left)) == (5.0, 126, 174)


def test_a_finished_run_with_fewer_minutes_than_it_had_is_over() -> None:
    assert clock(TrainConfig(steps=0, minutes=1.0), Progress(step=5, spent=90.0)).is_over
    assert not clock(TrainConfig(steps=0, minutes=2.0), Progress(step=5, spent=90.0)).is_over


def planned(minutes: float, seconds_per_step: float) -> Clock:
    """The clock of a run before its first step, 30 seconds after the start of the command."""
    run = clock(TrainConfig(steps=0, minutes=minutes), Progress(), spent=30.0)
    run.costs = Costs(step=seconds_per_step, validation=2.0, checkpoint=0.1)
    run.revise(run.first_plan(0.1, 20))
    return run


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, True), (0.105, False), (0.05, True)],
)
def test_a_plan_that_is_far_off_is_corrected_once(seconds: float, said: bool) -> None:
    run = planned(10.0, seconds_per_step=0.1)
    budget = MinutesBudget(run, Alone(), 20)
    budget.begin()
    assert run.plan
    before = run.last_step
    run.progress.step, run.costs.step = 100, seconds
    budget.revise(run.plan)
    correction = budget.correction()
    expected = f"plan: {run.last_step:,} steps instead of {before:,}, because a step takes {seconds} s as measured so far, not 0.1 s"
    assert correction == expected * said
    assert budget.correction() == ""


def test_too_few_epochs_are_said_with_the_minutes_that_are_enough() -> None:
    said = planned(3.0, seconds_per_step=5.0).few_epochs(10)
    assert said.startswith("warning: 3 minutes are enough for 2.")
    assert "such a model learns little in fewer than 10: give it about" in said
    (minutes,) = re.findall(r"about (\d+) minutes \(--minutes\)$", said)
    assert 9 < int(minutes) < 15, "100 steps of 5 seconds, and the start"
    assert planned(float(minutes), seconds_per_step=5.0).few_epochs(10) == ""
    assert planned(3.0, seconds_per_step=0.1).few_epochs(10) == ""
    assert planned(3.0, seconds_per_step=5.0).few_epochs(0) == "", "a family without such a limit"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(89, "89 s"), (90, "1.5 minutes"), (7_199, "120.0 minutes"), (7_200, "2.0 hours"), (172_000, "47.8 hours"), (10_252_482, "118.7 days")],
)  # fmt: skip
def test_durations_have_a_unit_that_suits_them(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_an_end_on_another_day_has_a_date() -> None:
    noon = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
    assert _until(3_600, noon) == "13:00:00"
    assert _until(24 * 3_600, noon) == "2026-03-02 12:00"


@pytest.mark.parametrize(
    ("steps", "seconds_per_step", "shown"),
    [
        (9_000, 100.0, "has 900 epochs and takes 10.4 days: "),
        (20_000, 0.01, "has 2,000 epochs and takes "),
        (9_000, 60.0, ""),
    ],
)
def test_a_plan_that_was_hardly_meant_is_warned_of(steps: int, seconds_per_step: float, shown: str) -> None:
    run = clock(TrainConfig(steps=steps), Progress())
    run.costs = Costs(step=seconds_per_step, validation=0.0, checkpoint=0.0)
    warning = run.too_long()
    assert shown in warning
    assert bool(warning) == bool(shown)
    assert ("--minutes" in warning and "--preset" in warning) == bool(shown)


def test_minutes_are_never_too_long() -> None:
    assert planned(20_000.0, seconds_per_step=0.01).too_long() == ""
