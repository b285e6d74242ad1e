"""Imports: models of Marian and of Hugging Face become model folders that give the answers they gave there."""

import dataclasses
import io
import json
import os
import shlex
import subprocess
import sys
import warnings
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from agreement import assert_texts_agree
from folders import GERMAN, SHAPE, ends_its_sentences, lines, vocabularies
from safetensors.torch import load_file, save_file

from transduce.checkpoint import RunFolder, read_about
from transduce.cli import main
from transduce.errors import DataError, RunError, TransduceError
from transduce.exchange import import_model
from transduce.exchange.from_marian import parse_options
from transduce.exchange.naming import alternating, layer_parameters, marian_names, sines_first, to_theirs
from transduce.exchange.pieces import piece_names, renumber
from transduce.model import Transformer
from transduce.text import Vocabulary, train_vocabulary
from transduce.translator import LoadOptions, Translator, open_folder

needs_transformers = pytest.mark.skipif(not find_spec("transformers"), reason="pip install 'transduce[hf]'")
REAL = "model-marian-multi30k-en-de"


# --- Marian's own ----------------------------------------------------------------------------------------------


def identical_to_marian(shared_data: Path, run: Path, count: int) -> int:
    import_model(shared_data / REAL, run)
    sources = (shared_data / "multi30k" / "test_2016_flickr.en").read_text(encoding="utf-8").split("\n")[:count]
    expected = (shared_data / REAL / "test_2016_flickr.beam6-norm0.6.de").read_text(encoding="utf-8").split("\n")
    found = Translator.load(run, LoadOptions(engine="torch", device="cpu", threads=1)).translate(sources)
    return sum(one == other for one, other in zip(found, expected, strict=False))


def test_a_marian_model_says_what_marian_said(shared_data: Path, tmp_path: Path) -> None:
    """Beam 6 with n^0.6, as its decoder.yml has it: Marian's frequencies, its bias, no `<unk>`.

    Marian ran on another processor, whose rounding may have decided a line otherwise.
    """
    assert identical_to_marian(shared_data, tmp_path / "run", 150) >= 149


@pytest.mark.slow
def test_a_marian_model_says_what_marian_said_of_a_thousand_lines(shared_data: Path, tmp_path: Path) -> None:
    """Two lines ramble to the limit, which Marian has at three times the source."""
    assert identical_to_marian(shared_data, tmp_path / "run", 1_000) >= 998


OPTIONS = {
    "type": "transformer", "dim-emb": "64", "transformer-dim-ffn": "96", "transformer-heads": "4", "enc-depth": "2",
    "dec-depth": "2", "transformer-ffn-activation": "swish", "transformer-postprocess": "dan", "version": "v1.12 abc",
    "tied-embeddings-all": "true", "output-omit-bias": "false", "transformer-preprocess": '""',
    "transformer-tied-layers": "\n  []",
}  # fmt: skip
MARIAN = dataclasses.replace(SHAPE, activation="swish", positions="marian")


