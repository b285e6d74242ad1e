"""Corpora that a model makes: distillation and back-translation through the command line; and averages of models."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from folders import SHAPE, edit_config, ends_its_sentences, lines, vocabularies, write_folder, write_model

import transduce
from transduce.batch_translation import Where
from transduce.batch_translation.worker import Worker
from transduce.checkpoint import read_tensors
from transduce.cli import main
from transduce.config import TransformerConfig
from transduce.derived import synthesis
from transduce.derived.averaging import average
from transduce.derived.synthesis import Made, smaller_than, taught_by
from transduce.errors import DataError, RunError, SettingError
from transduce.text import Vocabularies, train_vocabulary
from transduce.training import TrainingRequest
from transduce.translator import LoadOptions, ModelFolder, SearchRequest, Translator, open_folder

TORCH = LoadOptions(engine="torch", device="cpu", threads=1)
SMALL = ["--set", "train.steps=2", "train.validate_lines=5", "model.d_model=16", "model.d_ff=16", "model.num_heads=2"]
SMALL += ["model.num_encoder_layers=2", "data.vocabulary_size=320", "train.threads=1"]


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "teacher")


def write_lines(path: Path, texts: list[str]) -> str:
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


# --- distillation ----------------------------------------------------------------------------------------------


def test_a_student_learns_what_the_teacher_says(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*lines(30), "", "  ", *lines(9, seed=2)]
    files = [write_lines(tmp_path / "a", asked), write_lines(tmp_path / "b", [*lines(30, seed=3), "x", "y", *lines(9)])]
    run = tmp_path / "student"
    options = ["--train", *files, "--valid", *files, "--engine", "torch", "--threads", "1", "--json", "--beam", "2"]
    old_name = "train.tokens_per_microbatch=4096"
    assert main(["distill", str(teacher), str(run), *options, *SMALL, old_name]) == 0
    said = capsys.readouterr()
    assert "note: train.tokens_per_microbatch is called train.positions_per_microbatch now" in said.err
    assert "set by preset student: " in said.err
    assert "set by options: " in said.err
    told = json.loads(said.out)
    assert told["steps"] == 2
    given, made = ((run / "made" / name).read_text().split("\n")[:-1] for name in ("given.txt", "made.txt"))
    full = [line for line in asked if line.strip()]
    translator = Translator.load(teacher, TORCH)
    expected = dict(zip(full, translator.translate(full, translator.request(beam=2)), strict=True))
    assert given == [line for line in full if expected[line].strip()]
    assert made == [expected[line] for line in given]
    facts = json.loads((run / "made" / "about.json").read_text())
    assert facts["lines"] + facts["left_out"] == len(asked)
    student = open_folder(run).config
    assert (student.model.num_encoder_layers, student.model.num_decoder_layers) == (2, 1)
    assert student.search.beam == 1
    assert student.data.languages == ("en", "de")
    assert main(["distill", str(teacher), str(run), *options, *SMALL, old_name]) == 0, "again: it goes on, and is done"


def test_a_student_inherits_task_units_and_languages(teacher: Path, tmp_path: Path) -> None:
    """A teacher of few words, whose output looks like symbols."""
    edit_config(teacher, 'task = "auto"', 'task = "translation"')
    told = open_folder(teacher).config.data
    assert told.task == "translation"
    asked = write_lines(tmp_path / "a", ["winter"] * 40 + ["rain"] * 40)  # two outputs, again and again
    files = (asked, write_lines(tmp_path / "b", lines(80)))
    settings = [*SMALL[1:], "data.vocabulary_size=330", "train.steps=1"]
    request = TrainingRequest(train=[files], valid=[files], settings=settings)
    synthesis.distill(teacher, tmp_path / "run", request, options=TORCH)
    student = open_folder(tmp_path / "run").config.data
    for name in ("task", "source_units", "target_units", "joint", "languages", "normalization", "unknown"):
        assert getattr(student, name) == getattr(told, name), name
    other = [*settings, "data.task=symbols", "data.source_units=char", "data.target_units=char", "data.unknown=unk"]
    synthesis.distill(teacher, tmp_path / "other", dataclasses.replace(request, settings=other), options=TORCH)
    student = open_folder(tmp_path / "other").config.data
    assert (student.task, student.source_units) == ("symbols", "char"), "what is asked for goes first"


def test_features_of_a_teacher_stay_symbols(teacher: Path) -> None:
    opened = open_folder(teacher)
    data = dataclasses.replace(opened.config.data, columns=("source=1", "features=3", "target=2"), symbols=("<x>",))
    both = train_vocabulary(["walk ;V;PST", "go ;V"], units="char", size=60, symbols=[";V", ";PST"])
    inherited = taught_by(
        ModelFolder(opened.folder, dataclasses.replace(opened.config, data=data), Vocabularies(both, both))
    )
    assert set(inherited["data"]["symbols"]) == {"<x>", ";V", ";PST"}
    assert tuple(inherited["data"]["columns"]) == data.columns


def test_the_given_targets_may_be_learned_from_too(teacher: Path, tmp_path: Path) -> None:
    files = (write_lines(tmp_path / "a", lines(20)), write_lines(tmp_path / "b", lines(20, seed=2)))
    synthesis.distill(
        teacher,
        tmp_path / "run",
        TrainingRequest(train=[files], valid=[files], settings=SMALL[1:]),
        keep_original=True,
        options=TORCH,
    )
    assert len(open_folder(tmp_path / "run").config.data.train) == 2


def test_what_is_wrong_with_a_student_is_said_before_the_teacher_works(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "make_corpus", lambda *given: pytest.fail("the teacher works"))
    files = (write_lines(tmp_path / "a", lines(3)), write_lines(tmp_path / "b", lines(3)))
    with pytest.raises(SettingError, match="no training data"):
        synthesis.distill(teacher, tmp_path / "run", TrainingRequest(train=[]))
    with pytest.raises(SettingError, match="d_modell"):
        synthesis.distill(teacher, tmp_path / "run", TrainingRequest(train=[files], settings=["model.d_modell=3"]))
    with pytest.raises(RunError, match="the folder is not empty and is not a run"):
        synthesis.distill(teacher, tmp_path, TrainingRequest(train=[files]))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every part that is translated; the command can be made to stop after some of them."""
    rows: list[int] = []
    translate = Worker.translate

    def counting(self: Worker, number: int, *more: object) -> object:
        if sum(rows) >= rows_allowed[0]:
            raise KeyboardInterrupt
        report = translate(self, number, *more)  # type: ignore[arg-type]
        rows.append(report.rows)
        return report

    monkeypatch.setattr(Worker, "translate", counting)
    monkeypatch.setattr(synthesis, "PART_LINES", 8)
    rows_allowed[0] = 10**9
    return rows


