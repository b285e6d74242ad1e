"""Every value of every setting: it trains, and is translated by the fast paths as by the plain one, or it is refused.

Of the model's settings, all pairs that fast paths name are walked too. What is counted is printed at the end of the run.
Models are built directly; settings of data, training and search go through `transduce.train`.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from agreement import assert_hypotheses_agree, assert_translations_agree
from folders import WORDS, vocabularies, write_model
from setting_values import (
    SHORT,
    TINY_OTHERS,
    Change,
    changed,
    changes,
    label,
    pairs_of_changes,
    refusal,
    values_of,
    values_of_other,
)

import transduce
from transduce.config import Config, ModelConfig, Setting, TransformerConfig, all_settings, check
from transduce.continuous import BeamOptions
from transduce.continuous import decoder as slots
from transduce.cores import thread_refusal
from transduce.device import Device
from transduce.errors import TransduceError
from transduce.model import IGNORED, Model, Tokens, Transformer, as_transformer, fused, kernels, make_model
from transduce.search import Hypothesis, length_penalty
from transduce.text import EOS, Vocabularies
from transduce.translator import Translation, ct2_spec
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.slot_engine import SlotEngine
from transduce.translator.torch_engine import TorchEngine

pytestmark = pytest.mark.numerics

CPU = Device("cpu", bf16=False)
# Greedy, so that nothing but the arithmetic decides; every output begins with tokens that it must have.
REQUEST = SearchRequest(beam=1, alpha=1.0, length_penalty="power", max_extra=3)
COUNT = 4  # sentences that are translated
DECLARED = (fused.SUPPORTS, slots.SUPPORTS, ct2_spec.SUPPORTS)
PAIRS = list(pairs_of_changes(*DECLARED))
TOO_LARGE = {"model.d_model=100000": "a matrix of 40 GB"}
SLOW = {"model.d_ff=100000", "model.d_k=100000", "model.d_v=100000"}
SLOW |= {"model.num_encoder_layers=1000", "model.num_decoder_layers=1000"}
TALLY: Counter[str] = Counter()  # what was walked; conftest.py prints it
Found = list[list[Hypothesis]]


@pytest.fixture(autouse=True)
def _no_shape_checks() -> Iterator[None]:
    """Shapes are checked by every other test, at twice the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def takes_long(those: tuple[Change, ...]) -> bool:
    """Large models, and pairs with a number in them, are walked by `make test-full`."""
    numbers = any(not one.choices and one.kind is not bool for one, _ in those)
    return label(*those) in SLOW or (len(those) > 1 and numbers)


def parameters(all_changes: Sequence[tuple[Change, ...]]) -> list[Any]:
    return [
        pytest.param(those, id=label(*those), marks=[pytest.mark.slow] * takes_long(those)) for those in all_changes
    ]


SINGLES = parameters([(change,) for change in changes("model") if label(change) not in TOO_LARGE])


# --- a tiny model ----------------------------------------------------------------------------------------------


@cache
def both() -> Vocabularies:
    return vocabularies(joint=True)


@cache
def sentences(count: int = 12) -> list[list[int]]:
    draw = random.Random(1)
    return [[*(draw.randrange(2, both().source.pad) for _ in range(draw.randint(2, 6))), EOS] for _ in range(count)]


def loss_of(model: Model, count: int | None = None) -> torch.Tensor:
    """Of some pairs: targets are the sources backwards."""
    pad, sources = both().source.pad, sentences()[:count]
    targets = [[*source[-2::-1], EOS] for source in sources]
    inputs = Tokens.padded([[pad, *target[:-1]] for target in targets], pad)
    labels = Tokens.padded(targets, IGNORED).ids
    return model.loss(Tokens.padded(sources, pad), inputs, labels, 0.1).minimised


def trained(config: TransformerConfig, steps: int = 2) -> Transformer:
    """A model after a few steps of gradient descent."""
    return as_transformer(trained_model(config, steps))


def trained_model(config: ModelConfig, steps: int = 2) -> Model:
    torch.manual_seed(1)
    model = make_model(config, both().source.size, both().target.size).train()
    for _ in range(steps):
        model.zero_grad()
        loss = loss_of(model)
        assert torch.isfinite(loss)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.05 * parameter.grad / parameter.grad.norm().clamp_min(1e-6)
    return model.eval()


def block() -> SearchBlock:
    sources = sentences()[:COUNT]
    return SearchBlock(sources, [sentences()[-n - 1][:2] for n in range(COUNT)])


