"""Exports of language models: other runtimes load them with no code of ours and predict what our model predicts."""

import dataclasses
import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import WORDS, lines, write_model
from threads import THREADS

import transduce
from transduce.cli import main
from transduce.config import DecoderConfig
from transduce.errors import DataError, RunError, SettingError
from transduce.exchange import export_model
from transduce.exchange.language_models import VerifiedText, hf
from transduce.exchange.language_models.exporting import choose_texts
from transduce.exchange.language_models.tokenizer import make_tokenizer
from transduce.exchange.language_models.verification import OurText, verify_texts
from transduce.model import Decoder
from transduce.text import Vocabularies, Vocabulary, train_vocabulary
from transduce.translator import open_folder
from transduce.translator.language_model import LanguageModel

NEAR = 5e-4  # between logits: other processors differ by 1e-4, wrong weights by 0.01 or more
CONTEXT = 24
SHAPE = DecoderConfig(
    family="decoder", d_model=32, d_ff=64, num_heads=4, num_decoder_layers=2, context=CONTEXT, norm="pre", positions="rotary"
)  # fmt: skip
TEXT = [line for number in range(40) for line in (*lines(4, seed=number), "")]
needs = {
    "hf": pytest.mark.skipif(not find_spec("transformers"), reason="pip install 'transduce[hf]'"),
    "ct2": pytest.mark.skipif(not find_spec("ctranslate2"), reason="pip install 'transduce[ct2]'"),
}
BOTH = [pytest.param(to, marks=mark) for to, mark in needs.items()]


@cache
def vocabulary(units: Any) -> Vocabulary:
    return train_vocabulary(TEXT, units=units, size=400, normalization="identity")


def random_decoder(config: DecoderConfig, size: int) -> Decoder:
    """Every parameter is random, so that none can be left out without being noticed; the start symbol stays zero."""
    torch.manual_seed(3)
    model = Decoder(config, size, size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
            elif name == "output_embedding.weight":
                parameter[:-1] = torch.randn_like(parameter[:-1]) / 4
    return model


def write_run(path: Path, config: DecoderConfig = SHAPE, units: str = "char", **data: object) -> Path:
    one = vocabulary(units)
    settings = {
        "task": "text",
        "languages": (),
        "source_units": units,
        "target_units": units,
        "normalization": "identity",
    }
    return write_model(path, random_decoder(config, one.size), Vocabularies(one, one), **(settings | data))  # type: ignore[arg-type]


def write_sample(folder: Path) -> str:
    path = folder / "sample.txt"
    path.write_text("\n".join(TEXT))
    return str(path)


def export(run: Path, folder: Path, to: str, **settings: Any) -> VerifiedText:
    verified = export_model(run, folder, to, sample=write_sample(run.parent), threads=THREADS, **settings)
    assert isinstance(verified, VerifiedText)
    return verified


# --- every variant -------------------------------------------------------------------------------------------------

VARIANTS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "the fitted settings": ({}, "char", {}),
    "rotary, gelu, an output bias": ({"activation": "gelu", "output_bias": True}, "bpe", {}),
    "the paper's layers": ({"norm": "post", "positions": "sinusoidal", "output_bias": True}, "unigram", {}),
    "pre-norm, learned positions": ({"positions": "learned", "activation": "swish", "max_positions": 30}, "bpe", {}),
    "no positions, documents are lines": ({"positions": "none"}, "bpe", {"documents": "line"}),
    "Marian's positions, documents are paragraphs": ({"positions": "marian"}, "char", {"documents": "blank-line"}),
}
ONLY_CT2: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "Llama's layers": ({"norm_kind": "rms", "activation": "swiglu"}, "bpe", {}),
    "post-norm with rotary positions": ({"norm": "post", "activation": "swiglu", "output_bias": True}, "char", {}),
}