rows_allowed = [10**9]


def make(teacher: Path, texts: list[str], folder: Path, said: list[str] | None = None, beam: int = 1) -> Made:
    options = dataclasses.replace(TORCH, say=(said if said is not None else []).append)
    search = SearchRequest.of(open_folder(teacher).config.search).but(beam=beam)
    return synthesis.make_corpus(teacher, search, texts, folder, options)


def test_whoever_is_stopped_goes_on_where_it_was(teacher: Path, tmp_path: Path, translated: list[int]) -> None:
    asked, said = lines(30), list[str]()
    straight = make(teacher, asked, tmp_path / "straight", said)
    assert "4 of 4 shards are finished, 30 of 30 lines are translated" in said[-1]
    translated.clear()
    rows_allowed[0] = 16
    with pytest.raises(KeyboardInterrupt):
        make(teacher, asked, tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "made.txt").exists()
    rows_allowed[0] = 10**9
    translated.clear()
    resumed = make(teacher, asked, tmp_path / "stopped")
    assert sum(translated) == 14
    assert resumed.made.read_bytes() == straight.made.read_bytes()
    assert resumed.given.read_bytes() == straight.given.read_bytes()
    translated.clear()
    make(teacher, asked, tmp_path / "stopped")
    assert translated == [], "all of it is there"
    make(teacher, [*asked[:8], "the", *asked[9:]], tmp_path / "stopped")
    assert sum(translated) == 30, "other lines, another corpus"
    translated.clear()
    make(teacher, asked, tmp_path / "stopped", beam=2)
    assert sum(translated) == 30, "another request, another corpus"
    assert len(list((tmp_path / "stopped").glob("parts-*"))) == 1


