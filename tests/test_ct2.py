"""The CTranslate2 engine beside the PyTorch one: in float32 the same outputs but for ties, and the same figures."""

import dataclasses
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import folders
import pytest
import torch
from agreement import assert_hypotheses_agree, assert_texts_agree, assert_translations_agree
from threads import THREADS

import transduce
from transduce.checkpoint import RunFolder, read_tensors, write_tensors
from transduce.cli import main
from transduce.config import Config, DataConfig, SearchConfig, TransformerConfig, to_toml
from transduce.errors import DamagedFile, DataError, MissingExtra, RunError, SettingError
from transduce.model import Transformer
from transduce.text import EOS, Vocabularies, train_vocabulary
from transduce.translator import (
    LoadOptions,
    SearchRequest,
    Translation,
    Translator,
    engines,
    inputs,
    read_config,
    write_config,
)
from transduce.translator.ct2_spec import POSITIONS, expected_shapes, refusal, sinusoids
from transduce.translator.engine import SearchBlock

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'transduce[ct2]'")
ct2_engine = pytest.importorskip("transduce.translator.ct2_engine")

WORDS = (
    "the cat sat on a mat while seven small dogs ran under old bridges in winter rain and nobody knew why "
    "they had come so far from home only to look at water moving slowly past stones"
).split()
SMALL = TransformerConfig(d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=1, dropout=0.0)
VARIANTS = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "gelu": {"activation": "gelu", "output_bias": True},
    "swish": {"activation": "swish", "norm": "pre", "output_bias": True},
    "target tied": {"tie": "target"},
    "nothing tied": {"tie": "none", "num_decoder_layers": 3},
    "learned positions": {"positions": "learned", "max_positions": 64},
    "no positions": {"positions": "none"},
    "rotary positions": {"positions": "rotary", "norm": "pre"},
}
POWER = SearchConfig(beam=4, alpha=1.0, length_penalty="power", max_extra=20)


def random_lines(count: int, seed: int, longest: int = 12) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def vocabularies() -> Vocabularies:
    source = train_vocabulary(random_lines(300, seed=1), units="bpe", size=400)
    target = train_vocabulary([line.upper() for line in random_lines(300, seed=1)], units="bpe", size=380)
    return Vocabularies(source, target)


