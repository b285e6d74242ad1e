"""Fast paths and exports refuse what they do not know: a setting, a value or a family that is new to them."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from transduce.config import Config, ModelConfig, TransformerConfig
from transduce.config.setting import settings_of
from transduce.config.support import ANY, Supports
from transduce.continuous import decoder
from transduce.errors import SettingError
from transduce.exchange import hf, onnx_graphs
from transduce.model import fused
from transduce.translator import SearchRequest, ct2_spec, ctc_engine
from transduce.translator.engine import SearchBlock
from transduce.translator.slot_engine import SlotEngine

DECLARED = {
    "kernels": fused.SUPPORTS,
    "slots": decoder.SUPPORTS,
    "CTranslate2": ct2_spec.SUPPORTS,
    "Hugging Face": hf.SUPPORTS,
    "ONNX": onnx_graphs.SUPPORTS,
}
SMALL = TransformerConfig(d_model=32, d_ff=32, num_heads=2)


def refuses(refuse: Callable[[Any], None], config: Any) -> bool:
    none = SimpleNamespace(model=b"")
    opened = SimpleNamespace(
        config=SimpleNamespace(model=config, transformer=config), vocabularies=SimpleNamespace(source=none, target=none)
    )
    try:
        refuse(opened)
    except SettingError:
        return True
    return False


# How each of them is asked, where it decides whether to compute a model.
REFUSES: dict[str, Callable[[Any], bool]] = {
    "kernels": lambda config: not fused.understands(config),
    "slots": lambda config: not decoder.understands(config),
    "CTranslate2": lambda config: bool(ct2_spec.refusal(config)),
    "Hugging Face": lambda config: refuses(hf.refuse, config),
    "ONNX": lambda config: refuses(onnx_graphs.refuse, config),
}


@pytest.fixture(autouse=True)
def _no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf, "_unsupported_pieces", lambda both: [])


@dataclass(frozen=True, kw_only=True)
class Tomorrow(TransformerConfig):
    """The model's settings with one that was added later."""

    dilation: int = 0


@dataclass(frozen=True, kw_only=True)
class OtherFamily(ModelConfig):
    family: str = "recurrent"


def test_the_list_is_complete() -> None:
    assert set(DECLARED) == set(REFUSES)


@pytest.mark.parametrize("name", DECLARED)
def test_what_they_know_exists(name: str) -> None:
    """Named choices are listed one by one, so that a new one is not known."""
    known = {one.key: one for one in settings_of("model", TransformerConfig)}
    assert set(DECLARED[name].values) <= set(known)
    for key, values in DECLARED[name].values.items():
        if choices := known[key].choices:
            assert isinstance(values, tuple)
            assert set(values) <= set(choices)
        else:
            assert values is ANY


@pytest.mark.parametrize("name", DECLARED)
def test_a_setting_of_tomorrow_is_refused_unless_it_stands_at_its_default(name: str) -> None:
    shape = {one.name: getattr(SMALL, one.name) for one in fields(SMALL)}
    assert not REFUSES[name](SMALL)
    assert not REFUSES[name](Tomorrow(**shape))
    assert REFUSES[name](Tomorrow(**shape, dilation=3))
    assert DECLARED[name].refusal(Tomorrow(**shape, dilation=3)) == "model.dilation = 3"


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("key", [one.key for one in settings_of("model", TransformerConfig) if one.choices])
def test_a_value_of_tomorrow_is_refused(name: str, key: str) -> None:
    changed = replace(SMALL, **{key: "of-tomorrow"})  # type: ignore[arg-type]
    assert REFUSES[name](changed)
    assert DECLARED[name].refusal(changed) == f'model.{key} = "of-tomorrow"'


@pytest.mark.parametrize("name", DECLARED)
def test_another_family_is_refused(name: str) -> None:
    assert DECLARED[name].refusal(OtherFamily()) == 'model.family = "recurrent"'


def test_settings_that_are_not_named_must_stand_at_their_default() -> None:
    supports = Supports(TransformerConfig, {"norm": ("post", "pre"), "d_model": ANY})
    assert supports.refusal(TransformerConfig(norm="pre", d_model=7)) == ""
    assert supports.refusal(TransformerConfig(output_bias=True)) == "model.output_bias = true"
    assert supports.refusal(TransformerConfig(d_ff=7)) == "model.d_ff = 7"


def test_the_paper_is_known_to_all() -> None:
    assert [name for name, refused in REFUSES.items() if refused(Config().model)] == []


# --- what engines know of a request ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RequestOfTomorrow(SearchRequest):
    """A request with a setting that was added later."""

    diversity: float = 0.0


def refused_with_words(request: SearchRequest, prefix: tuple[int, ...] = ()) -> str:
    try:
        ctc_engine.check_request(SearchBlock([[5]], [prefix]), request)
    except SettingError as error:
        return str(error)
    return ""


def refused_by_ctranslate2(request: SearchRequest) -> str:
    pytest.importorskip("ctranslate2")
    from transduce.translator import ct2_engine

    assert {one.name for one in fields(SearchRequest)} >= ct2_engine.SUPPORTED
    return ct2_engine.refusal(request, longest=1)


REFUSED_BY: dict[str, Callable[[SearchRequest], str]] = {
    "slots": lambda request: request.refusal(SlotEngine.SUPPORTED),
    "CTranslate2": refused_by_ctranslate2,
    "CTC": refused_with_words,
}


@pytest.mark.parametrize("engine", REFUSED_BY)
def test_an_engine_refuses_a_request_of_tomorrow(engine: str) -> None:
    refused = REFUSED_BY[engine]
    assert refused(RequestOfTomorrow(length_penalty="power", beam=7, seed=3)) == ""
    assert "diversity = 0.5" in refused(RequestOfTomorrow(length_penalty="power", diversity=0.5))


@pytest.mark.parametrize("supported", [SlotEngine.SUPPORTED, ctc_engine.SUPPORTED])
def test_what_engines_know_of_a_request_exists(supported: frozenset[str]) -> None:
    assert supported <= {one.name for one in fields(SearchRequest)}


def test_slots_leave_other_requests_to_the_plain_engine() -> None:
    others = [SearchRequest(sampling=True), SearchRequest(constrained=True), SearchRequest(allow_unknown=False)]
    assert [request.refusal(SlotEngine.SUPPORTED) for request in others] == [
        "sampling = True",
        "constrained = True",
        "allow_unknown = False",
    ]
    assert SearchRequest(beam=9, n_best=3, aligned=True, log_probs="none").refusal(SlotEngine.SUPPORTED) == ""


def test_the_settings_of_sampling_matter_only_to_sampling() -> None:
    assert SearchRequest(temperature=2.0, top_k=5).refusal(()) == ""
    assert SearchRequest(sampling=True, top_k=5).refusal({"sampling"}) == "top_k = 5"


def test_a_search_with_words_is_a_beam_search() -> None:
    alone = "an n-gram model works with beam search alone: leave out sampling, prefixes and terms"
    assert refused_with_words(SearchRequest(sampling=True)) == alone
    assert refused_with_words(SearchRequest(constrained=True)) == alone
    assert refused_with_words(SearchRequest(), prefix=(5,)) == alone
    assert refused_with_words(SearchRequest()) == ""