def marian_arrays(model: Transformer, options: dict[str, str]) -> dict[str, Any]:
    """A model of ours as the arrays of a model.npz, by its naming: matrices transposed, vectors as one row."""
    ours = dict(model.named_parameters())
    arrays: dict[str, Any] = {}
    for entry in layer_parameters(model.config, marian_names):
        for name, tensor in to_theirs(ours, entry).items():  # type: ignore[arg-type]
            arrays[name] = (tensor.T if tensor.dim() == 2 else tensor[None]).detach().numpy()
    arrays["decoder_ff_logit_out_b"] = model.output_bias[None].detach().numpy()  # type: ignore[index]
    tables = {"encoder_Wemb": model.source_embedding, "decoder_Wemb": model.target_embedding}
    for name, table in {"Wemb": model.target_embedding, **tables}.items():
        arrays[name] = sines_first(table.weight[:-1], 1).detach().numpy()
    arrays["decoder_ff_logit_out_W"] = sines_first(model.output_embedding.weight[:-1], 1).T.detach().numpy()
    text = "".join(f"{key}: {value}\n" for key, value in options.items())
    return arrays | {"special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)}


def write_marian(folder: Path, *, tie: str = "all", joint: bool = True, spoil: Any = None, **options: str) -> Path:
    """A folder as Marian leaves it; `spoil` changes its arrays first."""
    folder.mkdir()
    both = vocabularies(joint)
    torch.manual_seed(1)
    model = ends_its_sentences(dataclasses.replace(MARIAN, tie=tie), both.source.size, both.target.size)
    arrays = marian_arrays(model, OPTIONS | {key.replace("_", "-"): value for key, value in options.items()})
    if spoil:
        spoil(arrays)
    np.savez(folder / "model.npz", **arrays)
    (folder / "vocab.src.spm").write_bytes(both.source.model)
    (folder / "vocab.trg.spm").write_bytes(both.target.model)
    names = ["vocab.src.spm"] * 2 if joint else ["vocab.src.spm", "vocab.trg.spm"]
    decoder = "beam-size: 3\nnormalize: 0.7\nvocabs:\n" + "".join(f"  - {name}\n" for name in names)
    (folder / "model.npz.decoder.yml").write_text(decoder)
    (folder / "model.npz.yml").write_text("transformer-dropout: 0.25\n")
    return folder


@pytest.mark.parametrize(
    ("tie", "joint", "options"),
    [
        ("all", True, {}),
        ("target", False, {"tied_embeddings_all": "false", "tied_embeddings": "true"}),
        ("none", False, {"tied_embeddings_all": "false"}),
        ("none", True, {"tied_embeddings_all": "false", "tied_embeddings_src": "true"}),
    ],
)
def test_every_way_of_tying(tie: str, joint: bool, options: dict[str, str], tmp_path: Path) -> None:
    source = write_marian(tmp_path / "marian", tie=tie, joint=joint, **options)
    taken = import_model(source / "model.npz", tmp_path / "run")
    assert taken.origin == "Marian v1.12 model model.npz"
    opened = open_folder(tmp_path / "run")
    model, config = opened.model(), opened.config
    assert (config.model.tie, config.data.joint, config.model.positions) == (tie, joint, "marian")
    assert (config.search.beam, config.search.alpha, config.search.allow_unknown) == (3, 0.7, False)
    assert config.model.dropout == 0.25
    arrays = np.load(source / "model.npz")
    both = opened.vocabularies
    again = marian_arrays(model, OPTIONS)
    shared = "tied_embeddings_src" in options or not options
    tables = {
        "encoder_Wemb": "Wemb" if shared else "encoder_Wemb",
        "decoder_Wemb": "Wemb" if shared else "decoder_Wemb",
    }
    for name in set(arrays.files) - {"special:model.yml", "Wemb"}:
        assert np.array_equal(arrays[tables.get(name, name)], again[name]), name
    assert (both.source is both.target) == joint


def test_options_are_read_as_marian_writes_them() -> None:
    text = 'a: 1\nb:\n  - x\n  - "y z"\nc:\n  []\nd: []\ne: ""\nf: "[eos]"\ng: 1e-09\n'
    assert parse_options(text) == {"a": "1", "b": ["x", "y z"], "c": [], "d": [], "e": "", "f": "[eos]", "g": "1e-09"}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("type", "s2s", "type is s2s, which Transduce does not support (only transformer)"),
        ("transformer_preprocess", "n", "transformer-preprocess is n, which Transduce does not support (only none)"),
        ("transformer_postprocess", "da", "transformer-postprocess is da"),
        ("transformer_ffn_activation", "gelu", "transformer-ffn-activation is gelu"),
        ("transformer_decoder_autoreg", "rnn", "transformer-decoder-autoreg is rnn"),
        ("transformer_train_position_embeddings", "true", "transformer-train-position-embeddings is true"),
        ("transformer_tied_layers", "\n  - 1\n  - 1", "transformer-tied-layers is ['1', '1']"),
        ("transformer_decoder_dim_ffn", "32", "transformer-decoder-dim-ffn is 32"),
        ("transformer_heads", "many", "its options cannot be read"),
        ("enc_depth", "3", "has no encoder_l3_"),
    ],
)
def test_what_our_model_cannot_be_is_refused_by_name(option: str, value: str, said: str, tmp_path: Path) -> None:
    source = write_marian(tmp_path / "marian", **{option: value})
    with pytest.raises(TransduceError) as error:
        import_model(source, tmp_path / "run")
    assert said in str(error.value)
    assert not (tmp_path / "run").exists()


