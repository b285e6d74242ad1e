"""Search against brute force, and a plain beam search in Python for what brute force cannot say."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transduce.continuous.search import SlotBeamSearch, SlotGreedySearch
from transduce.errors import SettingError
from transduce.search import Hypothesis, PaperPenalty, Penalty, PowerPenalty, length_penalty
from transduce.search.beam import beam_search
from transduce.search.beam_state import Ranking
from transduce.search.constrained import constrained_search
from transduce.search.fusion import FusedState, fuse
from transduce.search.sampling import sample
from transduce.search.step import ScoreStep, forced_tokens, log_probabilities, next_scores, top
from transduce.search.step import hypotheses as found_in

START, END = 1, 0
PENALTIES = [make(alpha) for make in (PaperPenalty, PowerPenalty) for alpha in (-0.7, 0.0, 0.6, 1.0, 2.5)]

History = tuple[int, ...]
Logits = Callable[[History], list[float]]


def model(seed: int, vocabulary: int, forbidden: int | None = None, spread: float = 1.5) -> Logits:
    """Logits that depend on the whole history, so that a row out of place gives wrong answers."""

    @cache
    def logits(history: History) -> list[float]:
        drawn = random.Random(f"{seed} {history}")
        values = [drawn.gauss(0, spread) for _ in range(vocabulary)]
        if forbidden is not None:
            values[forbidden] = -math.inf
        return values

    return logits


def log_softmax(logits: list[float]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in logits))
    return [value - total for value in logits]


@dataclass
class Histories:
    """A state that is each row's whole past."""

    rows: list[History]

    def select(self, rows: Tensor) -> "Histories":
        return Histories([self.rows[row] for row in rows.tolist()])


@dataclass
class Recorder:
    """A step over `Histories` whose sentence i follows models[i]; counts the rows of each call."""

    models: list[Logits]
    rows_per_step: list[int]

    @staticmethod
    def over(models: list[Logits]) -> tuple["Recorder", Histories]:
        return Recorder(models, []), Histories([(sentence,) for sentence in range(len(models))])

    def __call__(self, tokens: Tensor, state: Histories) -> Tensor:
        assert len(tokens) == len(state.rows)
        state.rows = [(*row, token) for row, token in zip(state.rows, tokens.tolist(), strict=True)]
        self.rows_per_step.append(len(tokens))
        return torch.tensor([self.models[sentence](tuple(past)) for sentence, _, *past in state.rows])


Normalise = Callable[[list[float]], list[float]]  # logits -> the score of each token


def scored(logits: Logits, tokens: History, penalty: Penalty, normalise: Normalise = log_softmax) -> Hypothesis:
    """The definition: every token's log-probability after those before it, </s> included."""
    sequence = (*tokens, END)
    each = [normalise(logits(sequence[:i]))[token] for i, token in enumerate(sequence)]
    return Hypothesis(list(tokens), sum(each) / penalty(float(len(sequence))), sum(each), each)


def outputs(vocabulary: int, limit: int, prefix: History = ()) -> Iterator[History]:
    others = [token for token in range(vocabulary) if token != END]
    for free in range(limit - len(prefix)):
        for rest in itertools.product(others, repeat=free):
            yield (*prefix, *rest)


def exhaustive(
    logits: Logits,
    vocabulary: int,
    limit: int,
    penalty: Penalty,
    prefix: History = (),
    normalise: Normalise = log_softmax,
) -> list[Hypothesis]:
    found = [scored(logits, tokens, penalty, normalise) for tokens in outputs(vocabulary, limit, prefix)]
    return sorted((one for one in found if one.log_probability > -math.inf), key=lambda one: -one.score)


def reference_beam(
    logits: Logits,
    limit: int,
    beam: int,
    penalty: Penalty,
    prefix: History = (),
    normalise: Normalise = log_softmax,
) -> list[tuple[float, History]]:
    """The rule of beam search word for word, for one sentence, never stopping before the limit."""
    alive: list[tuple[float, History]] = [(0.0, ())]
    pool: list[tuple[float, History]] = []
    for length in range(1, limit + 1):
        candidates = []
        for total, history in alive:
            for token, value in enumerate(normalise(logits(history))):
                must = prefix[length - 1] if length <= len(prefix) else END if length == limit else token
                if token == must and value > -math.inf:
                    candidates.append((total + value, (*history, token)))
        ranked = sorted(candidates, reverse=True)[: 2 * beam]
        ended = [(total, tokens) for total, tokens in ranked[:beam] if tokens[-1] == END]
        pool += [(total / penalty(float(length)), tokens[:-1]) for total, tokens in ended]
        pool = sorted(pool, reverse=True)[:beam]
        alive = [one for one in ranked if one[1][-1] != END][:beam]
    return pool


