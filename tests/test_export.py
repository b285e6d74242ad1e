"""Exports: another runtime loads them with no code of ours and says what our model says, or nothing is left behind."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import assert_texts_agree
from folders import GERMAN, SHAPE, ends_its_sentences, lines, vocabularies, write_folder, write_model
from threads import THREADS

import transduce
from transduce.cli import main
from transduce.cli.parser import make_parser
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import DataError, MissingExtra, RunError, SettingError
from transduce.exchange import FORMATS, export_model, exporting, hf, import_model
from transduce.exchange.new_folder import new_folder
from transduce.exchange.pieces import piece_names, renumber
from transduce.exchange.verification import Answer, Ours, Verified, verify
from transduce.text import Vocabularies, Vocabulary, train_vocabulary
from transduce.translator import LoadOptions, Translator, open_folder

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
NEAR = 5e-4  # between logits of up to 200: other processors differ by 1e-4, wrong weights by 0.01 or more
needs_transformers = pytest.mark.skipif(not find_spec("transformers"), reason="pip install 'transduce[hf]'")
# A program that has never heard of us: Auto classes, a folder, lines; the texts, greedy and with a beam, as JSON.
LIMIT = 60
STRANGER = r"""
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
torch.set_num_threads(1)
folder, lines = sys.argv[1], json.load(sys.stdin)
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
batch = tokenizer(lines, return_tensors="pt", padding=True)
texts = []
for beams in (1, 4):
    extra = {"length_penalty": 1.0, "early_stopping": "never"} if beams > 1 else {}
    found = model.generate(**batch, num_beams=beams, max_new_tokens=60, max_length=None, **extra)
    texts.append([text.replace("\n", " ").strip() for text in tokenizer.batch_decode(found, skip_special_tokens=True)])