def write_folder(
    path: Path, model: TransformerConfig, vocabularies: Vocabularies, search: SearchConfig = POWER
) -> Path:
    """A model folder with random weights, far enough apart that the last bit of a sum decides nothing."""
    joint = model.tie == "all"
    source, target = vocabularies.source, vocabularies.source if joint else vocabularies.target
    torch.manual_seed(1)
    made = Transformer(model, source.size, target.size)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        made.output_embedding.weight.mul_(2)
    folder = RunFolder(path)
    path.mkdir(parents=True)
    folder.config.write_text(to_toml(Config(model=model, data=DataConfig(joint=joint, max_length=64), search=search)))
    for side, vocabulary in ({"joint": source} if joint else {"source": source, "target": target}).items():
        vocabulary.save(folder.vocabulary(side))
    write_tensors(folder.weights("best"), dict(made.named_parameters()))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has nearly learned to shout: sure enough to end its outputs, unsure enough to have others."""
    folder = tmp_path_factory.mktemp("ct2")
    for name, lines in (("train", random_lines(3_000, seed=2)), ("valid", random_lines(60, seed=3))):
        (folder / f"{name}.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines))
    settings = """
    model.d_model=64 model.d_ff=128 model.num_heads=4 model.num_encoder_layers=2 model.num_decoder_layers=1
    model.norm=pre model.dropout=0 train.steps=300 train.tokens_per_batch=1000 train.learning_rate=6e-3 train.warmup_steps=30
    train.validate_every=300 train.checkpoint_every=300 train.average=0 data.task=translation
    data.source_units=bpe data.target_units=bpe data.vocabulary_size=400 search.length_penalty=power search.alpha=1
    """.split()
    transduce.train(
        folder / "run",
        train=[(str(folder / "train.tsv"),)],
        valid=[(str(folder / "valid.tsv"),)],
        settings=[*settings, f"train.threads={THREADS}", f"data.cache={folder / 'cache'}"],
        quiet=True,
    )
    return folder / "run"


def both(path: Path, **loading: Any) -> tuple[Translator, Translator]:
    """PyTorch's and CTranslate2's translators of a folder, in float32."""
    return (
        Translator.load(path, LoadOptions(engine="torch", threads=THREADS)),
        Translator.load(
            path, LoadOptions(**{"engine": "ct2", "quantization": "float32", "threads": THREADS} | loading)
        ),
    )


# CTranslate2 ends a beam search by a rule of its own, so that once in a while ours finds a better output. Greedy search
# has nothing to differ in.
BEAMS_THAT_MISS = 0.05


def assert_same(
    ours: Translator, request: SearchRequest, found: Sequence[Translation], expected: Sequence[Translation]
) -> None:
    misses = BEAMS_THAT_MISS if request.beam > 1 else 0.0
    assert_translations_agree(ours, request, found, expected, misses=misses)


# --- the same model --------------------------------------------------------------------------------------------


@pytest.mark.numerics
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_the_same_model(name: str, vocabularies: Vocabularies, tmp_path: Path) -> None:
    ours, theirs = both(write_folder(tmp_path / "run", dataclasses.replace(SMALL, **VARIANTS[name]), vocabularies))
    lines = random_lines(12, seed=4)
    for one, other in zip(theirs.score_tokens(lines, lines[::-1]), ours.score_tokens(lines, lines[::-1]), strict=True):
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)
    greedy = ours.request(beam=1, max_extra=5)
    assert_same(ours, greedy, list(theirs.stream(lines, greedy)), list(ours.stream(lines, greedy)))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_names_and_shapes_are_the_model_s_own(name: str) -> None:
    config = dataclasses.replace(SMALL, **VARIANTS[name])
    target = 50 if config.tie == "all" else 40
    parameters = Transformer(config, 50, target).named_parameters()
    assert expected_shapes(config, 50, target) == {name: list(parameter.shape) for name, parameter in parameters}


def test_the_sinusoids_are_the_model_s_own() -> None:
    from transduce.model.positions import sinusoids as ours

    for last in (64, 62):  # the paper's frequencies and Marian's
        expected = ours(torch.arange(POSITIONS), 64, last).numpy()
        assert sinusoids(POSITIONS, 64, last) == pytest.approx(expected, abs=1e-6)


REQUESTS = {
    "greedy": {"beam": 1},
    "greedy, the paper's penalty": {"beam": 1, "length_penalty": "paper"},
    "beam": {"beam": 4},
    "beam, no penalty": {"beam": 4, "alpha": 0.0},
    "n-best": {"beam": 4, "n_best": 4},
    "n-best, no penalty": {"beam": 4, "n_best": 4, "alpha": 0.0},
    "n-best, wide": {"beam": 8, "n_best": 3, "alpha": 0.6},
    "greedy, cut short": {"beam": 1, "max_extra": 0},
}


@pytest.mark.numerics
@pytest.mark.parametrize("name", REQUESTS)
def test_a_trained_model_says_the_same(trained: Path, name: str) -> None:
    ours, theirs = both(trained)
    request = ours.request(**REQUESTS[name])
    lines = random_lines(60, seed=5)
    expected = list(ours.stream(lines, request))
    assert len({one.text for one in expected}) > 50
    assert_same(ours, request, list(theirs.stream(lines, request)), expected)
    assert_same(ours, request, [next(theirs.stream([line], request)) for line in lines[:5]], expected[:5])


@pytest.mark.numerics
@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_begin_with_their_prefixes(trained: Path, beam: int) -> None:
    ours, theirs = both(trained)
    lines = random_lines(40, seed=6)
    prefixes = [["", line.upper(), line.upper()[:7], line.split()[0].upper()][n % 4] for n, line in enumerate(lines)]
    request = ours.request(beam=beam)
    found = list(theirs.stream(lines, request, prefixes))
    assert_same(ours, request, found, list(ours.stream(lines, request, prefixes)))
    assert all(one.text.startswith(prefix.rstrip()) for one, prefix in zip(found, prefixes, strict=True))
    odd = list(theirs.stream(lines, request, ["WATER STONES"] * len(lines)))
    assert all(one.text.startswith("WATER STONES") for one in odd)
    long = " ".join(WORDS).upper()  # longer than the output may be: nothing but `</s>` can follow
    short = ours.request(beam=beam, max_extra=0)
    assert_same(ours, short, list(theirs.stream(["cat"], short, [long])), list(ours.stream(["cat"], short, [long])))


@pytest.mark.numerics
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("extra", [0, 1, 3])
def test_every_line_has_its_own_limit(vocabularies: Vocabularies, tmp_path: Path, beam: int, extra: int) -> None:
    """Random weights ramble: nearly every output is ended by its limit, which is the source's length and a bit."""
    ours, theirs = both(write_folder(tmp_path / "run", SMALL, vocabularies))
    lines, request = (
        random_lines(30, seed=7),
        SearchRequest(beam=beam, alpha=1.0, length_penalty="power", max_extra=extra),
    )
    found, expected = list(theirs.stream(lines, request)), list(ours.stream(lines, request))
    lengths = [len(one.outputs[0].tokens) + 1 - one.source_tokens for one in found]
    assert max(lengths) == extra
    assert_same(ours, request, found, expected)