def run(
    models: list[Logits],
    limits: list[int],
    beam: int,
    penalty: Penalty,
    prefix: list[History] | None = None,
    never: Sequence[int] = (),
) -> tuple[list[list[Hypothesis]], list[int]]:
    step, state = Recorder.over(models)
    found = beam_search(
        step,
        state,
        start=START,
        end=END,
        limits=torch.tensor(limits),
        beam=beam,
        n_best=beam,
        penalty=penalty,
        prefix=prefix,
        never=never,
    )
    return found, step.rows_per_step


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)


# Exhaustive


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize(("vocabulary", "limit"), [(3, 5), (4, 4), (5, 3), (5, 1), (2, 5)])
def test_a_wide_beam_finds_every_output_in_order(penalty: Penalty, vocabulary: int, limit: int) -> None:
    logits = model(vocabulary * 10 + limit, vocabulary)
    expected = exhaustive(logits, vocabulary, limit, penalty)
    found, _ = run([logits], [limit], max(len(expected), 2), penalty)
    assert_same(found[0], expected)


@settings(deadline=None, max_examples=60, derandomize=True)  # near ties differ in float32
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(3, 5),
    sentences=st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(1, 2), max_size=3)), min_size=1, max_size=5),
    penalty=st.sampled_from(PENALTIES),
    forbidden=st.sampled_from([None, 2]),
)
def test_a_wide_beam_equals_brute_force_on_batches_with_limits_and_prefixes(
    seed: int,
    vocabulary: int,
    sentences: list[tuple[int, list[int]]],
    penalty: Penalty,
    forbidden: int | None,
) -> None:
    limits = [max(limit, len(prefix) + 1) for limit, prefix in sentences]
    prefixes = [tuple(prefix) for _, prefix in sentences]
    models = [model(seed + i, vocabulary, forbidden) for i in range(len(sentences))]
    found, _ = run(models, limits, 90, penalty, prefixes)
    for logits, limit, prefix, hypotheses in zip(models, limits, prefixes, found, strict=True):
        assert_same(hypotheses, exhaustive(logits, vocabulary, limit, penalty, prefix))


# Narrow beams


@settings(deadline=None, max_examples=200, derandomize=True)  # near ties differ in float32
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(3, 9),
    spread=st.sampled_from([1.5, 3.0]),
    beam=st.integers(2, 5),
    sentences=st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(1, 2), max_size=3)), min_size=1, max_size=5),
    penalty=st.sampled_from(PENALTIES),
)
def test_a_narrow_beam_is_the_rule_run_to_the_limit(
    seed: int,
    vocabulary: int,
    spread: float,
    beam: int,
    sentences: list[tuple[int, list[int]]],
    penalty: Penalty,
) -> None:
    """The reference never stops early and knows one sentence: stopping and batching must change nothing."""
    limits = [max(limit, len(prefix) + 1) for limit, prefix in sentences]
    prefixes = [tuple(prefix) for _, prefix in sentences]
    models = [model(seed + i, vocabulary, spread=spread) for i in range(len(sentences))]
    found, _ = run(models, limits, beam, penalty, prefixes)
    for logits, limit, prefix, hypotheses in zip(models, limits, prefixes, found, strict=True):
        expected = reference_beam(logits, limit, beam, penalty, prefix)
        assert_same(hypotheses, [scored(logits, tokens, penalty) for _, tokens in expected])


@pytest.mark.parametrize("limit", [4, 9])
def test_what_only_the_limit_makes_good_is_waited_for(limit: int) -> None:
    """Two good short outputs fill the pool; a bad start that costs nothing more beats both, but only at length 9."""
    early = {(): [0.9, 0.09, 0.01], (1,): [0.995, 0.004, 0.001]}

    def logits(history: History) -> list[float]:
        late = [2e-4, 0.9997, 1e-4] if history[0:1] == (1,) else [3e-4, 0.9995, 2e-4]
        return [math.log(probability) for probability in early.get(history, late)]

    found, _ = run([logits], [limit], 2, PowerPenalty(2.5))
    expected = reference_beam(logits, limit, 2, PowerPenalty(2.5))
    assert [tuple(one.tokens) for one in found[0]] == [tokens for _, tokens in expected]
    assert (len(found[0][0].tokens) == 8) == (limit == 9)