def searched(engine: Any) -> list[list[Hypothesis]]:
    return next(iter(engine.stream(iter([block()]), REQUEST)))


# --- the ways to translate, each against the plain one ---------------------------------------------------------


def by_slots(model: Transformer, plain: TorchEngine, expected: Found, tmp_path: Path) -> str:
    """Why slots leave this model to the plain engine, or nothing where they find the same."""
    if not slots.understands(model.config):
        return slots.SUPPORTS.refusal(model.config) or "widths that the kernels do not have"
    engine = SlotEngine(model, CPU, plain.source_pad, plain.target_pad, EOS)
    options = BeamOptions(REQUEST.beam, REQUEST.n_best, length_penalty("power", 1.0), True)
    found = next(
        iter(engine.batcher.decode(engine._with_limits([block()], REQUEST), options))
    )  # what `stream` gives, without its threads
    assert_hypotheses_agree(plain, REQUEST, sentences()[:COUNT], found, expected)
    return ""


def by_ct2(model: Transformer, plain: TorchEngine, expected: Found, tmp_path: Path) -> str:
    """Why CTranslate2 cannot have this model, or nothing where it finds the same."""
    if reason := ct2_spec.refusal(model.config):
        return reason
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    from transduce.translator.ct2_engine import Ct2Engine
    from transduce.translator.ct2_model import Ct2Model

    arrays = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    spec = ct2_spec.make_spec(arrays, model.config, both())
    spec.optimize(quantization="float32")
    (tmp_path / "ct2").mkdir()
    spec.save(str(tmp_path / "ct2"))
    engine = Ct2Engine(Ct2Model(tmp_path / "ct2"), model.config, both(), quantization="float32", threads=1)
    assert_hypotheses_agree(plain, REQUEST, sentences()[:COUNT], searched(engine), expected)
    return ""


def by_kernels(model: Transformer, plain: TorchEngine, expected: Found, tmp_path: Path) -> str:
    """Why kernels leave the layers of this model to PyTorch, or nothing; the loss and its gradients are the same."""
    found = {}
    for served in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "supports", lambda x, served=served: served)
            model.zero_grad()
            loss = loss_of(model, count=2)
            loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found[served] = {"loss": loss.detach(), **gradients}
    for name, plainly in found[False].items():
        close = 1e-4 * float(plainly.norm()) + 1e-4
        assert float((found[True][name] - plainly).norm()) <= close, name
    if fused.understands(model.config):
        return ""
    return fused.SUPPORTS.refusal(model.config) or "widths that the kernels do not have"


Way = Callable[[Transformer, TorchEngine, Found, Path], str]


def walk(those: tuple[Change, ...], tmp_path: Path, *ways: Way) -> None:
    """Train and translate with these settings by each path, and count what came of it."""
    TALLY["walked"] += 1
    if reason := refusal(*those):
        assert "\n" not in reason
        assert any(one.name in reason for one, _ in those), "a refusal names a setting that was changed"
        TALLY["refused"] += 1
        return
    model = trained(changed(*those))
    plain = TorchEngine(model, CPU, both().source.pad, both().target.pad, EOS)
    expected = searched(plain)
    for way in ways:
        reason = way(model, plain, expected, tmp_path)
        assert "\n" not in reason
        TALLY[f"{way.__name__.replace('_', ' ')}: {'left to the plain path' if reason else 'the same'}"] += 1
    TALLY["trained and translated the same"] += 1


@pytest.mark.parametrize("those", SINGLES)
def test_every_value_of_the_model(those: tuple[Change, ...], tmp_path: Path) -> None:
    walk(those, tmp_path, by_slots, by_ct2)


@pytest.mark.parametrize("those", parameters(PAIRS))
def test_every_pair_that_a_fast_path_names(those: tuple[Change, ...], tmp_path: Path) -> None:
    walk(those, tmp_path, by_slots, by_ct2)


NAMED = [(one, value) for one, value in changes("model") if one.choices or one.kind is bool]


@pytest.mark.skipif(not kernels.HAVE_TRITON, reason="triton is not installed: plain PyTorch runs instead")
@pytest.mark.parametrize("those", parameters([(change,) for change in NAMED]))
def test_every_choice_by_kernels(those: tuple[Change, ...], tmp_path: Path) -> None:
    """In Triton's interpreter; benchmarks/every_setting_gpu.py walks all values on a GPU."""
    walk(those, tmp_path, by_kernels)