@pytest.mark.numerics
def test_outputs_broken_off_at_the_limit_hide_none_that_ended(tmp_path: Path) -> None:
    """CTranslate2 ranks them without their `</s>`: they look better than they are."""
    ours, theirs = both(folders.write_folder(tmp_path / "run"))
    sources = ours.vocabularies.source.encode(folders.lines(120, seed=5))
    request = ours.request(beam=4, n_best=4, alpha=0.0, max_extra=4)
    engines = ours.engines.torch, theirs.engines.ct2
    expected, found = (next(engine.stream([SearchBlock(sources, [[]] * 120)], request)) for engine in engines)
    limits = [len(source) + request.max_extra for source in sources]
    broken_off = sum(len(line[0].tokens) + 1 == limit for line, limit in zip(expected, limits, strict=True))
    assert 20 < broken_off < 60
    assert_hypotheses_agree(ours.engines.torch, request, sources, found, expected, misses=BEAMS_THAT_MISS)


@pytest.mark.numerics
def test_scoring_ids_gives_what_the_search_said(trained: Path) -> None:
    _, theirs = both(trained)
    engine = theirs.engines.scoring()
    sources = theirs.vocabularies.source.encode(random_lines(20, seed=8))
    request = theirs.request(n_best=4, log_probs="outputs")
    found = next(engine.stream([SearchBlock(sources, [[]] * 20)], request))
    assert [] in [one.token_log_probabilities for hypotheses in found for one in hypotheses]  # not asked for
    for source, hypotheses in zip(sources, found, strict=True):
        for one in hypotheses:
            scored = engine.score([source], [[*one.tokens, EOS]])[0]
            assert sum(scored) == pytest.approx(one.log_probability, abs=1e-4)


def test_figures_not_asked_for_are_not_made(trained: Path) -> None:
    _, theirs = both(trained)
    text = theirs.translate(["the cat sat"], theirs.request(beam=1))
    found = next(theirs.stream(["the cat sat"], theirs.request(beam=1, log_probs="none")))
    assert found.text == text[0]
    assert found.outputs[0].token_log_probabilities == []


# --- sampling --------------------------------------------------------------------------------------------------


@pytest.mark.numerics
def test_samples_follow_their_seed_and_have_the_model_s_score(trained: Path) -> None:
    ours, theirs = both(trained)
    lines = random_lines(10, seed=9)

    def drawn(**changes: Any) -> list[Translation]:
        return list(theirs.stream(lines, theirs.request(sampling=True, n_best=3, temperature=2.0, **changes)))

    assert drawn(seed=2**40 + 3) == drawn(seed=2**40 + 3)
    first = drawn(seed=3)
    assert [one.text for one in first] != [one.text for one in drawn(seed=4)]
    ids = [theirs.vocabularies.source.encode([one.source])[0] for one in first for _ in one.outputs]
    names = {name: i for i, name in enumerate(theirs.vocabularies.target.pieces(range(theirs.vocabularies.target.pad)))}
    targets = [[*(names[token] for token in o.tokens), EOS] for one in first for o in one.outputs]
    scores = ours.engines.torch.score(ids, targets)
    outputs = [output for one in first for output in one.outputs]
    for output, values in zip(outputs, scores, strict=True):
        assert output.token_log_probabilities == pytest.approx(values, abs=1e-4)