def test_a_sentence_in_a_batch_is_the_sentence_alone() -> None:
    models = [model(seed, 7) for seed in range(8)]
    limits = [3, 9, 1, 6, 12, 2, 9, 5]
    together, _ = run(models, limits, 3, PaperPenalty(0.6))
    for logits, limit, hypotheses in zip(models, limits, together, strict=True):
        alone, _ = run([logits], [limit], 3, PaperPenalty(0.6))
        assert_same(alone[0], hypotheses)


def eager_to_end(after: int, vocabulary: int = 6) -> Logits:
    """A model that ends after so many tokens, all but surely."""
    drawn = model(after, vocabulary)
    return lambda history: [12.0 if len(history) >= after else -12.0, *drawn(history)[1:]]


@pytest.mark.parametrize("beam", [1, 3])
def test_finished_sentences_leave_the_batch(beam: int) -> None:
    found, rows = run([eager_to_end(after) for after in (1, 2, 3, 12)], [40] * 4, beam, PowerPenalty(1.0))
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [1, 2, 3, 12]
    assert rows[0] == 4, "the first step needs one row a sentence"
    assert max(rows) == (4 if beam == 1 else 4 * beam)
    assert rows[-1] == beam
    assert len(rows) < 40, "nothing better was attainable long before the limit"


@pytest.mark.parametrize("alpha", [-1.0, 0.0])
def test_search_stops_at_once_where_longer_can_only_be_worse(alpha: float) -> None:
    _, rows = run([eager_to_end(0)], [50], 2, PowerPenalty(alpha))
    assert len(rows) <= 3


# Greedy


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), limits=st.lists(st.integers(1, 9), min_size=1, max_size=9), prefixed=st.booleans())
def test_a_beam_of_one_is_the_argmax_chain(seed: int, limits: list[int], prefixed: bool) -> None:
    models = [model(seed + i, 5) for i in range(len(limits))]
    prefixes: list[History] = [(2,) * min(2, limit - 1) if prefixed else () for limit in limits]
    found, _ = run(models, limits, 1, PaperPenalty(0.6), prefixes)
    for logits, limit, prefix, hypotheses in zip(models, limits, prefixes, found, strict=True):
        tokens = prefix
        while len(tokens) < limit - 1 and (best := max(range(5), key=logits(tokens).__getitem__)) != END:
            tokens = (*tokens, best)
        assert_same(hypotheses, [scored(logits, tokens, PaperPenalty(0.6))])


# What cannot be


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_of_probability_zero_gives_no_hypothesis_and_harms_no_other(beam: int) -> None:
    models = [model(1, 4, forbidden=2), model(2, 4)]
    found, _ = run(models, [4, 4], beam, PaperPenalty(0.6), [(2,), ()])
    alone, _ = run(models[1:], [4], beam, PaperPenalty(0.6))
    assert found[0] == []
    assert_same(found[1], alone[0])


@pytest.mark.parametrize("beam", [1, 64])
def test_a_token_ruled_out_is_in_no_output_and_changes_no_score(beam: int) -> None:
    """The model's own probabilities stand: nothing is shared out among the tokens that are left."""
    logits, penalty = model(1, 4), PaperPenalty(0.6)
    found = run([logits], [4], beam, penalty, never=(2,))[0][0]
    assert_same(found, [scored(logits, tuple(one.tokens), penalty) for one in found])
    expected = [one for one in exhaustive(logits, 4, 4, penalty) if 2 not in one.tokens]
    assert any(2 in one.tokens for one in run([logits], [4], 64, penalty)[0][0])
    if beam == 1:
        assert 2 not in found[0].tokens
    else:
        assert_same(found, expected)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_may_hold_a_token_ruled_out(beam: int) -> None:
    found, _ = run([model(1, 4)], [5], beam, PaperPenalty(0.6), [(2,)], never=(2,))
    assert found[0]
    assert all(one.tokens[0] == 2 and 2 not in one.tokens[1:] for one in found[0])