assert not [name for name in sys.modules if name.startswith("transduce")]
print(json.dumps({"texts": texts, "model": type(model).__name__, "settings": model.generation_config.to_dict()}))
"""


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(exporting, "SENTENCES", 8)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def export(run: Path, folder: Path, **settings: Any) -> Verified:
    """To Hugging Face, with few threads: models this small gain nothing from more."""
    return export_model(run, folder, "hf", threads=THREADS, **settings)


def stranger(folder: Path, asked: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(folder)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_as_we_say(run: Path, asked: list[str], found: list[list[str]]) -> None:
    """What the stranger found, greedily and with a beam; each line has the limit that the stranger has for all."""
    translator = Translator.load(run, LoadOptions(engine="torch", device="cpu", threads=THREADS))
    for beam, texts in zip((1, 4), found, strict=True):
        answers = Ours(translator).search(asked, LIMIT, beam, 1.0)
        assert max(len(answer.tokens) for answer in answers) < LIMIT - 1
        request = translator.request(beam=beam, alpha=1.0, length_penalty="power")
        assert_texts_agree(translator, request, asked, texts, [answer.text.strip() for answer in answers])


def assert_nearly_all_the_same(verified: Verified) -> None:
    """Of the eight sentences; one may differ where another output is as good."""
    assert verified.lines == 8
    assert 7 <= verified.greedy + verified.unended_greedy <= 8
    assert 7 <= verified.beam + verified.unended_beam <= 8


# --- Hugging Face ----------------------------------------------------------------------------------------------

VARIANTS: dict[str, tuple[TransformerConfig, bool]] = {
    "post-norm is Marian": (SHAPE, True),
    "pre-norm is Pegasus": (dataclasses.replace(SHAPE, norm="pre"), True),
    "post-norm, two vocabularies": (dataclasses.replace(SHAPE, tie="target"), False),
    "pre-norm, two vocabularies, swish": (
        dataclasses.replace(SHAPE, norm="pre", tie="target", activation="swish"),
        False,
    ),
    "post-norm, nothing tied, gelu": (dataclasses.replace(SHAPE, tie="none", activation="gelu"), True),
    "pre-norm, nothing tied, no bias": (dataclasses.replace(SHAPE, norm="pre", tie="none", output_bias=False), False),
    "learned positions": (dataclasses.replace(SHAPE, positions="learned", max_positions=256), True),
    "no positions": (dataclasses.replace(SHAPE, norm="pre", positions="none"), True),
    "Marian's positions": (dataclasses.replace(SHAPE, positions="marian"), True),
}


@pytest.mark.numerics
@needs_transformers
@pytest.mark.parametrize("variant", VARIANTS)
def test_transformers_says_the_same_and_the_way_back_gives_the_same_weights(variant: str, tmp_path: Path) -> None:
    model, joint = VARIANTS[variant]
    search = SearchConfig(length_penalty="power", alpha=0.0 if model.norm == "pre" else 0.7, allow_unknown=not joint)
    run = write_folder(tmp_path / "run", model, joint=joint, search=search)
    verified = export(run, tmp_path / "hf")
    print(variant, verified)
    assert verified.difference < NEAR
    assert_nearly_all_the_same(verified)
    if model.positions != "none" and model.tie != "none":  # nothing tells those to end
        assert verified.greedy > 3
        assert verified.beam > 3
    import_model(tmp_path / "hf", tmp_path / "back")
    assert open_folder(tmp_path / "back").config.search == open_folder(run).config.search
    before, after = open_folder(run).model(), open_folder(tmp_path / "back").model()
    assert after.config == dataclasses.replace(model, max_positions=after.config.max_positions)
    for (name, one), (_, other) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    asked = lines(3, seed=3)
    found = [
        transduce.load(folder, device="cpu", threads=1).translate(asked, beam=1) for folder in (run, tmp_path / "back")
    ]
    assert found[0] == found[1]


@needs_transformers
@pytest.mark.parametrize("norm", ["post", pytest.param("pre", marks=pytest.mark.slow)])
def test_a_program_without_us_loads_the_folder(norm: str, tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run", dataclasses.replace(SHAPE, norm=norm, dropout=0.2, attention_dropout=0.05))
    export(run, tmp_path / "hf")
    asked = [*lines(12, seed=4), "</s> <pad> <unk>", "Größe  1½ “quoted”, naïve—yes…", "日本語", "  blanks  around "]
    found = stranger(tmp_path / "hf", asked)
    assert found["model"] == {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}[norm]
    assert_as_we_say(run, asked, found["texts"])
    assert len(set(found["texts"][1])) > 8
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (settings["dropout"], settings["attention_dropout"]) == (0.2, 0.05)


@pytest.mark.slow
@needs_transformers
def test_a_trained_model_in_a_program_without_us(tmp_path: Path) -> None:
    """Characters to words, two vocabularies, pre-norm."""
    export(FROZEN, tmp_path / "hf")
    asked = [line["source"] for line in json.loads((FROZEN / "expected.json").read_text())]
    assert_as_we_say(FROZEN, asked, stranger(tmp_path / "hf", asked)["texts"])


@pytest.mark.slow
@needs_transformers
def test_a_real_model_on_real_sentences_in_a_program_without_us(shared_data: Path, tmp_path: Path) -> None:
    import_model(shared_data / "model-marian-multi30k-en-de", tmp_path / "run")
    sources = shared_data / "multi30k" / "test_2016_flickr.en"
    verified = export(tmp_path / "run", tmp_path / "hf", sample=str(sources))
    assert_nearly_all_the_same(verified)
    asked = sources.read_text(encoding="utf-8").split("\n")[:40]
    found = stranger(tmp_path / "hf", asked)
    assert_as_we_say(tmp_path / "run", asked, found["texts"])
    assert found["settings"]["suppress_tokens"] == [1]
    assert (found["settings"]["num_beams"], found["settings"]["length_penalty"]) == (6, 0.6)


@needs_transformers
def test_the_card_goes_along(tmp_path: Path) -> None:
    export(write_folder(tmp_path / "run"), tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text()
    assert card.startswith("---\nlanguage:\n- en\n- de\ntags:\n- translation\n")
    assert "pipeline_tag: translation" in card
    assert "# license: add one" in card
    assert "# a model: en -> de" in card
    assert (tmp_path / "hf" / "model.safetensors").stat().st_mode & 0o044


@needs_transformers
def test_a_language_code_is_taken_as_transformers_takes_it(tmp_path: Path) -> None:
    """Cut off the text there, a piece with its blank here."""
    one = train_vocabulary([*lines(200), *lines(200, words=GERMAN)], units="unigram", size=400)
    both = Vocabulary(renumber(one.model, [*piece_names(one.model), ">>de<<"]).model)
    model = ends_its_sentences(SHAPE, both.size, both.size)
    run = write_model(tmp_path / "run", model, Vocabularies(both, both))
    (tmp_path / "sample").write_text(">>de<< the cat sat\nthe cat\n>>de<< the dogs ran\n")
    assert both.encode([">>de<< the cat"])[0][1:] == one.encode(["the cat"])[0]
    assert export(run, tmp_path / "hf", sample=str(tmp_path / "sample")).lines == 3


REFUSED = {
    'model.activation = "swiglu"': dataclasses.replace(SHAPE, activation="swiglu"),
    'model.norm_kind = "rms"': dataclasses.replace(SHAPE, norm_kind="rms"),
    'model.positions = "rotary"': dataclasses.replace(SHAPE, positions="rotary"),
    "model.d_k = 8": dataclasses.replace(SHAPE, d_k=8),
    "model.d_v = 8": dataclasses.replace(SHAPE, d_v=8),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_transformers_has_no_form_for_is_refused_before_anything_is_written(what: str, tmp_path: Path) -> None:
    both = vocabularies(joint=True)
    model = transduce.model.Transformer(REFUSED[what], both.source.size, both.target.size)
    run = write_model(tmp_path / "run", model, both)
    with pytest.raises(SettingError, match=f"{what}: not supported by Hugging Face's Marian and Pegasus"):
        export(run, tmp_path / "hf")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_language_code_apart_from_its_blank_is_refused(tmp_path: Path) -> None:
    one = train_vocabulary(lines(200), units="bpe", size=400, symbols=[">>de<<"])
    run = write_model(tmp_path / "run", ends_its_sentences(SHAPE, one.size, one.size), Vocabularies(one, one))
    with pytest.raises(SettingError, match="the vocabulary's piece >>de<<: "):
        export(run, tmp_path / "hf")


# --- ONNX ------------------------------------------------------------------------------------------------------


def export_by_command(run: Path, folder: Path, *options: str) -> dict[str, Any]:
    """In a process of its own: the checks of shapes that tests turn on are in the way of tracing."""
    command = [sys.executable, "-m", "transduce", "export", str(run), str(folder), "--json", "--threads", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "same text with greedy search" in done.stderr
    return json.loads(done.stdout)


@pytest.mark.numerics
@pytest.mark.timeout(600)
def test_onnxruntime_says_the_same(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'transduce[onnx]'")
    verified = export_by_command(FROZEN, tmp_path / "onnx", "--to", "onnx")
    assert verified["difference"] < NEAR
    assert min(verified["greedy"], verified["beam"]) >= verified["lines"] - 1 > 8
    described = json.loads((tmp_path / "onnx" / "manifest.json").read_text())
    assert described["ids"] == {"end": 0, "unknown": 1, "start": 71, "source_pad": 31}
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == {
        "README.md", "encoder.onnx", "decoder.onnx", "manifest.json", "source.spm", "target.spm",
    }  # fmt: skip
    axes = {
        one.name: one.shape for one in onnxruntime.InferenceSession(tmp_path / "onnx" / "decoder.onnx").get_inputs()
    }
    assert axes["tokens"] == ["rows"]
    assert axes["keep"] == ["rows", "source"]
    assert [axes[f"{of}_keys_0"][::2] for of in ("source", "past")] == [["rows", "source"], ["rows", "past"]]
    check_card(tmp_path / "onnx")


UNLIKE_THE_PAPER = {
    "all that others cannot": dataclasses.replace(
        SHAPE, positions="rotary", norm_kind="rms", activation="swiglu", d_k=8, d_v=12, tie="none", output_bias=False
    ),
    "learned positions": dataclasses.replace(SHAPE, positions="learned", max_positions=256, norm="pre"),
}


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("variant", UNLIKE_THE_PAPER)
def test_onnx_takes_every_variant(variant: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="pip install 'transduce[onnx]'")
    both = vocabularies(joint=True)
    torch.manual_seed(1)
    model = transduce.model.Transformer(UNLIKE_THE_PAPER[variant], both.source.size, both.target.size)
    search = SearchConfig(length_penalty="power", allow_unknown=False)
    run = write_model(tmp_path / "run", model, both, search)
    verified = export_by_command(run, tmp_path / "onnx", "--to", "onnx")
    assert verified["difference"] < NEAR
    assert (tmp_path / "onnx" / "README.md").read_text().startswith("# a model: en -> de\n")


# --- CTranslate2 -----------------------------------------------------------------------------------------------

# A program that has never heard of us and knows CTranslate2.
CT2_STRANGER = r"""
import json, sys
import ctranslate2, sentencepiece
folder, lines = sys.argv[1], json.load(sys.stdin)
translator = ctranslate2.Translator(folder, compute_type=sys.argv[2])
source, target = (sentencepiece.SentencePieceProcessor(f"{folder}/{side}.spm") for side in ("source", "target"))
asked = [source.encode(line, out_type=str) + ["</s>"] for line in lines]
found = translator.translate_batch(asked, beam_size=1, max_decoding_length=100)
print(json.dumps([target.decode(result.hypotheses[0]) for result in found]))
"""


@pytest.mark.numerics
@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_says_the_same(variant: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="pip install 'transduce[ct2]'")
    model, joint = VARIANTS[variant]
    search = SearchConfig(length_penalty="power", alpha=0.7)
    run = write_folder(tmp_path / "run", model, joint=joint, search=search)
    verified = export_model(run, tmp_path / "ct2", "ct2", threads=THREADS)
    assert verified.difference < NEAR
    assert_nearly_all_the_same(verified)


@pytest.mark.numerics
@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_a_program_that_knows_ctranslate2_alone(compute_type: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="pip install 'transduce[ct2]'")
    verified = export_model(FROZEN, tmp_path / "ct2", "ct2", threads=1)
    assert min(verified.greedy, verified.beam) >= verified.lines - 1
    asked = ["hello", "transduce", "attention", "winter", "bridge", "lantern", "silver", "orange"]
    command = [sys.executable, "-c", CT2_STRANGER, str(tmp_path / "ct2"), compute_type]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    translator = Translator.load(FROZEN, LoadOptions(engine="torch", device="cpu", threads=THREADS))
    found, greedy = json.loads(done.stdout), translator.request(beam=1)
    expected = translator.translate(asked, greedy)
    if compute_type == "float32":
        assert_texts_agree(translator, greedy, asked, found, expected)
    else:
        assert sum(one == other for one, other in zip(found, expected, strict=True)) >= 6


def test_what_ctranslate2_has_no_form_for_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run", dataclasses.replace(SHAPE, activation="swiglu"))
    with pytest.raises(
        SettingError, match=r'CTranslate2: it does not support model\.activation = "swiglu"; try --to onnx'
    ):
        export_model(run, tmp_path / "new", "ct2")
    assert not (tmp_path / "new").exists()


# --- which other format supports the model ------------------------------------------------------------------------

ONLY_SOME = {
    "rotary": (dataclasses.replace(SHAPE, positions="rotary"), "hf", "try --to ct2 or --to onnx"),
    "narrow heads": (dataclasses.replace(SHAPE, d_k=8), "hf", "try --to onnx"),
    "additive, hf": (dataclasses.replace(SHAPE, attention="additive"), "hf", ""),
    "additive, ct2": (dataclasses.replace(SHAPE, attention="additive"), "ct2", ""),
    "BatchNorm, ct2": (dataclasses.replace(SHAPE, norm_kind="batch"), "ct2", ""),
    "BatchNorm, onnx": (dataclasses.replace(SHAPE, norm_kind="batch"), "onnx", ""),
}


@pytest.mark.parametrize("which", ONLY_SOME)
def test_a_refusal_names_the_formats_that_support_the_model(which: str, tmp_path: Path) -> None:
    config, to, advice = ONLY_SOME[which]
    both = vocabularies(joint=True)
    run = write_model(tmp_path / "run", transduce.model.Transformer(config, both.source.size, both.target.size), both)
    expected = advice or "no other format of transduce export supports this model"
    with pytest.raises(SettingError, match=rf"^[^;]*model\.[^;]*; {expected}$"):
        export_model(run, tmp_path / "new", to)


# --- nothing is left behind ------------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, file: str, change: Any) -> None:
    """Have the export write something else into a file."""
    write = hf.write

    def spoilt(opened: Any, model: Any, folder: Path) -> None:
        write(opened, model, folder)
        change(folder / file)

    form = dataclasses.replace(FORMATS["hf"], write=spoilt)
    monkeypatch.setitem(exporting.FORMATS, "hf", form)


def other_vocabulary(path: Path) -> None:
    ids = json.loads(path.read_text())
    path.write_text(json.dumps({name: number if number < 300 else 1 for name, number in ids.items()}))


def other_heads(path: Path) -> None:
    path.write_text(path.read_text().replace('_attention_heads": 4', '_attention_heads": 8'))


@needs_transformers
@pytest.mark.parametrize(
    ("file", "change", "said"),
    [("config.json", other_heads, "logits differ by"), ("vocab.json", other_vocabulary, "the tokens of '")],
)
def test_an_export_that_says_something_else_is_deleted(
    file: str,
    change: Any,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = write_folder(tmp_path / "run")
    spoil(monkeypatch, file, change)
    assert main(["export", str(run), str(tmp_path / "hf"), "--to", "hf", "--threads", "1"]) == 2
    error = capsys.readouterr().err
    assert "the export differs from the model and was deleted: " in error
    assert said in error
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Liar(Ours):
    """A runtime that computes what we do and says something else about the first line."""

    says: Answer

    def search(self, lines: Any, limit: int, beam: int, alpha: float) -> list[Answer]:
        return [self.says, *super().search(lines, limit, beam, alpha)[1:]]


def test_texts_are_compared_too_and_a_tie_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(write_folder(tmp_path / "run"), LoadOptions(engine="torch", device="cpu", threads=1))
    asked, honest, liar = lines(4, seed=2), Ours(translator), Liar(translator)
    true = honest.search(asked, 80, 1, 1.0)[0]
    liar.says = dataclasses.replace(true, text="something else")
    with pytest.raises(RunError, match=r"greedy: '.*' becomes 'something else' in the export and"):
        verify(honest, liar, asked, 1.0, 50)
    liar.says = Answer("another", [*true.tokens[:-1], true.tokens[-1] - 1])
    with pytest.raises(RunError, match=r"greedy: '.*' becomes 'another' in the export and"):
        verify(honest, liar, asked, 1.0, 50)
    monkeypatch.setattr(honest, "score", lambda *_: -1.5)  # both as good
    assert verify(honest, liar, asked, 1.0, 50) == Verified(4, 0.0, greedy=3, beam=3, unended_greedy=0, unended_beam=0)


def test_the_summary_counts_each_search_by_itself() -> None:
    whole = Verified(32, 1.2e-6, greedy=32, beam=32, unended_greedy=0, unended_beam=0)
    assert whole.summary() == (
        "32 sentences: largest difference of logits 1.2e-06; same text with greedy search: 32 of 32 compared; "
        "same text with beam 4: 32 of 32 compared"
    )
    some = Verified(32, 1.2e-6, greedy=31, beam=29, unended_greedy=1, unended_beam=2).summary()
    assert "greedy search: 31 of 31 compared (1 not compared: reached the length limit); " in some
    assert "beam 4: 29 of 30 compared (1 differs but scores the same; 2 not compared: reached the length limit)" in some


def test_a_graph_that_pytorch_cannot_write_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="pip install 'transduce[onnx]'")

    def fail(*_: Any, **__: Any) -> None:
        raise torch.onnx.OnnxExporterError("no such\nthing")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(RunError, match=r"encoder.onnx: PyTorch .* cannot write this model as a graph: no such thing"):
        export_model(FROZEN, tmp_path / "new", "onnx", threads=1)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_an_unknown_format_and_a_missing_run_are_refused(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run")
    with pytest.raises(RunError, match="run: already exists; export to a new folder"):
        export_model(run, run, "hf")
    with pytest.raises(SettingError, match="unknown format 'tf': choose from hf, ct2, onnx"):
        export_model(run, tmp_path / "new", "tf")
    with pytest.raises(RunError, match="no such folder"):
        export_model(tmp_path / "none", tmp_path / "new", "hf")


@needs_transformers
def test_an_export_that_cannot_be_written_names_the_place_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file/there: cannot be created \(Not a directory\)"):
        export(FROZEN, tmp_path / "file" / "there")


def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path) -> None:
    advice = "new: cannot be written .No space left on device.: free some space, or export to a folder on another disk"
    with pytest.raises(RunError, match=advice), new_folder(tmp_path / "new"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


@needs_transformers
def test_an_export_that_is_stopped_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM while it is being verified."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exporting, "verify", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or signal.pause())
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["export", str(FROZEN), "there", "--to", "hf", "--threads", "1"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("to", "package", "extra"),
    [
        ("hf", "transformers", "hf"),
        ("ct2", "ctranslate2", "ct2"),
        ("onnx", "onnxruntime", "onnx"),
        ("onnx", "onnxscript", "onnx"),
    ],
)
def test_a_missing_package_is_named(
    to: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs the package '{package}': pip install 'transduce\[{extra}\]'"):
        export_model(FROZEN, tmp_path / "new", to)
    assert list(tmp_path.iterdir()) == []


def test_the_parser_knows_the_formats() -> None:
    assert make_parser().parse_args(["export", "a", "b", "--to", "hf"]).to == "hf"
    action = next(a for a in make_parser()._actions if a.dest == "command")
    options = action.choices["export"]._actions  # type: ignore[index, call-overload]
    assert next(a for a in options if a.dest == "to").choices == list(FORMATS)


# --- what is compared on ---------------------------------------------------------------------------------------


def test_the_sample_is_given_or_the_validation_data_or_ours(tmp_path: Path) -> None:
    for name, count in [("sample", 9), ("valid.en", 40), ("valid.de", 40)]:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines(count, seed=count)))
    valid = (f"{tmp_path / 'valid.en'}\t{tmp_path / 'valid.de'}",)
    opened = open_folder(write_folder(tmp_path / "run", valid=valid))
    assert exporting.choose_lines(opened, str(tmp_path / "sample")) == lines(9, seed=9)[:8]
    assert exporting.choose_lines(opened, "") == lines(40, seed=40)[::5][:8]
    (tmp_path / "valid.de").unlink()
    assert exporting.choose_lines(opened, "") == exporting.DEFAULT_SENTENCES[:8]


@pytest.mark.parametrize(("content", "said"), [("\n  \n", "no line of 1 to 100 tokens"), (None, "cannot be read")])
def test_a_sample_of_nothing_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "sample").write_text(content)
    with pytest.raises(DataError, match=said):
        export_model(FROZEN, tmp_path / "new", "hf", sample=str(tmp_path / "sample"))


@needs_transformers
def test_the_weights_that_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_folder(tmp_path / "run", search=SearchConfig(length_penalty="paper"))
    assert main(["export", str(run), str(tmp_path / "hf"), "--to", "hf", "--weights", "last"]) == 2
    assert "the folder has no last.safetensors" in capsys.readouterr().err
    assert main(["export", str(run), str(tmp_path / "hf"), "--to", "hf", "--weights", "best"]) == 0
    assert "hf runtimes divide scores by n^alpha instead of" in capsys.readouterr().err


# --- cards -----------------------------------------------------------------------------------------------------


def example(folder: Path, line: str) -> str:
    """What the program in an export's card says to a line, run there by a Python that knows nothing of us."""
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    code = code.replace('"..."', json.dumps(line)).replace("tokenizer.batch_decode", "print(*tokenizer.batch_decode")
    code = code.replace("skip_special_tokens=True)", "skip_special_tokens=True))")
    code = code.replace('compute_type="int8"', 'compute_type="float32"')
    code = code.replace("model.generate(**batch)", "model.generate(**batch, num_beams=1)").replace(
        "beam_size=4", "beam_size=1"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def check_card(folder: Path) -> None:
    """The program in it says what we say, and there are no paths of the machine it was trained on."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.count("## Use") == 1
    assert "transduce translate" not in card
    assert "| data.train |" not in card
    translator = Translator.load(FROZEN, LoadOptions(engine="torch", device="cpu", threads=1))
    line, greedy = lines(1)[0], translator.request(beam=1)
    assert_texts_agree(translator, greedy, [line], [example(folder, line)], translator.translate([line], greedy))


@pytest.mark.parametrize(("to", "package"), [("hf", "transformers"), ("ct2", "ctranslate2")])
def test_the_program_in_a_card_works(to: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    export_model(FROZEN, tmp_path / to, to, threads=1)
    check_card(tmp_path / to)