def without_options(arrays: dict[str, Any]) -> None:
    del arrays["special:model.yml"]


def pickled(arrays: dict[str, Any]) -> None:
    arrays["decoder_l1_self_Wq"] = np.array([{"a": 1}], dtype=object)


def quantised(arrays: dict[str, Any]) -> None:
    arrays["decoder_l1_self_Wq"] = arrays["decoder_l1_self_Wq"].astype(np.int8)


def not_a_number(arrays: dict[str, Any]) -> None:
    arrays["encoder_l1_ffn_b1"] = arrays["encoder_l1_ffn_b1"] * np.float32("nan")


def fewer_pieces(arrays: dict[str, Any]) -> None:
    arrays["Wemb"] = arrays["Wemb"][:-5]


def wrong_shape(arrays: dict[str, Any]) -> None:
    arrays["encoder_l1_ffn_W1"] = arrays["encoder_l1_ffn_W1"][:, :-1]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_options, "has no special:model.yml"),
        (pickled, "decoder_l1_self_Wq.npy contains Python objects, which would have to be unpickled"),
        (quantised, "decoder_l1_self_Wq is int8 of 2 axes, not a float32 matrix"),
        (not_a_number, "encoder.0.feed_forward.inner.bias contains values that are NaN or infinite"),
        (fewer_pieces, "but the vocabulary beside it"),
        (wrong_shape, "encoder.0.feed_forward.inner.weight has shape [95, 64], but this model needs [96, 64]"),
    ],
)
def test_damaged_arrays_are_named(spoil: Any, said: str, tmp_path: Path) -> None:
    source = write_marian(tmp_path / "marian", spoil=spoil)
    with pytest.raises((DataError, RunError)) as error:
        import_model(source, tmp_path / "run")
    assert said in str(error.value)
    assert not (tmp_path / "run").exists()