def test_an_observer_is_shown_every_step_and_changes_nothing() -> None:
    """What it is shown is what was ranked: the definition's log-probabilities, and the beams that go on in their order."""
    penalty, limits = PowerPenalty(0.6), [6, 3]
    models = [model(seed, vocabulary=5) for seed in (1, 2)]
    step, state = Recorder.over(models)
    shown: list[Ranking] = []
    settings = {"start": START, "end": END, "limits": torch.tensor(limits), "beam": 2, "n_best": 2, "penalty": penalty}
    found = beam_search(step, state, **settings, observer=shown.append)  # type: ignore[arg-type]
    assert (found, step.rows_per_step) == run(models, limits, 2, penalty)
    assert [ranking.position for ranking in shown] == list(range(len(step.rows_per_step)))
    first = sorted(log_softmax(models[0](())), reverse=True)[:4]
    assert shown[0].found.totals[0].tolist() == pytest.approx(first, abs=1e-6)
    for ranking in shown:
        going = ranking.found.tokens.gather(1, ranking.alive.ranks)
        assert torch.equal(going, ranking.alive.tokens)
        assert (
            END not in going[torch.tensor(limits)[ranking.sentence] > ranking.position + 1]
        )  # at the limit nothing goes on
    assert shown[-1].attainable.max() <= shown[-1].kept[:, -1].max()


def test_no_sentences_give_no_hypotheses() -> None:
    assert run([], [], 4, PaperPenalty(0.6))[0] == []


def draw(logits: Logits, count: int = 1, **settings: object) -> list[Hypothesis]:
    return draws([logits], [4], count, **settings)[0]


def draws(
    models: list[Logits], limits: list[int], count: int, seed: int = 0, **settings: object
) -> list[list[Hypothesis]]:
    step, state = Recorder.over(models)
    return sample(
        step,
        state,
        start=START,
        end=END,
        limits=torch.tensor(limits),
        penalty=PaperPenalty(0.6),
        generator=torch.Generator().manual_seed(seed),
        num_samples=count,
        **settings,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"beam": 0}, "beam = 0: must be at least 1"),
        ({"beam": 2, "n_best": 3}, "n_best = 3: must be at least 1 and at most beam = 2"),
        ({"n_best": 0}, "n_best = 0: must be at least 1 and at most beam = 4"),
        ({"limits": torch.tensor([0])}, "sentence 0: the length limit is 0, but must be at least 1, for </s>"),
        ({"prefix": [[2, 2, 2]]}, "sentence 0: a prefix of 3 tokens and </s> exceed the length limit of 3"),
        ({"prefix": [[2, END]]}, "sentence 0: the prefix must contain only token ids other than </s>"),
        ({"prefix": [[2], [2]]}, "2 prefixes for 1 sentences: give one prefix per sentence"),
    ],
)
def test_beam_search_refuses(settings: dict[str, object], said: str) -> None:
    step, state = Recorder.over([model(0, 4)])
    given = {"start": START, "end": END, "limits": torch.tensor([3]), "beam": 4, "penalty": PaperPenalty(0.6)}
    with pytest.raises(SettingError) as refusal:
        beam_search(step, state, **(given | settings))  # type: ignore[arg-type]
    assert str(refusal.value) == said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"count": 0}, "num_samples = 0"),
        ({"temperature": 0.0}, "temperature = 0.0: must be above 0"),
        ({"temperature": math.nan}, "temperature = nan: must be above 0"),
        ({"top_k": -1}, "top_k = -1: must not be negative"),
        ({"top_p": 0.0}, "top_p = 0.0: must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p = 1.5: must be above 0 and at most 1"),
    ],
)
def test_sampling_refuses(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said.replace(".", r"\.")):
        draw(model(0, 4), **settings)  # type: ignore[arg-type]


# Sampling


def assert_drawn_from(exact: dict[History, float], drawn: list[Hypothesis]) -> None:
    """Pearson's chi-square within five standard deviations of its mean; outputs expected rarely are pooled."""
    counts = Counter(tuple(one.tokens) for one in drawn)
    assert set(counts) <= {tokens for tokens, probability in exact.items() if probability > 0}
    cells = [(counts[tokens], probability * len(drawn)) for tokens, probability in exact.items()]
    often = [cell for cell in cells if cell[1] >= 5]
    rare = [cell for cell in cells if cell[1] < 5]
    often.append((sum(seen for seen, _ in rare), sum(expected for _, expected in rare)))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in often if expected > 0)
    assert statistic < len(often) + 5 * math.sqrt(2 * len(often))


def exact_distribution(
    logits: Logits, limit: int, allowed: Callable[[list[float]], list[float]]
) -> dict[History, float]:
    """The probability of each output when each step's log-probabilities become the weights `allowed` gives."""
    found: dict[History, float] = {}
    for tokens in outputs(4, limit):
        probability = 1.0
        for place, token in enumerate((*tokens, END)):
            weights = allowed(log_softmax(logits(tokens[:place])))
            probability *= weights[token] / sum(weights) if place < limit - 1 else 1.0
        found[tokens] = probability
    return found