@pytest.mark.parametrize(
    ("way", "module", "key", "value"),
    [
        (by_slots, slots, "positions", "rotary"),
        (by_ct2, ct2_spec, "norm_kind", "rms"),
        (by_ct2, ct2_spec, "activation", "swiglu"),
    ],
)
def test_a_fast_path_that_claims_too_much_is_found_out(
    way: Way, module: Any, key: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk fails, by whatever error, where a declaration names a value that the code does not compute."""
    declared = dict(module.SUPPORTS.values)
    monkeypatch.setattr(module.SUPPORTS, "values", declared | {key: (*declared.get(key, ()), value)})
    setting = next(one for one in all_settings() if one.name == f"model.{key}")
    before = TALLY.copy()
    with pytest.raises((AssertionError, KeyError, RuntimeError)):
        walk(((setting, value),), tmp_path, way)
    TALLY.clear()
    TALLY.update(before)


def refused(call: Callable[[], object]) -> str:
    """The one line in which a call is refused, or nothing; anything else that goes wrong is raised."""
    try:
        call()
    except TransduceError as error:
        reason = str(error)
        if "\n" in reason:
            raise
        return reason
    return ""


# --- other families --------------------------------------------------------------------------------------------


def of_other_families() -> list[Any]:
    return [
        pytest.param(family, one, id=f"{family} {one.name}")
        for family in TINY_OTHERS
        for one in all_settings(family)
        if one.section == "model" and one.key != "family"
    ]


@pytest.mark.parametrize(("family", "one"), of_other_families())
def test_every_setting_of_another_family(family: str, one: Setting) -> None:
    """Each value trains and translates, and an output scores what the search says; or the value is refused."""
    for value in values_of_other(one):
        TALLY["walked"] += 1
        config = replace(TINY_OTHERS[family], **{one.key: value})
        if reason := refused(lambda config=config: check(replace(Config(), model=config, data=SHORT))):  # type: ignore[misc]
            assert one.name in reason
            TALLY["refused"] += 1
            continue
        engine = TorchEngine(trained_model(config), CPU, both().source.pad, both().target.pad, EOS)
        outputs = [found[0] for found in searched(engine)]
        scored = engine.score(sentences()[:COUNT], [[*output.tokens, EOS] for output in outputs])
        for output, log_probs in zip(outputs, scored, strict=True):
            assert sum(log_probs) == pytest.approx(output.log_probability, abs=1e-3)
        TALLY["trained and translated the same"] += 1


# --- exports ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("to", ["hf", "ct2", "onnx"])
@pytest.mark.parametrize("those", parameters([(change,) for change in NAMED]))
def test_every_choice_is_exported_or_refused(those: tuple[Change, ...], to: str, tmp_path: Path) -> None:
    """An export compares itself with the model on real sentences before it reports success."""
    if refusal(*those):
        return
    run = write_model(tmp_path / "run", trained(changed(*those)), both())
    reason = refused(lambda: transduce.export(run, tmp_path / "exported", to, quiet=True))  # type: ignore[arg-type]
    assert not reason or those[0][0].name in reason
    TALLY[f"export to {to}: {'refused' if reason else 'the same'}"] += 1


# --- data, training and search ---------------------------------------------------------------------------------

SMALL = {
    "model.d_model": 32, "model.d_ff": 32, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "train.steps": 2, "train.threads": 1, "train.tokens_per_batch": 100,
    "train.validate_lines": 2, "train.validate_every": 2, "train.checkpoint_every": 2, "train.average": 0,
    "train.learning_rate": 1e-3, "data.vocabulary_size": 300, "search.max_extra": 3,
}  # fmt: skip
# What a value needs to make sense.
WITH: dict[str, dict[str, Any]] = {
    "data.subword_sampling": {"data.source_units": "bpe", "data.target_units": "bpe"},
    "data.joint=False": {"model.tie": "target"},
    "data.vocabulary_size": {"data.source_units": "bpe", "data.target_units": "bpe"},
    "train.steps=0": {"train.epochs": 0.5},
    "train.steps=1000000000": {"train.epochs": 0.5},
    "train.steps=100000": {"train.epochs": 0.5},
    "train.validate_every": {"train.steps": 3},
    "data.hold_out": {"data.valid": ()},
    "data.hold_out_speakers": {"data.valid": ()},
    "search.max_extra=100000": {"data.max_length": 8},
}


# What is refused by itself, and why.
REFUSED = {
    "data.hold_out=1000000000": "too few different sources",
    "data.hold_out_speakers=('anna',)": "the training data have no speaker 'anna'",
    "data.vocabulary_size=8": "data.vocabulary_size = 8: the characters of the text alone need",
    "data.max_length=1": "no pair is left to train on",
    "train.epsilon=0.0": "train.epsilon = 0: Adam divides by it",
    "data.task=text": "learns from pairs: give them with --train",
    "data.task=speech": "cannot read recordings: use model.family=speech",
    "data.speeds=('0.9', '1')": "are for speech",
    "data.frequency_masks=1": "are for speech",
    "data.frequency_masks=100": "are for speech",
    "data.time_masks=1": "are for speech",
    "data.time_masks=100": "are for speech",
    "data.trim_quiet=35.0": "are for speech",
    "data.trim_quiet=100": "are for speech",
    "data.documents=blank-line": "is for the text of a language model",
    "data.documents=line": "is for the text of a language model",
}
if thread_refusal(1_024):
    REFUSED["train.threads=1024"] = "threads = 1024: must be at most"
if not torch.cuda.is_available():
    REFUSED["train.device=cuda"] = "PyTorch finds no GPU"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Sentences of a few words, and the same backwards."""
    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(1)
    for name, count in (("train", 40), ("valid", 6)):
        rows = [draw.choices(WORDS[:15], k=draw.randint(2, 5)) for _ in range(count)]
        (folder / f"{name}.source").write_text("".join(f"{' '.join(row)}\n" for row in rows))
        (folder / f"{name}.target").write_text("".join(f"{' '.join(row[::-1])}\n" for row in rows))
    return {name: (str(folder / f"{name}.source"), str(folder / f"{name}.target")) for name in ("train", "valid")}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def is_slow(one: Setting, value: Any) -> bool:
    """Named choices are walked in every run of the tests, numbers and texts in `make test-full`."""
    tried_in_a_process = (one.name, value) == ("train.precision", "bf16")
    return tried_in_a_process or (not one.choices and one.kind is not bool)


OTHER_CHANGES = [
    pytest.param(one, value, id=label((one, value)), marks=[pytest.mark.slow] * is_slow(one, value))
    for section in ("data", "train", "search")
    for one, value in changes(section)
]


@pytest.mark.parametrize(("one", "value"), OTHER_CHANGES)
def test_every_value_of_data_training_and_search(
    one: Setting, value: Any, corpus: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    TALLY["walked"] += 1
    needed = WITH.get(label((one, value)), WITH.get(one.name, {}))
    settings = SMALL | needed | {one.name: value}
    files = {name: group for name, group in corpus.items() if f"data.{name}" not in needed}
    settings = {name: given for name, given in settings.items() if name not in ("data.train", "data.valid")}
    reason = refused(lambda: transduce.train(tmp_path / "run", **files, settings=settings, quiet=True))
    expected = REFUSED.get(label((one, value)), "")
    assert bool(reason) == bool(expected), reason
    if reason:
        assert expected in reason
        TALLY["refused"] += 1
        return
    assert_engines_agree(tmp_path / "run", corpus)
    TALLY["trained and translated the same"] += 1
    shutil.rmtree(tmp_path / "run")


def assert_engines_agree(run: Path, corpus: dict[str, tuple[str, str]]) -> None:
    """CTranslate2 says what PyTorch says, or says why it cannot."""
    lines = Path(corpus["valid"][0]).read_text().splitlines()[:3]
    plain = transduce.load(run, engine="torch")
    request = plain.request(beam=1, max_extra=3)
    found: list[Translation] = []

    def translate() -> None:
        fast = transduce.load(run, engine="ct2", quantization="float32")
        found.extend(fast.stream(lines, request))

    if refused(translate):
        TALLY["by ct2: left to the plain path"] += 1
        return
    assert_translations_agree(plain, request, found, list(plain.stream(lines, request)))
    TALLY["by ct2: the same"] += 1


def test_every_setting_is_walked() -> None:
    """How many values there are: whoever adds a setting sees them here."""
    walked = {one.name for section in ("model", "data", "train", "search") for one, _ in changes(section)}
    assert walked == {one.name for one in all_settings()}
    assert all(len(values_of(one)) > 1 for one in all_settings() if one.kind in (int, float, bool) or one.choices)
    assert {one.key for those in PAIRS for one, _ in those} == {key for supports in DECLARED for key in supports.values}