@pytest.mark.numerics
def test_a_draw_from_one_token_is_the_greedy_output(trained: Path) -> None:
    ours, theirs = both(trained)
    lines, greedy = random_lines(5, seed=10), theirs.request(beam=1)
    expected = theirs.translate(lines, greedy)
    for cut in ({"top_k": 1}, {"top_p": 1e-6}, {"top_k": 10**6, "top_p": 1e-6}):
        found = list(theirs.stream(lines, theirs.request(sampling=True, n_best=2, **cut)))
        for texts in zip(*([o.text for o in one.outputs] for one in found), strict=True):
            assert_texts_agree(ours, greedy, lines, texts, expected)


# --- lines in, lines out ---------------------------------------------------------------------------------------


@pytest.mark.numerics
def test_order_is_kept_over_batches_blocks_and_workers(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(trained, threads=2)
    lines = ["" if n % 7 == 3 else line for n, line in enumerate(random_lines(60, seed=11))]
    request = theirs.request(beam=2)
    expected = [theirs.translate([line], request)[0] for line in lines]
    one_line = 1 / len(lines)  # two that changed places are found
    assert_texts_agree(ours, request, lines, theirs.translate(lines, request), expected, misses=one_line)
    monkeypatch.setattr(inputs, "LINES_AT_ONCE", 8)
    monkeypatch.setattr(ct2_engine.Ct2Engine, "BATCH_POSITIONS", 40)
    assert_texts_agree(ours, request, lines, theirs.translate(lines, request), expected, misses=one_line)
    assert theirs.translate(["", " "], request) == ["", ""]
    assert theirs.translate([], request) == []


@pytest.mark.parametrize("full", [True, False], ids=["full lines", "empty lines"])
def test_only_a_few_blocks_are_taken_ahead(trained: Path, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LINES_AT_ONCE", 4)
    _, theirs = both(trained)
    lines, read = random_lines(60, seed=12) if full else [""] * 60, 0

    def pulled() -> Iterator[str]:
        nonlocal read
        for line in lines:
            read += 1
            yield line

    for number, found in enumerate(theirs.stream(pulled(), theirs.request(beam=1))):
        assert found.source == lines[number]
        assert read <= 4 * (number // 4 + 1) + 4 * (ct2_engine.Ct2Engine.AHEAD + 1)


@pytest.mark.numerics
def test_a_line_does_not_wait_for_the_next(trained: Path) -> None:
    """Both engines answer what is there before they ask for more, once they hear that nothing more is there yet."""
    for ours in both(trained):
        lines, greedy = ["the cat", "", "the dogs ran", "rain"], ours.request(beam=1)
        answered: list[str] = []

        def typed(lines: list[str] = lines, answered: list[str] = answered) -> Iterator[str]:
            for number, line in enumerate(lines):
                assert len(answered) == number
                yield line

        for found in ours.stream(typed(), greedy, paused=lambda: True):
            answered.append(found.text)
        assert_texts_agree(ours, greedy, lines, answered, ours.translate(lines, greedy))


def test_an_engine_can_be_left_in_the_middle(trained: Path) -> None:
    _, theirs = both(trained)
    engine = theirs.engines.scoring()
    ids = theirs.vocabularies.source.encode(random_lines(50, seed=13))
    stream = engine.stream([SearchBlock(ids, [[]] * 50)] * 3, theirs.request(beam=1))
    assert len(next(stream)) == 50
    stream.close()
    assert len(theirs.translate(["the cat"])) == 1


# --- the choice ------------------------------------------------------------------------------------------------


def heard(path: Path, **loading: Any) -> tuple[Translator, list[str]]:
    said: list[str] = []
    return Translator.load(path, LoadOptions(**{"threads": 1, "device": "cpu", "say": said.append} | loading)), said


def test_auto_is_ct2_wherever_it_can_serve(trained: Path) -> None:
    chosen, said = heard(trained)
    for request in [chosen.request(), chosen.request(sampling=True, length_penalty="paper"), chosen.request(n_best=4)]:
        assert isinstance(chosen.engines.searching(request), ct2_engine.Ct2Engine)
    assert isinstance(chosen.engines.searching(chosen.request(beam=1, length_penalty="paper")), ct2_engine.Ct2Engine)
    assert not isinstance(chosen.engines.scoring(), ct2_engine.Ct2Engine)
    assert not said


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"length_penalty": "paper", "alpha": 0.6}, 'not length_penalty = "paper"'),
        (
            {"max_extra": POSITIONS},
            f"max_extra = {POSITIONS} is too large: its outputs have at most {POSITIONS} tokens",
        ),
    ],
)
def test_what_it_cannot_express_goes_to_torch_and_is_said_once(
    trained: Path, changes: dict[str, Any], reason: str
) -> None:
    chosen, said = heard(trained)
    request = chosen.request(**changes)
    for _ in range(2):
        assert not isinstance(chosen.engines.searching(request), ct2_engine.Ct2Engine)
    assert len(said) == 1
    assert said[0].startswith("using the torch engine instead of ct2: ")
    assert reason in said[0]
    asked, _ = heard(trained, engine="ct2")
    with pytest.raises(SettingError, match=r"the ct2 engine cannot serve this: .*; use engine torch"):
        asked.ready(request)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"activation": "swiglu"}, "model.activation"),
        ({"norm_kind": "rms"}, "model.norm_kind"),
        ({"d_k": 16}, "model.d_k = 16"),
        ({"d_v": 4}, "model.d_v = 4"),
    ],
)
def test_a_model_it_has_no_form_for_is_refused_by_name(
    vocabularies: Vocabularies, tmp_path: Path, changes: dict[str, Any], setting: str
) -> None:
    config = dataclasses.replace(SMALL, **changes)
    assert setting in refusal(config)
    path = write_folder(tmp_path / "run", config, vocabularies)
    chosen, said = heard(path)
    assert len(chosen.translate(["the cat", "a mat"])) == 2
    assert len(said) == 1
    assert setting in said[0]
    with pytest.raises(SettingError, match=setting):
        transduce.load(path, engine="ct2")
    assert not RunFolder(path).ct2.exists()