def keep_top(weights: list[float], top_k: int, top_p: float) -> list[float]:
    kept, mass = [0.0] * len(weights), 0.0
    for token in sorted(range(len(weights)), key=lambda token: -weights[token])[:top_k]:
        if mass < top_p:
            kept[token] = weights[token]
        mass += weights[token]
    return kept


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 0, 1.0), (2.0, 3, 1.0), (0.7, 0, 0.8)]
)
def test_samples_follow_the_distribution(temperature: float, top_k: int, top_p: float) -> None:
    logits = model(5, 4)

    def allowed(log_probs: list[float]) -> list[float]:
        weights = [math.exp(value / temperature) for value in log_probs]
        return keep_top([weight / sum(weights) for weight in weights], top_k or 4, top_p)

    drawn = draw(logits, 4000, temperature=temperature, top_k=top_k, top_p=top_p)
    assert len(drawn) == 4000
    assert_drawn_from(exact_distribution(logits, 4, allowed), drawn)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), temperature=st.floats(0.2, 3), top_k=st.integers(0, 6), top_p=st.floats(0.01, 1))
def test_a_sample_has_the_model_s_own_score(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    models = [model(seed, 4, forbidden=2), model(seed + 1, 4)]
    prefix = [(3,), ()]
    found = draws(models, [5, 3], 4, temperature=temperature, top_k=top_k, top_p=top_p, prefix=prefix)
    for logits, limit, start, hypotheses in zip(models, [5, 3], prefix, found, strict=True):
        assert len(hypotheses) == 4
        for one in hypotheses:
            assert len(one.tokens) < limit
            assert tuple(one.tokens[: len(start)]) == start
            assert_same([one], [scored(logits, tuple(one.tokens), PaperPenalty(0.6))])


def test_a_token_ruled_out_is_not_drawn() -> None:
    assert any(2 in one.tokens for one in draw(model(1, 4), 200))
    assert not any(2 in one.tokens for one in draw(model(1, 4), 200, never=(2,)))


def test_a_tiny_top_p_or_a_top_k_of_one_is_greedy() -> None:
    models = [model(seed, 300) for seed in range(3)]
    expected, _ = run(models, [6] * 3, 1, PaperPenalty(0.6))
    assert draws(models, [6] * 3, 1, top_p=1e-9) == expected
    assert draws(models, [6] * 3, 1, top_p=1e-300) == expected
    assert draws(models, [6] * 3, 1, top_k=1) == expected


@pytest.mark.parametrize("temperature", [1e-20, 1e-40, 1e-300])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    models = [model(seed, 300) for seed in range(3)]
    expected, _ = run(models, [6] * 3, 1, PaperPenalty(0.6))
    for kept in ({}, {"top_k": 5}, {"top_p": 0.9}):
        assert draws(models, [6] * 3, 1, temperature=temperature, **kept) == expected


@pytest.mark.parametrize("top_k", [0, 5])
def test_temperatures_beyond_what_floats_hold_are_the_coldest_and_the_hottest(top_k: int) -> None:
    models = [model(seed, 300) for seed in range(3)]
    expected, _ = run(models, [6] * 3, 1, PaperPenalty(0.6))
    assert draws(models, [6] * 3, 1, temperature=1e-300, top_k=top_k) == expected
    hottest = draws(models, [6] * 3, 1, temperature=1e308, top_k=top_k, never=(2,))
    assert hottest == draws(models, [6] * 3, 1, temperature=1e20, top_k=top_k, never=(2,))


def test_a_seed_gives_the_same_samples_again() -> None:
    models = [model(seed, 9) for seed in range(3)]
    assert draws(models, [8] * 3, 5, seed=3) == draws(models, [8] * 3, 5, seed=3)
    assert draws(models, [8] * 3, 5, seed=3) != draws(models, [8] * 3, 5, seed=4)


# Parts


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), columns=st.integers(8, 1000), count=st.integers(1, 8))
def test_top_is_topk(seed: int, columns: int, count: int) -> None:
    values = torch.randn(5, columns, generator=torch.Generator().manual_seed(seed))
    values[1, 3:] = -math.inf
    best, place = top(values, count)
    assert torch.equal(best, values.topk(count).values)
    assert torch.equal(values.gather(1, place), best)


