"""The views against the model's own numbers, and what of a run folder they tell."""

import fcntl
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from folders import SHAPE, write_folder

from transduce.checkpoint import RunFolder
from transduce.config import TransformerConfig
from transduce.errors import DamagedFile, DataError, SettingError
from transduce.explore.head_statistics import Kinds, head_statistics, is_punctuation
from transduce.explore.runs import MOST_POINTS
from transduce.explore.views import MOST_TOKENS, attention_view, training_view, translate_view, tree_view
from transduce.model import Tokens
from transduce.model.positions import sinusoids
from transduce.run_lock import is_training
from transduce.translator import LoadOptions, Translator

SENTENCE = "the cat sat on a mat while seven small dogs ran"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("explore") / "run")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder, LoadOptions(engine="torch", device="cpu"))


# --- translate -------------------------------------------------------------------------------------------------


def test_outputs_are_the_translator_s(translator: Translator) -> None:
    view = translate_view(translator, SENTENCE, n_best=3)
    [expected] = translator.stream([SENTENCE], translator.request(n_best=3))
    assert [output["text"] for output in view["outputs"]] == [output.text for output in expected.outputs]
    for shown, output in zip(view["outputs"], expected.outputs, strict=True):
        assert [token["token"] for token in shown["tokens"]] == [*output.tokens, "</s>"]
        assert [t["log_probability"] for t in shown["tokens"]] == pytest.approx(
            output.token_log_probabilities, abs=2e-4
        )
        assert shown["score"] == pytest.approx(output.score, abs=1e-4)
    json.dumps(view, allow_nan=False)


def test_alternatives_are_the_most_probable_others(translator: Translator) -> None:
    view = translate_view(translator, SENTENCE, n_best=1, alternatives=4)
    [first, *_] = view["outputs"][0]["tokens"]
    source = Tokens.padded([translator.source_ids(SENTENCE)], 0)
    start = Tokens.padded([[translator.vocabularies.target.pad]], 0)
    with torch.no_grad():
        model = translator.model
        log_probs = model.project(model.decode(start, model.encode(source)))[0, 0].log_softmax(-1)
    ranked = translator.vocabularies.target.pieces(log_probs.argsort(descending=True)[:5].tolist())
    assert [one["token"] for one in first["alternatives"]] == [piece for piece in ranked if piece != first["token"]][:4]
    for one in first["alternatives"]:
        assert one["log_probability"] <= max(log_probs.tolist()) + 1e-4


def test_nothing_to_translate_is_no_output(translator: Translator) -> None:
    assert translate_view(translator, "  ")["outputs"] == []


def test_what_was_cut_or_unknown_is_said(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "longest_source", 5)
    view = translate_view(translator, SENTENCE, n_best=1, alternatives=0)
    assert view["cut"] == len(translator.vocabularies.source.encode([SENTENCE])[0]) - 5 > 0
    assert len(view["source"]["tokens"]) == 5
    assert view["unknown"] == 0


# --- attention -------------------------------------------------------------------------------------------------


def test_maps_are_what_the_model_attends_to(translator: Translator) -> None:
    target = "der Hund läuft über die grüne Wiese"
    view, seen = attention_view(translator, SENTENCE, target), translator.attention(SENTENCE, target)
    assert view["source"]["tokens"] == seen.source
    assert view["target"]["decoder_input_tokens"] == seen.target
    assert view["target"]["tokens"][:-1] == view["target"]["decoder_input_tokens"][1:]
    for part in ("encoder", "decoder", "cross"):
        expected = torch.stack([layer[0] for layer in getattr(seen.maps, part)])
        torch.testing.assert_close(torch.tensor(view["maps"][part]), expected, atol=1e-4, rtol=0)
    json.dumps(view, allow_nan=False)


def test_looking_leaves_the_translator_alone(translator: Translator) -> None:
    before = translator.translate([SENTENCE])
    attention_view(translator, SENTENCE, off=[["encoder", 0, 0]])
    assert translator.translate([SENTENCE]) == before
    assert all(layer.attention.tap is None for layer in translator.model.decoder)


def test_a_given_target_is_looked_at_and_scored(translator: Translator) -> None:
    view = attention_view(translator, SENTENCE, target_text="der Hund läuft")
    assert view["target"]["text"] == "der Hund läuft"
    [scored] = translator.score_tokens([SENTENCE], ["der Hund läuft"])
    assert view["target"]["log_probabilities"] == pytest.approx(scored.token_log_probabilities, abs=2e-4)