def test_a_gpu_is_torch_s(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    chosen, said = heard(trained, device="auto")
    assert not isinstance(chosen.engines.searching(chosen.request()), ct2_engine.Ct2Engine)
    assert not said
    with pytest.raises(SettingError, match="the ct2 engine runs on CPUs"):
        LoadOptions(engine="ct2", device="cuda")
    with pytest.raises(SettingError, match="threads = -1: must not be negative"):
        LoadOptions(threads=-1)


def test_without_the_package_auto_is_torch_and_ct2_one_line(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    chosen, said = heard(trained)
    assert not isinstance(chosen.engines.searching(chosen.request()), ct2_engine.Ct2Engine)
    assert not said
    with pytest.raises(MissingExtra, match=r"this needs the package 'ctranslate2': pip install 'transduce\[ct2\]'"):
        transduce.load(trained, engine="ct2")


@pytest.mark.numerics
def test_quantizations(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = random_lines(20, seed=14)
    whole = transduce.load(trained, engine="ct2", quantization="float32", threads=THREADS).translate(lines)
    eight = transduce.load(trained, engine="ct2", threads=THREADS).translate(lines)
    assert sum(one == other for one, other in zip(whole, eight, strict=True)) > 15
    able = ctranslate2.get_supported_compute_types("cpu")
    if "bfloat16" in able:
        assert transduce.load(trained, engine="ct2", quantization="bfloat16").translate(lines[:2])
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device: able - {"bfloat16"})
    with pytest.raises(SettingError, match="quantization = bfloat16: not supported by CTranslate2 on this CPU"):
        transduce.load(trained, engine="ct2", quantization="bfloat16")


def test_requests_are_checked_as_torch_checks_them(trained: Path) -> None:
    _, theirs = both(trained)
    with pytest.raises(SettingError, match=r"temperature = 0\.0: must be above 0"):
        theirs.request(sampling=True, temperature=0.0)
    with pytest.raises(SettingError, match=f"exceed the length limit of {POSITIONS}"):
        list(theirs.stream(["the cat"], theirs.request(), ["the cat sat " * POSITIONS]))
    with pytest.raises(DataError, match="fewer prefixes than lines"):
        list(theirs.stream(["the cat", "a mat"], theirs.request(), ["x"]))


def test_a_prefix_that_is_too_long_is_refused_with_the_number_of_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.translator.inputs.LINES_AT_ONCE", 2)
    translator = Translator.load(folders.write_folder(tmp_path / "run"), LoadOptions(engine="ct2", threads=THREADS))
    lines, prefixes = ["the cat", "", "", "a mat"], ["", "", "", "the cat sat " * POSITIONS]
    with pytest.raises(SettingError, match=f"line 4: its prefix of .* exceed the length limit of {POSITIONS}"):
        list(translator.stream(lines, translator.request(), prefixes))


# --- the folder ------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("ct2", "checkpoints")))


def kept(path: Path) -> list[str]:
    return sorted(one.name for one in RunFolder(path).ct2.iterdir() if one.name != ".gitignore")


def test_it_is_made_once_and_again_when_the_weights_change(copy: Path) -> None:
    text = transduce.load(copy, engine="ct2").translate(["the cat sat"])
    (first,) = kept(copy)
    assert (RunFolder(copy).ct2 / ".gitignore").read_text() == "*\n"
    written = (RunFolder(copy).ct2 / first / "model.bin").stat().st_mtime_ns
    assert first.startswith("best-int8-")
    assert transduce.load(copy, engine="ct2").translate(["the cat sat"]) == text
    assert (RunFolder(copy).ct2 / first / "model.bin").stat().st_mtime_ns == written
    transduce.load(copy, engine="ct2", quantization="float32")
    assert [name.rpartition("-")[0] for name in kept(copy)] == ["best-float32", "best-int8"]
    weights = RunFolder(copy).weights("best")
    write_tensors(weights, {name: tensor * 0.5 for name, tensor in read_tensors(weights).items()})
    assert transduce.load(copy, engine="ct2").translate(["the cat sat"]) != text
    assert first not in kept(copy)
    assert len(kept(copy)) == 2


def altered(content: bytes) -> bytes:
    """One bit in the middle."""
    return content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 4]) + content[len(content) // 2 + 1 :]


@pytest.mark.parametrize("name", ["model.bin", "config.json", "shared_vocabulary.json", "hashes.json"])
@pytest.mark.parametrize(
    "damage",
    [altered, lambda content: content[:50], lambda content: bytes(len(content)), lambda content: b"[" * 100_000, None],
    ids=["altered", "torn", "zeros", "brackets", "missing"],
)
def test_a_damaged_one_is_built_again(copy: Path, name: str, damage: Callable[[bytes], bytes] | None) -> None:
    """Whatever is wrong with it, and it is said in one line."""
    text = transduce.load(copy, engine="ct2").translate(["the cat sat"])
    path = RunFolder(copy).ct2 / kept(copy)[0]
    content = (path / name).read_bytes()
    (path / name).unlink()
    if damage:
        (path / name).write_bytes(damage(content))
    chosen, said = heard(copy, engine="ct2")
    assert chosen.translate(["the cat sat"]) == text
    assert (path / name).read_bytes() == content
    (line,) = said
    assert re.match(rf"{path}: .*{'' if damage is None else re.escape(name)}.*; building it again from best", line)
    chosen, said = heard(copy, engine="ct2")
    chosen.ready()
    assert said == []  # it is whole again


def test_one_that_was_made_from_other_weights_is_built_again(copy: Path, tmp_path: Path) -> None:
    """Another model's, whole in itself, under this model's name."""
    text = transduce.load(copy, engine="ct2").translate(["the cat sat"])
    other = Path(shutil.copytree(copy, tmp_path / "other", ignore=shutil.ignore_patterns("ct2")))
    weights = RunFolder(other).weights("best")
    write_tensors(weights, {name: tensor * 0.5 for name, tensor in read_tensors(weights).items()})
    transduce.load(other, engine="ct2")
    path = RunFolder(copy).ct2 / kept(copy)[0]
    shutil.rmtree(path)
    shutil.copytree(RunFolder(other).ct2 / kept(other)[0], path)
    chosen, said = heard(copy, engine="ct2")
    assert chosen.translate(["the cat sat"]) == text
    assert "converted from other weights" in said[0]


def test_what_ctranslate2_cannot_load_is_one_line(copy: Path) -> None:
    """Damage after its hashes were compared, or a limit of this process: CTranslate2 does not say which."""
    chosen, _ = heard(copy, engine="ct2")
    path = chosen.engines.ct2.model.path
    (path / "model.bin").write_bytes(b"nonsense")
    with pytest.raises(
        RunError, match=r"CTranslate2 cannot load it .*, although its files are complete: check the free memory"
    ):
        chosen.translate(["the cat sat"])


def test_damaged_weights_are_not_built_from(copy: Path) -> None:
    transduce.load(copy, engine="ct2")
    path = RunFolder(copy).ct2 / kept(copy)[0] / "model.bin"
    path.write_bytes(altered(path.read_bytes()))
    weights = RunFolder(copy).weights("best")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedFile, match=r"best\.safetensors: modified or incomplete"):
        transduce.load(copy, engine="ct2")