def test_log_probabilities_are_float32_and_never_positive() -> None:
    logits = torch.tensor([[90.0, -90.0, -math.inf], [0.1, 0.2, 0.3]], dtype=torch.bfloat16)
    found = log_probabilities(logits)
    assert found.dtype == torch.float32
    assert (found <= 0).all()
    assert found.exp().sum(1).tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_penalties_agree_on_numbers_and_tensors(penalty: Penalty) -> None:
    on_tensor = penalty(torch.arange(1, 50))
    assert on_tensor.tolist() == pytest.approx([penalty(length) for length in range(1, 50)], rel=1e-6)


def test_penalties_by_the_name_of_their_setting() -> None:
    assert length_penalty("paper", 0.6)(7) == pytest.approx((12 / 6) ** 0.6)
    assert length_penalty("power", 0.6)(7) == pytest.approx(7**0.6)


# --- searches of fixed shape -----------------------------------------------------------------------------------


def search_fixed(
    models: list[Logits],
    limits: list[int],
    beam: int,
    penalty: Penalty,
    prefix: list[list[int]] | None,
    slots: int,
    kernel: Callable[..., None] | None = None,
) -> list[list[Hypothesis]]:
    """As an engine drives them: fewer slots than sentences, all rows every step, a look at what is finished now and then."""
    step, _ = Recorder.over(models)
    bounds, device = torch.tensor(limits), torch.device("cpu")
    forced = forced_tokens(bounds, prefix, END)
    places = forced.shape[1]
    fixed: SlotGreedySearch | SlotBeamSearch = (
        beams := SlotBeamSearch(slots, places, START, END, beam, penalty, device)
    )
    beams.kernel = kernel
    if beam == 1:
        fixed = SlotGreedySearch(slots, places, START, END, device)
    state, waiting = Histories([(0,)] * slots * beam), list(range(len(models)))
    inside: dict[int, int] = {}
    found: dict[int, list[Hypothesis]] = {}
    for turn in itertools.count():
        if turn % 3 == 0:
            for slot in fixed.finished.nonzero()[:, 0].tolist():
                if slot in inside:
                    paths = fixed.paths(torch.tensor([slot]), places, beam)
                    found[inside.pop(slot)] = found_in(paths, 1, penalty)[0]
                if waiting:
                    inside[slot] = waiting.pop()
                    one = torch.tensor([inside[slot]])
                    fixed.put(torch.tensor([slot]), forced[one], bounds[one])
                    state.rows[slot * beam : (slot + 1) * beam] = [(inside[slot],)] * beam
            if not inside:
                return [found[number] for number in range(len(models))]
        log_probs = log_probabilities(step(fixed.tokens, state))
        must = fixed.forced_now.clamp(min=0)
        fixed.advance(*top(log_probs, min(2 * beam, log_probs.shape[1])), log_probs.gather(1, must[:, None])[:, 0])
        if isinstance(fixed, SlotBeamSearch):
            state = state.select(fixed.parents)
    raise AssertionError("unreachable")


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4), st.sampled_from(PENALTIES), st.booleans())
@settings(max_examples=80, deadline=None)
def test_searches_of_fixed_shape_find_the_same(
    seed: int, sentences: int, beam: int, penalty: Penalty, with_prefix: bool
) -> None:
    drawn = random.Random(seed)
    models = [model(seed + n, vocabulary=9) for n in range(sentences)]
    limits = [drawn.randint(1, 7) for _ in models]
    prefix = [[drawn.randint(2, 8) for _ in range(drawn.randint(0, limit - 1))] for limit in limits]
    forced = prefix if with_prefix else None
    step, state = Recorder.over(models)
    expected = beam_search(
        step, state, start=START, end=END, limits=torch.tensor(limits), beam=beam, penalty=penalty, n_best=beam,
        prefix=forced,
    )  # fmt: skip
    assert search_fixed(models, limits, beam, penalty, forced, slots=2) == expected


@pytest.mark.filterwarnings(
    "ignore:divide by zero", "ignore:invalid value"
)  # meant: nothing is attainable at the limit
@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from(PENALTIES), st.booleans())
@settings(max_examples=6, deadline=None)
def test_the_kernel_decides_the_same(seed: int, beam: int, penalty: Penalty, with_prefix: bool) -> None:
    """Without a GPU it runs in Triton's interpreter."""
    advance = pytest.importorskip("transduce.continuous.kernels.beam", reason="triton is not installed").advance
    drawn = random.Random(seed)
    models = [model(seed + n, vocabulary=11) for n in range(3)]
    limits = [drawn.randint(1, 7) for _ in models]
    prefix = [[drawn.randint(2, 8) for _ in range(drawn.randint(0, limit - 1))] for limit in limits]
    forced = prefix if with_prefix else None
    expected = search_fixed(models, limits, beam, penalty, forced, slots=2)
    assert search_fixed(models, limits, beam, penalty, forced, slots=2, kernel=advance) == expected