def test_damaged_files_of_a_corpus_are_made_again(teacher: Path, tmp_path: Path, translated: list[int]) -> None:
    """A student would learn from what is in them."""
    folder = tmp_path / "made"
    make(teacher, lines(20), folder)
    whole = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file() and path.name != "manifest.json"}
    assert len(whole) == 7
    for path, content in whole.items():
        for harm in (content[: len(content) // 2], content[:-3] + b"x" + content[-2:], b"[" * 100_000, b"\xff\n"):
            said: list[str] = []
            path.write_bytes(harm)
            translated.clear()
            make(teacher, lines(20), folder, said)
            assert {one: one.read_bytes() for one in whole} == whole
            is_part = path.name.startswith("shard-")
            assert any("translating its lines again" in line for line in said) == is_part
            assert sum(translated) <= 8 * is_part


def test_parts_that_fail_are_said(teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Worker, number: int, *more: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Worker, "translate", fail)
    with pytest.raises(RunError, match="1 part could not be translated: out of memory; rerun the command"):
        make(teacher, lines(3), tmp_path / "made")


def test_nothing_to_translate_and_no_folder_are_said(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the input is empty"):
        make(teacher, [], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is a file; give a folder"):
        make(teacher, ["a"], tmp_path / "file")


# --- back-translation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [False, True])
def test_sources_are_made_for_targets(
    sample: bool, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lines(tmp_path / "mono", lines(12))
    given_file = [path] if sample else ["--input", path]
    command = ["backtranslate", str(teacher), str(tmp_path / "back"), *given_file, "--threads", "1", "--json"]
    command += ["--engine", "torch", *(["--sample", "--seed", "3"] if sample else [])]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    made = Path(told["made"]).read_text().split("\n")[:-1]
    given = Path(told["given"]).read_text().split("\n")[:-1]
    assert told["lines"] == len(made) == len(given)
    translator = Translator.load(teacher, TORCH)
    request = translator.request(sampling=sample, seed=3)
    assert (
        dict(zip(given, made, strict=True)).items()
        <= dict(zip(lines(12), translator.translate(lines(12), request), strict=True)).items()
    )


def test_many_workers_may_translate(teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Where | None] = []

    def stop(request: object, output: object, where: Where | None) -> None:
        asked.append(where)
        raise RunError("enough")

    monkeypatch.setattr(synthesis, "translate_corpus", stop)
    path = write_lines(tmp_path / "a", lines(3))
    many = ["--workers", "3", "--on", "local"]
    assert main(["backtranslate", str(teacher), str(tmp_path / "back"), path, *many]) == 2
    assert main(["distill", str(teacher), str(tmp_path / "run"), "--train", path, path, *many]) == 2
    assert asked == [Where(workers=3)] * 2


# --- averages --------------------------------------------------------------------------------------------------


def test_an_average_is_the_mean_of_weights_and_translates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = vocabularies(joint=True)
    runs = []
    for number in range(3):
        model = ends_its_sentences(SHAPE, both.source.size, both.target.size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * number)
        runs.append(write_model(tmp_path / f"run-{number}", model, both))
    assert main(["average", *map(str, runs), "-o", str(tmp_path / "mean")]) == 0
    assert "the mean of 3 models" in capsys.readouterr().err
    mean, middle = (read_tensors(folder / "best.safetensors") for folder in (tmp_path / "mean", runs[1]))
    for name, tensor in middle.items():
        assert torch.allclose(mean[name], tensor, atol=1e-6), name
    found = [transduce.load(run, engine="torch", threads=1).translate(lines(3)) for run in (tmp_path / "mean", runs[1])]
    assert found[0] == found[1]


def test_models_that_differ_in_dropout_alone_have_an_average(tmp_path: Path) -> None:
    """Fine-tuning may set another one, and no weight knows of it."""
    runs = [
        write_folder(tmp_path / f"run-{rate}", dataclasses.replace(SHAPE, dropout=rate, attention_dropout=rate / 2))
        for rate in (0.0, 0.3)
    ]
    assert average(runs, tmp_path / "mean").exists()


def test_what_has_no_average_is_refused(tmp_path: Path) -> None:
    apart = dataclasses.replace(SHAPE, tie="target")
    one, other = write_folder(tmp_path / "one", apart), write_folder(tmp_path / "other", apart, joint=False)
    with pytest.raises(SettingError, match="at least two"):
        average([one], tmp_path / "mean")
    with pytest.raises(RunError, match="one: already exists; give a new folder"):
        average([one, one], one)
    with pytest.raises(RunError, match=r"other: its source vocabulary differs"):
        average([one, other], tmp_path / "mean")
    frozen = Path(__file__).parent / "frozen" / "0.1.0"
    with pytest.raises(RunError, match=r"its model differs from that of .*one \(model.d_model 64 and \d+"):
        average([one, frozen], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(
    ("width", "layers", "expected"), [(512, 6, None), (256, 4, (128, 5)), (192, 3, (128, 4)), (64, 2, (64, 3))]
)
def test_a_student_is_smaller_than_its_teacher(width: int, layers: int, expected: tuple[int, int] | None) -> None:
    found = smaller_than(TransformerConfig(d_model=width, num_encoder_layers=layers))
    if expected is None:
        assert found == []
    else:
        assert found == [
            f"model.d_model={expected[0]}", f"model.d_ff={4 * expected[0]}", f"model.num_encoder_layers={expected[1]}"
        ]  # fmt: skip