def test_without_its_heads_the_model_translates_anew(translator: Translator) -> None:
    everything = [["cross", layer, head] for layer in (0, 1) for head in range(4)]
    whole, blind = attention_view(translator, SENTENCE), attention_view(translator, SENTENCE, off=everything)
    other = attention_view(translator, "so far from home", off=everything)
    assert whole["target"]["text"] != blind["target"]["text"]
    assert blind["target"]["text"] == other["target"]["text"]  # it sees no source at all
    assert blind["off"] == everything


def test_masks_and_positions_are_those_of_the_sentence(translator: Translator) -> None:
    view = attention_view(translator, SENTENCE)
    source, target = len(view["source"]["tokens"]), len(view["target"]["tokens"])
    assert view["masks"]["encoder"] == [[1] * source] * source
    assert view["masks"]["decoder"] == [[int(asked <= asks) for asked in range(target)] for asks in range(target)]
    assert view["masks"]["cross"] == [[1] * source] * target
    expected = sinusoids(torch.arange(source), SHAPE.d_model)
    torch.testing.assert_close(torch.tensor(view["positions"]["source"]), expected, atol=6e-4, rtol=0)


@pytest.mark.parametrize("kind", ["learned", "rotary", "none"])
def test_other_positions_are_shown_too(kind: str, tmp_path: Path) -> None:
    shape = TransformerConfig(
        d_model=32, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, positions=kind
    )  # type: ignore[arg-type]
    view = attention_view(
        Translator.load(write_folder(tmp_path / "run", shape), LoadOptions(engine="torch")), "the cat", "der"
    )
    rows = torch.tensor(view["positions"]["source"])
    assert view["positions"]["kind"] == kind
    assert rows.shape == (len(view["source"]["tokens"]), 16 if kind == "rotary" else 32)
    assert bool((rows == 0).all()) == (kind == "none")


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [("▁.", True), (",", True), ("▁a.", False), ("▁", False), ("</s>", False), ("“", True), ("3", False)],
)
def test_what_punctuation_is(tokens: str, expected: bool) -> None:
    assert is_punctuation(tokens) == expected


def test_statistics_of_known_heads() -> None:
    """Heads made by hand: one looks at itself, one at the token before, one everywhere, one at the full stop."""
    places = 8
    itself, everywhere = torch.eye(places), torch.full((places, places), 1 / places)
    before = torch.eye(places).roll(-1, dims=1)
    before[0] = 0
    before[0, 0] = 1
    stop = torch.zeros(places, places)
    stop[:, 6] = 1
    tokens = ["▁a", "▁b", "▁c", "▁d", "▁e", "▁f", ".", "</s>"]
    found = head_statistics(torch.stack([itself, before, everywhere, stop]), Kinds.of(tokens))
    assert [one["same"] for one in found] == [1, 0.125, 0.125, 0.125]
    assert [one["previous"] for one in found] == [0, 0.875, pytest.approx(7 / 64, abs=1e-4), 0.125]
    assert [one["entropy"] for one in found] == [0, 0, 3, 0]
    assert [one["distance"] for one in found] == [0, 0.875, pytest.approx(2.625), 2.75]
    assert [one["punctuation"] for one in found] == [0.125, 0.125, 0.125, 1]
    assert [one["marks"] for one in found] == [0.125, 0, 0.125, 0]


# --- tree ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [2, 4])
def test_the_tree_is_that_of_the_real_search(translator: Translator, beam: int) -> None:
    view = tree_view(translator, SENTENCE, beam=beam)
    [expected] = translator.stream([SENTENCE], translator.request(beam=beam, n_best=beam))
    assert [one["text"] for one in view["outputs"]] == [output.text for output in expected.outputs]
    nodes = {node["id"]: node for step in view["steps"] for node in step["candidates"]}
    for shown, output in zip(view["outputs"], expected.outputs, strict=True):
        path = [nodes[name] for name in shown["path"]]
        assert [node["token"] for node in path] == [*output.tokens, "</s>"]
        assert [n["log_probability"] for n in path] == pytest.approx(output.token_log_probabilities, abs=1e-4)
        assert path[-1]["total"] == pytest.approx(output.log_probability, abs=1e-3)
        assert path[-1]["score"] == pytest.approx(output.score, abs=1e-4)
        assert [node["state"] for node in path] == ["kept"] * len(output.tokens) + ["ended"]