# --- phrases that must occur -----------------------------------------------------------------------------------


def contains(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(tuple(tokens[n : n + len(phrase)]) == tuple(phrase) for n in range(len(tokens) - len(phrase) + 1))


def run_constrained(
    models: list[Logits],
    phrases: list[list[History]],
    limits: list[int],
    beam: int,
    penalty: Penalty,
    prefix: list[History] | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    step, state = Recorder.over(models)
    return constrained_search(
        step, state, start=START, end=END, limits=torch.tensor(limits), beam=beam, n_best=beam, penalty=penalty,
        phrases=phrases, prefix=prefix, never=never,
    )  # fmt: skip


@pytest.mark.parametrize("phrases", [[(2,)], [(3, 2)], [(2, 2), (3,)], [(2, 3), (1,)], [(1, 2, 1)]])
@pytest.mark.parametrize("penalty", PENALTIES[2::3])
def test_a_wide_constrained_search_finds_the_best_of_all_outputs_with_the_phrases(
    phrases: list[History], penalty: Penalty
) -> None:
    logits, limit = model(5, 4), 6
    expected = [one for one in exhaustive(logits, 4, limit, penalty) if all(contains(one.tokens, p) for p in phrases)]
    found = run_constrained([logits], [phrases], [limit], 400, penalty)[0]
    assert_same(found[:20], expected[:20])


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=60, deadline=None)
def test_every_output_has_every_phrase(seed: int, data: st.DataObject) -> None:
    token = st.integers(1, 5)
    phrases = data.draw(st.lists(st.lists(token, min_size=1, max_size=3).map(tuple), max_size=3))
    prefix = tuple(data.draw(st.lists(token, max_size=2)))
    limit = sum(map(len, phrases)) + len(prefix) + data.draw(st.integers(1, 4))
    models = [model(seed, 6), model(seed + 1, 6)]
    found = run_constrained(models, [phrases, []], [limit, 5], 3, PENALTIES[2], [prefix, ()])
    assert 1 <= len(found[0]) <= 3
    for one in found[0]:
        assert all(contains(one.tokens, phrase) for phrase in phrases)
        assert tuple(one.tokens[: len(prefix)]) == prefix
        assert len(one.tokens) < limit
        expected = scored(models[0], tuple(one.tokens), PENALTIES[2])
        assert one.score == pytest.approx(expected.score, abs=1e-5)
    assert len(found[1]) == 3


def test_without_phrases_a_constrained_search_is_beam_search() -> None:
    models, limits = [model(seed, 7) for seed in range(5)], [9, 4, 6, 1, 8]
    expected = run(models, limits, 4, PENALTIES[2])[0]
    found = run_constrained(models, [[]] * 5, limits, 4, PENALTIES[2])
    for one, other in zip(found, expected, strict=True):
        assert one[0].score >= other[0].score - 1e-5


def test_phrases_that_cannot_fit_and_missing_ones_are_refused() -> None:
    with pytest.raises(SettingError, match="sentence 0: its 4 required tokens and </s> exceed the length limit"):
        run_constrained([model(1, 5)], [[(2, 3), (1, 2)]], [4], 2, PENALTIES[2])
    with pytest.raises(SettingError, match="phrases for 0 of 1 sentences"):
        run_constrained([model(1, 5)], [], [4], 2, PENALTIES[2])


def test_a_constrained_search_never_chooses_the_token_0_either() -> None:
    """Where `</s>` is another id, 0 is an ordinary one that can be ruled out."""
    step, state = Recorder.over([lambda history: [3.0, *[0.0] * 11]])
    found = constrained_search(
        step, state, start=START, end=4, limits=torch.tensor([6]), beam=3, n_best=3, penalty=PENALTIES[2],
        phrases=[[(2,)]], never=(0,),
    )  # fmt: skip
    assert found[0]
    assert not any(0 in one.tokens for one in found[0])


def test_phrases_may_hold_what_is_never_chosen_otherwise() -> None:
    found = run_constrained([model(1, 5)], [[(3,)]], [6], 3, PENALTIES[2], never=[3, 4])[0]
    assert all(one.tokens.count(3) == 1 and 4 not in one.tokens for one in found)


# Shallow fusion


def combined(one: Logits, other: Logits, weight: float) -> Logits:
    """The definition: log p of the first + weight * log p of the second, not normalised."""

    def scores(history: History) -> list[float]:
        pairs = zip(log_softmax(one(history)), log_softmax(other(history)), strict=True)
        return [first + weight * second for first, second in pairs]

    return scores


def as_they_are(scores: list[float]) -> list[float]:
    return scores


def fused(models: list[Logits], others: list[Logits], weight: float) -> tuple[ScoreStep, FusedState]:
    (step, state), (other_step, other_state) = Recorder.over(models), Recorder.over(others)
    return fuse(step, other_step, weight), FusedState(state, other_state)


def search_fused(
    models: list[Logits], others: list[Logits], weight: float, limits: list[int], beam: int, penalty: Penalty
) -> list[list[Hypothesis]]:
    step, state = fused(models, others, weight)
    asked = {"beam": beam, "n_best": beam, "penalty": penalty}
    return beam_search(step, state, start=START, end=END, limits=torch.tensor(limits), **asked)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40, derandomize=True)  # near ties differ in float32
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(3, 5),
    limits=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    weight=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    penalty=st.sampled_from(PENALTIES),
)
def test_fusion_finds_the_best_weighted_sums_of_both_models(
    seed: int, vocabulary: int, limits: list[int], weight: float, penalty: Penalty
) -> None:
    """A wide beam against brute force, and a narrow one against the rule run to the limit."""
    models, others = ([model(seed + i + n, vocabulary) for i in range(len(limits))] for n in (0, 10**7))
    wide, narrow = (search_fused(models, others, weight, limits, beam, penalty) for beam in (90, 2))
    for one, other, limit, all_found, found in zip(models, others, limits, wide, narrow, strict=True):
        scores = combined(one, other, weight)
        assert_same(all_found, exhaustive(scores, vocabulary, limit, penalty, normalise=as_they_are))
        by_rule = reference_beam(scores, limit, 2, penalty, normalise=as_they_are)
        assert_same(found, [scored(scores, tokens, penalty, as_they_are) for _, tokens in by_rule])