def torn(folder: Path) -> None:
    content = (folder / "model.npz").read_bytes()
    (folder / "model.npz").write_bytes(content[: len(content) // 2])


def a_pickle(folder: Path) -> None:
    (folder / "model.npz").write_bytes(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.")


def a_single_array(folder: Path) -> None:
    with (folder / "model.npz").open("wb") as file:
        np.save(file, np.zeros(3))


def packed(folder: Path, method: int) -> None:
    """The same archive, packed by a method that numpy does not use."""
    with zipfile.ZipFile(folder / "model.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(folder / "model.npz", "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def packed_by_lzma(folder: Path) -> None:
    packed(folder, zipfile.ZIP_LZMA)


def patched_entries(folder: Path, place: int, value: bytes) -> None:
    """Every entry of the archive's directory with other bytes at a place."""
    content = bytearray((folder / "model.npz").read_bytes())
    start = content.find(b"PK\1\2")
    while start >= 0:
        content[start + place : start + place + len(value)] = value
        start = content.find(b"PK\1\2", start + 4)
    (folder / "model.npz").write_bytes(content)


def packed_by_nobody(folder: Path) -> None:
    patched_entries(folder, 10, (4711).to_bytes(2, "little"))


def encrypted(folder: Path) -> None:
    patched_entries(folder, 8, (1).to_bytes(2, "little"))


def endless_array(folder: Path) -> None:
    """A header that asks for a million million numbers."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)})
    with zipfile.ZipFile(folder / "model.npz", "a") as archive:
        archive.writestr("more.npy", header.getvalue())


def no_array(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.npz", "a") as archive:
        archive.writestr("more.npy", b"\x93NUMPY\x09\x00")


def endless_options(folder: Path) -> None:
    (folder / "model.npz.decoder.yml").unlink()
    (folder / "model.npz.decoder.yml").write_bytes(b"\xff" * 100)


def no_vocabulary(folder: Path) -> None:
    for path in folder.glob("*.spm"):
        path.unlink()
    (folder / "model.npz.decoder.yml").unlink()


def another_kind_of_vocabulary(folder: Path) -> None:
    (folder / "model.npz.decoder.yml").write_text("vocabs:\n  - vocab.yml\n  - vocab.yml\n")


def two_models(folder: Path) -> None:
    (folder / "model.npz").rename(folder / "one.npz")
    (folder / "two.npz").touch()


def no_model(folder: Path) -> None:
    (folder / "model.npz").unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (torn, "model.npz: cannot be read as an .npz archive"),
        (a_pickle, "model.npz: cannot be read as an .npz archive"),
        (a_single_array, "it is a single array"),
        (packed_by_lzma, "is compressed by a method that numpy does not use"),
        (packed_by_nobody, "is compressed by a method that numpy does not use"),
        (encrypted, "is encrypted"),
        (endless_array, "more.npy claims to be (1000000, 1000000) of float32, but its file has another size"),
        (no_array, "more.npy has an unknown version (9, 0)"),
        (endless_options, "model.npz.decoder.yml: cannot be read"),
        (no_vocabulary, "needs one or two sentencepiece vocabularies (.spm) beside it, but there are 0"),
        (another_kind_of_vocabulary, "vocab.yml: only sentencepiece vocabularies (.spm) can be imported"),
        (two_models, "has 2 models (one.npz, two.npz): give the path of one of them"),
        (no_model, "neither a Hugging Face folder (config.json) nor a Marian folder (model.npz)"),
    ],
)
def test_damaged_folders_are_named(change: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_marian(tmp_path / "marian")
    change(source)
    assert main(["import", str(source), str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_missing_source_and_an_existing_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        import_model(tmp_path / "none", tmp_path / "run")
    source = write_marian(tmp_path / "marian")
    with pytest.raises(RunError, match="marian: already exists"):
        import_model(source, source)


# --- Hugging Face's --------------------------------------------------------------------------------------------


def write_hf_marian(folder: Path, **settings: Any) -> tuple[Any, Any]:
    """A Marian model as HF's converter leaves them: two unigram models with ids of their own, one numbering for both.

    `</s>` 0, `<unk>` 1, `<pad>` last, a language code no model knows, a piece of the source without an id.
    """
    import transformers

    folder.mkdir(exist_ok=True)
    names: list[str] = []
    for file, words in (("source.spm", lines(200)), ("target.spm", lines(200, words=GERMAN))):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(words), model_prefix=str(folder / "trained"), vocab_size=120, model_type="unigram",
            hard_vocab_limit=False, minloglevel=3,
        )  # fmt: skip
        (folder / "trained.model").rename(folder / file)
        names += piece_names((folder / file).read_bytes())[3:]
    (folder / "trained.vocab").unlink()
    pieces = sorted({*names, ">>de<<"} - {"▁the"})
    ids = {name: number for number, name in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    pad = len(ids) - 1
    ours = ends_its_sentences(dataclasses.replace(SHAPE, activation="swish"), len(ids), len(ids))
    with torch.no_grad():
        ours.output_bias[0] += 18  # type: ignore[index]
    model = to_hf(ours, pad_token_id=pad, decoder_start_token_id=pad, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
        return model, transformers.MarianTokenizer.from_pretrained(folder)


def to_hf(ours: Transformer, **settings: Any) -> Any:
    """The same weights in HF's class, with the bias of `<pad>` at 0 as its converter leaves it."""
    import transformers

    from transduce.config import Config
    from transduce.exchange.hf import hf_settings, hf_tensors

    size = ours.target_pad + 1
    asked = hf_settings(Config(model=ours.config), size)
    model = transformers.MarianMTModel(transformers.MarianConfig(**(asked | settings)))
    model.generation_config.num_beams, model.generation_config.bad_words_ids = 3, [[ours.target_pad]]
    tensors = hf_tensors(ours, size, model.config.max_position_embeddings)
    tensors["final_logits_bias"][0, -1] = 0
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model.eval()


@needs_transformers
def test_a_marian_model_of_hugging_face_says_what_it_said_there(tmp_path: Path) -> None:
    model, tokenizer = write_hf_marian(tmp_path / "hf")
    taken = import_model(tmp_path / "hf", tmp_path / "run")
    assert [note.split(":")[0] for note in taken.notes] == ["1 pieces of source.spm have no id in vocab.json"]
    translator = Translator.load(tmp_path / "run", LoadOptions(engine="torch", device="cpu", threads=1))
    asked = [*(line for line in lines(12, seed=5) if "the" not in line), ">>de<< small dogs", "in Größe 7"]
    assert translator.vocabularies.source.encode(asked) == [tokenizer(line)["input_ids"] for line in asked]
    batch = tokenizer(asked, return_tensors="pt", padding=True)
    for beam in (1, 3):
        extra = {"length_penalty": 1.0, "early_stopping": "never"} if beam > 1 else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.generate(**batch, num_beams=beam, max_new_tokens=80, max_length=None, **extra)
        ended = [n for n, row in enumerate(found.tolist()) if 0 in row[1:40]]
        assert len(ended) > 5
        expected = [row[1 : row.index(0)] for row in found[ended].tolist()]
        request = translator.request(beam=beam, alpha=1.0)
        searched = translator.stream([asked[n] for n in ended], request)
        outputs = [translation.outputs[0] for translation in searched]
        numbers = json.loads((tmp_path / "hf" / "vocab.json").read_text())
        ours = [[numbers[t] for t in output.tokens] for output in outputs]
        same = [n for n, tokens in enumerate(ours) if tokens == expected[n]]
        texts = tokenizer.batch_decode(found[ended], skip_special_tokens=True)
        assert [outputs[n].text for n in same] == [texts[n] for n in same]
        assert_texts_agree(translator, request, [asked[n] for n in ended], texts, [o.text for o in outputs])
    config = translator.config
    assert config.data.languages == ("en", "de")
    assert (config.data.joint, config.model.tie, config.search.beam) == (False, "target", 3)


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def only_pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def torn_weights(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def in_pieces(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.safetensors.index.json")


def one_tensor_less(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.encoder.layers.0.fc1.weight"]
    save_file(tensors, folder / "model.safetensors")


def no_embeddings(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in tensors.items() if "shared" not in k}, folder / "model.safetensors")


def no_spm(folder: Path) -> None:
    (folder / "target.spm").unlink()


def torn_spm(folder: Path) -> None:
    (folder / "target.spm").write_bytes(b"no model")


def torn_json(folder: Path) -> None:
    (folder / "vocab.json").write_text('{"a": ')


def a_list(folder: Path) -> None:
    (folder / "vocab.json").write_text("[]")


def no_json(folder: Path) -> None:
    (folder / "vocab.json").unlink()


def changed_vocabulary(folder: Path, change: Any) -> None:
    ids = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(change(ids)))


def no_pad(folder: Path) -> None:
    changed_vocabulary(folder, lambda ids: {k: v for k, v in ids.items() if k != "<pad>"})


def ids_beyond(folder: Path) -> None:
    changed_vocabulary(folder, lambda ids: ids | {"more": 10_000})


def unnamed_ids(folder: Path) -> None:
    changed_vocabulary(folder, lambda ids: {k: v for k, v in ids.items() if k != "▁und"})


def setting(**changes: Any) -> Any:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def endless_config(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def texts_for_ids(folder: Path) -> None:
    changed_vocabulary(folder, lambda ids: {k: "1" if k == "▁und" else v for k, v in ids.items()})


def one_bias(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["final_logits_bias"] = torch.tensor(1.0)
    save_file(tensors, folder / "model.safetensors")


def a_fifo(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def rewriting_spm(folder: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2 as protocol

    model = protocol.ModelProto.FromString((folder / "target.spm").read_bytes())
    model.denormalizer_spec.CopyFrom(model.normalizer_spec)
    (folder / "target.spm").write_bytes(model.SerializeToString())


DAMAGE = [
    (endless_config, "config.json: not JSON"),
    (texts_for_ids, "vocab.json: every piece must have an id that is an integer of at least 0"),
    (one_bias, "not a model that can be imported (IndexError"),
    (a_fifo, "model.safetensors: cannot be read (not a regular file)"),
    (setting(d_model=90_000), "config.json has d_model 90000, but the embeddings are ["),
    (setting(encoder_layers=10**9), "must be at most"),
    (setting(d_model=1e400), "config.json: cannot be read: cannot convert float infinity"),
    (setting(activation_function=[]), "config.json: activation_function []: not supported by Transduce"),
    (without_weights, "model.safetensors: not found: the weights are missing"),
    (only_pickled, "its weights are pickled (pytorch_model.bin), and opening a pickle can run any code"),
    (torn_weights, "model.safetensors: cannot be read as safetensors"),
    (in_pieces, "its weights are in several files"),
    (one_tensor_less, "has no model.encoder.layers.0.fc1.weight"),
    (no_embeddings, "has no model.encoder.embed_tokens.weight"),
    (no_spm, "target.spm: not found"),
    (torn_spm, "target.spm: not a sentencepiece model"),
    (rewriting_spm, "target.spm: rewrites texts after decoding"),
    (torn_json, "vocab.json: not JSON"),
    (a_list, "vocab.json: not a JSON object"),
    (no_json, "vocab.json: not found"),
    (no_pad, "its vocabulary has no <pad>"),
    (ids_beyond, "has ids up to 10000"),
    (unnamed_ids, "1 ids have embeddings but no piece in its vocabulary"),
    (setting(model_type="t5"), "config.json has model_type t5; only marian"),
    (setting(decoder_ffn_dim=32), "encoder_ffn_dim and decoder_ffn_dim differ: not supported by Transduce"),
    (setting(decoder_attention_heads=2), "encoder_attention_heads and decoder_attention_heads differ"),
    (setting(activation_function="quick_gelu"), "activation_function quick_gelu"),
    (setting(scale_embedding=False), "scale_embedding is not true"),
    (setting(normalize_embedding=True), "normalize_embedding"),
    (setting(normalize_before=True), "normalize_before"),
    (setting(decoder_start_token_id=0), "decoding does not start from <pad>"),
    (setting(encoder_layers="two"), "config.json: cannot be read"),
]


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="pip install 'transduce[hf]'")
    write_hf_marian(folder := tmp_path_factory.mktemp("hf"))
    return folder


@pytest.mark.parametrize(("change", "said"), DAMAGE, ids=[said[:40] for _, said in DAMAGE])
def test_what_is_wrong_with_a_folder_of_hugging_face_is_named(
    hf_folder: Path, change: Any, said: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in hf_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    change(copy)
    with pytest.raises(TransduceError) as error:
        import_model(copy, tmp_path / "run")
    assert said in str(error.value)
    assert not (tmp_path / "run").exists()


def test_the_line_that_converts_a_pickled_folder_does(hf_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in hf_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    only_pickled(copy)
    with pytest.raises(DataError) as error:
        import_model(copy, tmp_path / "run")
    command = shlex.split(str(error.value).partition("convert them: ")[2])
    assert command[0] == "python"
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    import_model(copy, tmp_path / "run")
    import_model(hf_folder, tmp_path / "other")
    one, other = (load_file(RunFolder(tmp_path / name).weights("best")) for name in ("run", "other"))
    assert all(torch.equal(one[name], other[name]) for name in one | other)


# --- an imported model is a model ------------------------------------------------------------------------------


def test_every_verb_takes_an_imported_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, run = write_marian(tmp_path / "marian"), str(tmp_path / "run")
    assert main(["import", str(source), run]) == 0
    assert "Marian v1.12 model model.npz, 0.2 M parameters" in capsys.readouterr().err
    pairs = zip(lines(40, seed=7), lines(40, seed=8, words=GERMAN), strict=True)
    (tmp_path / "data.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    data = str(tmp_path / "data.tsv")
    model = ["--device", "cpu", "--threads", "1"]
    assert main(["evaluate", run, data, *model, "--beam", "1", "--max-extra", "5"]) == 0
    assert "BLEU" in capsys.readouterr().out
    assert main(["score", run, data, *model]) == 0
    assert len(capsys.readouterr().out.split()) == 40
    assert main(["attention", run, "the cat", "-o", str(tmp_path / "a.png"), *model]) == 0
    settings = ["train.steps=2", "train.validate_every=2", "train.threads=1", "train.tokens_per_batch=200"]
    settings += [
        f"data.cache={tmp_path / 'cache'}",
        "train.device=cpu",
        "train.validate_lines=2",
        "train.learning_rate=1e-5",
    ]
    tuned = str(tmp_path / "tuned")
    assert main(["train", tuned, "--from", run, "--train", data, "--valid", data, "--quiet", "--set", *settings]) == 0
    before, after = open_folder(run), open_folder(tuned)
    assert (after.config.model.positions, after.config.model.activation) == ("marian", "swish")
    old, new = before.model(), after.model()
    assert (
        0
        < max(float((a - b).abs().max().detach()) for a, b in zip(old.parameters(), new.parameters(), strict=True))
        < 1e-3
    )
    assert read_about(RunFolder(tmp_path / "run").weights("best"))["origin"] == "Marian v1.12 model model.npz"


# --- parts -----------------------------------------------------------------------------------------------------


def test_both_orders_of_an_axis() -> None:
    tensor = torch.arange(12).view(2, 6)
    assert sines_first(tensor, 1)[0].tolist() == [0, 2, 4, 1, 3, 5]
    assert torch.equal(alternating(sines_first(tensor, 1), 1), tensor)
    assert torch.equal(sines_first(tensor, None), tensor)


@pytest.mark.parametrize("units", ["unigram", "bpe"])
def test_pieces_laid_out_anew_segment_the_same(units: str) -> None:
    """Other ids, some names the model never had and some of its own gone."""
    given = train_vocabulary(lines(200), units=units, size=300)  # type: ignore[arg-type]
    names = piece_names(given.model)
    order = ["</s>", "<unk>", "wholly", "▁unknown", *reversed(names[2:]), ">>de<<"]
    laid = Vocabulary(renumber(given.model, order).model)
    asked = [*lines(20, seed=9), "wholly unknown", "日本"]
    there, here = given.encode(asked), laid.encode(asked)
    assert [given.pieces(row) for row in there] == [laid.pieces(row) for row in here]
    assert laid.encode([">>de<< the"])[0][0] == len(order) - 1
    assert laid.decode([[2, 3]]) == ["wholly unknown"]
    assert renumber(given.model, names).model == given.model
    assert renumber(given.model, names[:-3]).without_id == 3


def test_a_vocabulary_that_loses_bytes_has_none() -> None:
    given = train_vocabulary(lines(200), units="bpe", size=400)
    kept = [name for name in piece_names(given.model) if name != "<0x41>"]
    laid = Vocabulary(renumber(given.model, kept).model)
    assert laid.encode(["日"])[0][-2:] == [1, 0]