@pytest.mark.numerics
@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_export_predicts_the_same(variant: str, to: str, tmp_path: Path) -> None:
    settings, units, data = VARIANTS[variant]
    run = write_run(tmp_path / "run", dataclasses.replace(SHAPE, **settings), units, **data)
    verified = export(run, tmp_path / "exported", to)
    print(variant, verified.summary())
    assert verified.difference < NEAR
    assert verified.texts == 16
    assert verified.same >= 14
    assert verified.same + verified.tied == 16


@pytest.mark.numerics
@needs["ct2"]
@pytest.mark.parametrize("variant", ONLY_CT2)
def test_ctranslate2_has_more_layers(variant: str, tmp_path: Path) -> None:
    settings, units, data = ONLY_CT2[variant]
    run = write_run(tmp_path / "run", dataclasses.replace(SHAPE, **settings), units, **data)
    assert export(run, tmp_path / "exported", "ct2").difference < NEAR


@pytest.mark.parametrize(
    ("settings", "units", "to", "message"),
    [
        ({"norm": "post"}, "char", "hf", 'model.norm = "post".*GPTNeoXForCausalLM; train with model.norm=pre'),
        ({"window": 3}, "char", "hf", "model.window = 3.*train with model.window=0"),
        ({"norm_kind": "rms"}, "char", "hf", 'model.norm_kind = "rms".*model.norm_kind=layer'),
        ({"activation": "swiglu"}, "char", "hf", 'model.activation = "swiglu".*model.activation=relu'),
        ({"d_k": 16}, "char", "hf", "model.d_k = 16.*train with model.d_k=0"),
        ({}, "word", "hf", "data.target_units = word.*data.target_units=char"),
        ({}, "char", "onnx", "onnx: language models cannot be exported to this format; choose from hf, ct2"),
        ({"attention": "dot"}, "char", "ct2", 'model.attention = "dot": not supported by CTranslate2'),
        ({"d_v": 16}, "char", "ct2", "model.d_k = 8 and model.d_v = 16: not supported by CTranslate2"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    settings: dict[str, Any], units: str, to: str, message: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", dataclasses.replace(SHAPE, **settings), units)
    with pytest.raises(SettingError, match=message):
        export(run, tmp_path / "exported", to)
    assert not (tmp_path / "exported").exists()


# --- the tokenizer -------------------------------------------------------------------------------------------------


@needs["hf"]
@pytest.mark.parametrize("units", ["char", "bpe", "unigram"])
@pytest.mark.parametrize(
    "line",
    ["", " ", "  two blanks  ", "ein kleines", "日本 naïve", "▁", "tab\there", "a" * 70],
)
def test_the_tokenizer_splits_lines_as_sentencepiece_does(units: Any, line: str) -> None:
    ours, theirs = vocabulary(units), make_tokenizer(vocabulary(units))
    ids = theirs.encode(line).ids
    assert ids == ours.encode([line])[0][:-1]
    if "▁" not in line and 1 not in ids:
        assert theirs.decode(ids) == line


@needs["hf"]
@pytest.mark.parametrize("units", ["char", "bpe"])
def test_names_of_pieces_in_a_text_are_text(units: Any) -> None:
    line = "<s> </s> <unk> <0x41>"
    assert make_tokenizer(vocabulary(units)).encode(line).ids == vocabulary(units).encode([line])[0][:-1]


# --- a program that does not know us -----------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2, "model.num_decoder_layers": 1, "model.context": 32,
    "train.device": "cpu", "train.threads": 1, "train.tokens_per_batch": 256, "train.learning_rate": 0.01,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as `train --text` fits it, but for its size."""
    folder = tmp_path_factory.mktemp("language-model")
    transduce.train(folder / "run", text=write_sample(folder), steps=40, settings=SETTINGS, quiet=True)
    return folder / "run"


def run_card(folder: Path, *changes: tuple[str, str]) -> str:
    """What the program in the card prints, with these changes, in a process that does not import us."""
    code = re.search("```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert code
    program = code[1]
    for before, after in changes:
        assert before in program
        program = program.replace(before, after)
    program += "\nimport sys\nassert not [name for name in sys.modules if name.startswith('transduce')]"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "max_length" not in done.stderr, "a warning that the card's own program must not cause"
    return done.stdout


@pytest.mark.slow
@needs["hf"]
@pytest.mark.numerics
def test_transformers_alone_continues_texts(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(trained), str(tmp_path / "hf"), "--to", "hf", "--threads", "1", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["same"] >= 14
    assert "nats per token" in said.err
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["GPTNeoXForCausalLM"]
    prompts = [WORDS[0], f"{WORDS[1]}\n\n{WORDS[2]}"]
    printing = ("tokenizer.batch_decode(model", "print(__import__('json').dumps(tokenizer.batch_decode(model")
    closing = ("skip_special_tokens=True)", "skip_special_tokens=True)))")
    texts = run_card(tmp_path / "hf", ('["..."]', json.dumps(prompts)), ("=100", "=10"), printing, closing)
    ours = transduce.load_language_model(trained, device="cpu", threads=1)
    assert json.loads(texts) == [prompt + ours.generate(prompt, max_tokens=10)[0] for prompt in prompts]


@needs["ct2"]
def test_ctranslate2_alone_continues_texts(trained: Path, tmp_path: Path) -> None:
    export_model(trained, tmp_path / "ct2", "ct2", threads=THREADS)
    prompt = f"{WORDS[0]}\n{WORDS[1]}"
    assert run_card(tmp_path / "ct2", ('"..."', json.dumps(prompt))).startswith(prompt)


# --- verification ------------------------------------------------------------------------------------------------------


@needs["hf"]
def test_an_export_that_predicts_something_else_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run")
    unlike = dataclasses.replace(hf.GPT_NEOX, settings=lambda config: hf.neox_settings(config) | {"rotary_pct": 0.5})
    monkeypatch.setattr(hf, "GPT_NEOX", unlike)
    with pytest.raises(RunError, match="differs from the model and was deleted: logits differ by"):
        export(run, tmp_path / "exported", "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "sample.txt"]


class Stubborn(OurText):
    """A runtime that continues one text otherwise."""

    def __init__(self, model: LanguageModel, token: int) -> None:
        super().__init__(model)
        self.token = token

    def continued(self, beginnings: Any, limit: int) -> list[list[int]]:
        found = super().continued(beginnings, limit)
        found[0][0] = self.token
        return found


def test_a_tie_is_counted_and_anything_else_is_an_error(trained: Path) -> None:
    model = transduce.load_language_model(trained, device="cpu", threads=1)
    ours, texts = OurText(model), choose_texts(open_folder(trained), "", ())
    beginning = ours.ids(texts[0])[: model.context // 2]
    [best] = ours.continued([beginning], 1)
    other = 2 if best[0] != 2 else 3
    with pytest.raises(RunError, match=f"token 1 of a greedy continuation is {other} in the export and {best[0]}"):
        verify_texts(ours, Stubborn(model, other), texts)
    with torch.no_grad():  # the two become equally probable
        model.model.output_embedding.weight[other] = model.model.output_embedding.weight[best[0]]
    [first] = OurText(model).continued([beginning], 1)
    verified = verify_texts(OurText(model), Stubborn(model, other if first[0] == best[0] else best[0]), texts)
    assert (verified.same, verified.tied) == (len(texts) - 1, 1)
    assert "(1 differ where two tokens are equally probable)" in verified.summary()


def test_the_texts_are_given_or_held_out_or_the_default(trained: Path, tmp_path: Path) -> None:
    opened = open_folder(trained)
    assert choose_texts(opened, "", ["default"])[0].split("\n")[0] in TEXT[-25:]
    (tmp_path / "given.txt").write_text("given\n")
    assert choose_texts(opened, str(tmp_path / "given.txt"), ["default"]) == ["given"]
    assert choose_texts(open_folder(write_run(tmp_path / "run")), "", ["default"]) == ["default"]
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"empty\.txt: has no text to compare"):
        choose_texts(opened, str(tmp_path / "empty.txt"), ["default"])