def test_a_folder_that_cannot_be_written_to_is_read_all_the_same(copy: Path) -> None:
    RunFolder(copy).ct2.write_text("in the way")
    chosen, said = heard(copy, engine="ct2")
    assert chosen.translate(["the cat sat"])[0]
    assert len(said) == 1
    assert "cannot be written" in said[0]
    scratch = chosen.engines.ct2.model.path
    assert scratch.is_dir()
    del chosen
    assert not scratch.exists()


def test_weights_that_do_not_fit_are_refused_by_name(copy: Path) -> None:
    config = read_config(RunFolder(copy))
    write_config(RunFolder(copy), dataclasses.replace(config, model=dataclasses.replace(config.model, d_ff=256)))
    with pytest.raises(RunError, match=r"feed_forward.inner.bias has shape \[128\], but this model needs \[256\]"):
        transduce.load(copy, engine="ct2")
    assert kept(copy) == []


# --- the command line ------------------------------------------------------------------------------------------

AFTERWARDS = """
import sys
from transduce.cli import main
code = main(sys.argv[1:])
assert code == 0, code
print(*sorted({"torch", "transformers", "ctranslate2"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("options", [[], ["--json"], ["--n-best", "2"], ["--sample"]], ids=" ".join)
def test_translating_imports_no_torch(copy: Path, options: list[str]) -> None:
    """Neither the first time, when CTranslate2's form is made, nor later."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", AFTERWARDS, "translate", str(copy), "--device", "cpu", *options],
            input="the cat sat\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert done.stderr.split("\n")[-2] == "ctranslate2"