@pytest.mark.parametrize("beam", [1, 3])
def test_fusion_of_weight_zero_is_plain_search(beam: int) -> None:
    models, others = ([model(seed, 7) for seed in seeds] for seeds in (range(6), range(100, 106)))
    limits = [3, 9, 1, 6, 12, 2]
    plain, _ = run(models, limits, beam, PaperPenalty(0.6))
    for found, expected in zip(search_fused(models, others, 0.0, limits, beam, PaperPenalty(0.6)), plain, strict=True):
        assert found == expected


@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_alone_is_fused_as_in_a_batch(beam: int) -> None:
    models, others = ([model(seed, 7) for seed in seeds] for seeds in (range(6), range(100, 106)))
    limits = [3, 9, 1, 6, 12, 2]
    together = search_fused(models, others, 0.7, limits, beam, PowerPenalty(1.0))
    for one, other, limit, found in zip(models, others, limits, together, strict=True):
        assert_same(found, search_fused([one], [other], 0.7, [limit], beam, PowerPenalty(1.0))[0])


def test_samples_and_outputs_with_phrases_have_fused_scores() -> None:
    one, other, limits = model(1, 6), model(2, 6), torch.tensor([8])
    asked = {"start": START, "end": END, "limits": limits, "penalty": PowerPenalty(1.0)}
    step, state = fused([one], [other], 0.5)
    drawn = sample(step, state, generator=torch.Generator().manual_seed(1), num_samples=5, **asked)[0]  # type: ignore[arg-type]
    step, state = fused([one], [other], 0.5)
    constrained = constrained_search(step, state, beam=4, n_best=2, phrases=[[[3, 2]]], **asked)[0]  # type: ignore[arg-type]
    assert len(drawn) == 5
    assert all("3, 2" in str(found.tokens) for found in constrained)
    for found in (*drawn, *constrained):
        expected = scored(combined(one, other, 0.5), tuple(found.tokens), PowerPenalty(1.0), as_they_are)
        assert_same([found], [expected])


def test_columns_that_only_the_first_step_has_keep_their_scores() -> None:
    step, state = fused([model(1, 6)], [model(2, 4)], 0.5)
    found = next_scores(step, torch.tensor([START]), state)[0].tolist()
    first, second = log_softmax(model(1, 6)(())), log_softmax(model(2, 4)(()))
    assert found == pytest.approx([*(a + 0.5 * b for a, b in zip(first, second, strict=False)), *first[4:]], abs=1e-5)