def test_each_step_of_the_tree_goes_on_from_what_was_kept(translator: Translator) -> None:
    view = tree_view(translator, SENTENCE, beam=3)
    living = {"start"}
    for step in view["steps"]:
        assert {node["parent"] for node in step["candidates"]} <= living
        assert len(step["candidates"]) == 6
        totals = [node["total"] for node in step["candidates"]]
        assert totals == sorted(totals, reverse=True)
        living = {node["id"] for node in step["candidates"] if node["state"] == "kept"}
        assert len(living) == 3
    assert view["steps"][-1]["attainable"] is None or view["steps"][-1]["attainable"] <= view["steps"][-1]["worst_kept"]
    assert all(s["worst_kept"] is None or s["attainable"] > s["worst_kept"] for s in view["steps"][:-1])


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [attention_view, tree_view])
def test_too_long_a_sentence_is_refused(view: Callable[..., object], translator: Translator) -> None:
    with pytest.raises(DataError, match=f"tokens: at most {MOST_TOKENS} on each side can be shown"):
        view(translator, "cat " * MOST_TOKENS)


def test_too_long_a_target_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match=f"tokens: at most {MOST_TOKENS} on each side can be shown"):
        attention_view(translator, "cat", "Hund " * MOST_TOKENS)


@pytest.mark.parametrize("view", [attention_view, tree_view])
def test_an_empty_sentence_is_refused(view: Callable[..., object], translator: Translator) -> None:
    with pytest.raises(DataError, match="the sentence is empty"):
        view(translator, " ")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n_best": 0}, "n_best = 0: must be a whole number from 1 to 20"),
        ({"n_best": "4"}, "n_best = 4: must be a whole number"),
        ({"alternatives": 21}, "alternatives = 21: must be a whole number from 0 to 20"),
    ],
)
def test_counts_out_of_bounds_are_refused(settings: dict[str, int], complaint: str, translator: Translator) -> None:
    with pytest.raises(SettingError, match=complaint):
        translate_view(translator, SENTENCE, **settings)


def test_a_beam_that_is_no_tree_is_refused(translator: Translator) -> None:
    with pytest.raises(SettingError, match="beam = 1: must be a whole number from 2 to 12"):
        tree_view(translator, SENTENCE, beam=1)


@pytest.mark.parametrize(
    "head", [["encoder", 0], ["encoder", "0", 0], [["encoder"], 0, 0], "abc", 5, None, ["encoder", 9, 0]]
)
def test_a_head_named_otherwise_is_refused(head: list[object], translator: Translator) -> None:
    with pytest.raises(SettingError, match=r"a head must be|the model has layers"):
        attention_view(translator, SENTENCE, off=[head])


# --- training --------------------------------------------------------------------------------------------------


def log(folder: Path, *events: dict[str, object], end: str = "\n") -> None:
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(event) for event in events) + end)


def event(kind: str, step: int, loss: float = 2.0) -> dict[str, object]:
    samples = [{"source": "a", "output": "b", "reference": "c"}]
    return {"event": kind, "step": step, "loss": loss, "scores": {"BLEU": {"value": 30.5}}, "samples": samples}


def test_training_is_told_as_the_log_has_it(tmp_path: Path) -> None:
    log(tmp_path, event("train", 10), event("train", 20, math.nan), event("valid", 20), event("averaged", 20))
    (tmp_path / "README.md").write_text("# a card")
    view = training_view(tmp_path)
    assert [(point["step"], point["loss"]) for point in view["steps"]] == [(10, 2.0), (20, None)]
    assert view["validations"][0]["scores"] == {"BLEU": 30.5}
    assert view["validations"][0]["samples"] == [{"source": "a", "output": "b", "reference": "c"}]
    assert view["averaged"][0]["step"] == 20
    assert (view["card"], view["running"]) == ("# a card", False)
    json.dumps(view, allow_nan=False)


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    log(tmp_path, event("train", 10), end='\n{"event": "train", "st')
    assert [point["step"] for point in training_view(tmp_path)["steps"]] == [10]


def test_a_damaged_log_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{not json}\n{}\n")
    with pytest.raises(DamagedFile, match="the log cannot be read"):
        training_view(tmp_path)


def test_long_curves_are_thinned_and_keep_the_newest(tmp_path: Path) -> None:
    log(tmp_path, *(event("train", step) for step in range(1, 4 * MOST_POINTS)))
    points = training_view(tmp_path)["steps"]
    assert len(points) <= MOST_POINTS
    assert points[-1]["step"] == 4 * MOST_POINTS - 1


def test_an_imported_model_has_no_training_to_tell(folder: Path) -> None:
    view = training_view(folder)
    assert (view["steps"], view["validations"], view["running"]) == ([], [], False)
    assert view["card"].startswith("# a model")


def test_a_run_goes_on_while_its_lock_is_held(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not is_training(folder)
    with open(folder.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_training(folder)
    assert not is_training(folder)  # what a killed run leaves behind