def test_ctranslate2_is_left_whole_for_others(copy: Path) -> None:
    program = f"""
import transduce
transduce.load({str(copy)!r}, engine="ct2", device="cpu").translate(["the cat"])
import ctranslate2
assert ctranslate2.specs.model_spec.torch_is_available
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.numerics
def test_evaluate_by_both_engines(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In float32 they differ in a line at most, where one of them finds another output as good."""
    lines = random_lines(30, seed=15)
    (tmp_path / "test.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines))
    command = ["evaluate", str(copy), str(tmp_path / "test.tsv"), "--engine", "both", "--threads", "1"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said.index("torch, float32:") < said.index("ct2, int8:") < said.index("difference: BLEU ")
    assert abs(float(said.split()[-1])) < 3
    assert main([*command, "--quantization", "float32", "--json"]) == 0
    assert abs(json.loads(capsys.readouterr().out)["difference"]) < 3
    assert main([*command, "--output", str(tmp_path / "out")]) == 2
    assert "--output needs one engine" in capsys.readouterr().err


@pytest.mark.numerics
def test_the_engine_can_be_named(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("the cat sat\n")
    command = ["translate", str(copy), "--input", str(tmp_path / "in"), "--device", "cpu"]
    outputs = {}
    for engine in ("auto", "torch", "ct2"):
        assert main([*command, "--engine", engine]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        outputs[engine] = said.out
    assert outputs["auto"] == outputs["ct2"]
    for engine in ("torch", "ct2"):
        assert outputs[engine].startswith("THE CAT")
    assert main([*command, "--length-penalty", "paper"]) == 0
    assert "transduce: using the torch engine instead of ct2: it supports the" in capsys.readouterr().err
    assert main([*command, "--length-penalty", "paper", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "--length-penalty", "paper", "--engine", "ct2"]) == 2
    assert "the ct2 engine cannot serve this: it supports the length penalty n^alpha only" in capsys.readouterr().err
