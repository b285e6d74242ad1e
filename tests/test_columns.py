"""Tables: which column is what, given or recognised, and the same wherever pairs are read."""

import io
import json
from pathlib import Path

import pytest

import transduce
from transduce.checkpoint import RunFolder
from transduce.cli import main
from transduce.config import build
from transduce.config.columns import Columns, features_as_written
from transduce.data import Corpus, describe_columns, infer_columns, scan
from transduce.data.layout import looks_like_features
from transduce.errors import DataError, SettingError
from transduce.translator import read_config

VERBS = ["gehen", "sehen", "hören", "lesen", "machen", "sagen", "leben", "lachen", "kaufen", "suchen"]
FORMS = [
    (f"{verb}", tags, verb.removesuffix("en") + ending)
    for verb in VERBS
    for tags, ending in (("V;PRS;1;SG", "e"), ("V;PRS;2;SG", "st"), ("V;PST;1;SG", "te"), ("V;NFIN", "en"))
]
TINY = """
model.d_model=16 model.d_ff=16 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
train.steps=2 train.tokens_per_batch=200 train.threads=1
""".split()


def table(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ()) -> tuple[str]:
    lines = ["\t".join(row) for row in ([header] if header else []) + rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return (str(path),)


def jsonl(path: Path, records: list[dict[str, object]]) -> tuple[str]:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return (str(path),)


def pairs_of(
    group: tuple[str, ...], *columns: str, languages: tuple[str, ...] = (), **more: bool
) -> list[tuple[str, str]]:
    corpus = Corpus((group,), languages, Columns.of(columns) if columns else None, **more)
    return [pair for block in corpus.blocks() for pair in zip(block.source, block.target, strict=True)]


# --- the setting


@pytest.mark.parametrize("setting", [("source=1", "features=2", "target=3"), ("source=lemma", "target=form")])
def test_columns_survive_the_settings(setting: tuple[str, ...]) -> None:
    assert Columns.of(setting).setting == setting
    assert build({"data": {"columns": ",".join(setting)}}).data.layout == Columns.of(setting)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("source", "'source' is not one of"),
        ("lemma=1,target=2", "'lemma=1' is not one of"),
        ("source=1", "source and target are required"),
        ("source=1,target=1", "only one role"),
        ("source=1,target=form", r"all columns by number \(starting at 1\) or all by name"),
        ("source=0,target=1", "starting at 1"),
    ],
)
def test_columns_that_make_no_sense_are_refused(setting: str, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint) as caught:
        build({"data": {"columns": setting}})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "columns"),
    [
        (3, Columns("1", "2", "3")),
        (2, Columns("1", "3", "2")),
        (1, Columns("2", "3", "1")),
        (5, Columns("1", "2", "5")),
    ],
)
def test_the_features_column_of_old_settings_is_never_the_target(number: int, columns: Columns) -> None:
    assert build({"data": {"features_column": number}}).data.layout == columns
    with pytest.raises(
        SettingError, match=f"features_column = {number}: this is the old name of data.columns, which is set"
    ):
        build({"data": {"features_column": number, "columns": "source=1,target=2"}})


# --- reading


def test_columns_by_number(tmp_path: Path) -> None:
    group = table(tmp_path / "a.tsv", [("x", "gehen", "V;PST", "ging")])
    assert pairs_of(group, "source=2", "features=3", "target=4") == [("gehen ;V;PST", "ging")]
    assert pairs_of(group, "source=4", "target=2") == [("ging", "gehen")]
    corpus = Corpus((group,), columns=Columns("2", "4", "3"))
    assert scan(corpus, 10).symbols == (";PST", ";V")


def test_columns_by_name_need_a_header(tmp_path: Path) -> None:
    group = table(tmp_path / "a.tsv", [("V;PST", "gehen", "ging"), ("V", "lesen", "las")], ("tags", "lemma", "form"))
    named = ("source=lemma", "features=tags", "target=form")
    assert pairs_of(group, *named) == [("gehen ;V;PST", "ging"), ("lesen ;V", "las")]
    with pytest.raises(DataError, match=r"a.tsv:1: no column 'word' in the header line, which has tags, lemma, form"):
        pairs_of(group, "source=word", "target=form")


def test_keys_of_jsonl(tmp_path: Path) -> None:
    flat = jsonl(tmp_path / "a.jsonl", [{"id": 3, "fr": "chat", "en": "cat"}])
    assert pairs_of(flat, languages=("fr", "en")) == [("chat", "cat")]
    assert pairs_of(flat, "source=en", "target=fr") == [("cat", "chat")]
    with pytest.raises(DataError, match='it has "fr" and "en": name them, for example --columns source=fr,target=en'):
        pairs_of(flat)
    with pytest.raises(DataError, match="JSONL has keys, not numbers of columns"):
        pairs_of(flat, "source=2", "target=1")
    records: list[dict[str, object]] = [
        {"lemma": "gehen", "tags": "V;PST", "form": "ging"},
        {"lemma": "lesen", "tags": ["V", "PST"], "form": "las"},
    ]
    named = jsonl(tmp_path / "b.jsonl", records)
    read = pairs_of(named, "source=lemma", "features=tags", "target=form")
    assert read == [("gehen ;V;PST", "ging"), ("lesen ;V;PST", "las")]


def test_blank_lines_are_skipped_and_counted_where_asked(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n\n  \nc\td\nalone\n")
    with pytest.raises(DataError, match=r"a.tsv:2: blank line: use --skip-blank-lines to skip such lines"):
        pairs_of((str(tmp_path / "a.tsv"),))
    with pytest.raises(DataError, match=r"a.tsv:5: 1 column where 2 are needed"):
        pairs_of((str(tmp_path / "a.tsv"),), skip_blank_lines=True)
    (tmp_path / "b.jsonl").write_text('{"source": "a", "target": "b"}\n\n')
    with pytest.raises(DataError, match=r"b.jsonl:2: blank line: use --skip-blank-lines"):
        pairs_of((str(tmp_path / "b.jsonl"),))
    found = scan(Corpus(((str(tmp_path / "b.jsonl"),),), skip_blank_lines=True), 10)
    assert (found.pairs, found.blank) == (1, 1)


# --- recognising


@pytest.mark.parametrize(
    ("rows", "header", "expected"),
    [
        (FORMS, (), ("source=1", "features=2", "target=3")),
        ([(lemma, form, tags) for lemma, tags, form in FORMS], (), ("source=1", "features=3", "target=2")),
        ([(tags, lemma, form) for lemma, tags, form in FORMS], (), ("source=2", "features=1", "target=3")),
        ([(lemma, form) for lemma, _, form in FORMS], ("source", "target"), ("source=source", "target=target")),
        ([(form, lemma) for lemma, _, form in FORMS], ("de", "en"), ("source=en", "target=de")),
        (FORMS, ("Lemma", "Tags", "Form"), ("source=Lemma", "features=Tags", "target=Form")),
        ([*FORMS, ("sein", "V PST", "war")], (), ("source=1", "features=2", "target=3")),
        ([*FORMS, ("sein", "ist")], (), ("source=1", "features=2", "target=3")),
        ([(lemma, form) for lemma, _, form in FORMS], (), None),
        ([(lemma, form, "a remark; with words") for lemma, _, form in FORMS], (), None),
    ],
)
def test_the_layout_is_recognised(
    tmp_path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...], expected: tuple[str, ...] | None
) -> None:
    found = infer_columns([table(tmp_path / "a.tsv", rows, header)], ("en", "de"))
    assert (found.setting if found else None) == expected


def test_features_as_written() -> None:
    assert features_as_written("gehen ;V;PST") == "gehen V;PST"
    assert features_as_written("zu ; gehen ;V") == "zu ; gehen V"
    assert features_as_written("ein ; Satz") == "ein ; Satz"


def test_features_of_jsonl_are_recognised(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"source": s, "features": f, "target": t, "id": 1} for s, f, t in FORMS]
    group = jsonl(tmp_path / "a.jsonl", records)
    columns = infer_columns([group], ())
    assert columns == Columns("source", "target", "features")
    assert "source=source, features=features, target=target" in describe_columns(Corpus((group,), columns=columns))[0]


def test_jsonl_without_features_may_stand_beside_tsv(tmp_path: Path) -> None:
    groups = (jsonl(tmp_path / "a.jsonl", [{"en": "cat", "de": "Katze"}]), table(tmp_path / "b.tsv", [("dog", "Hund")]))
    corpus = Corpus(groups, ("en", "de"), infer_columns(groups, ("en", "de")))
    assert [block.source + block.target for block in corpus.blocks()] == [["cat", "Katze"], ["dog", "Hund"]]


def test_files_of_different_layouts_are_refused(tmp_path: Path) -> None:
    one = table(tmp_path / "a.tsv", FORMS)
    other = table(tmp_path / "b.tsv", [(lemma, form, tags) for lemma, tags, form in FORMS])
    with pytest.raises(
        DataError, match=r"b.tsv: its columns look like source=1,features=3,target=2, but those of .*a.tsv"
    ):
        infer_columns([one, other], ())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["V;PST", "N;ACC;PL", "N"], True),
        (["V;PST;3;SG", "V;V.PTCP;PRS", ""], True),
        (["house;home", "cat;tomcat"], False),
        (["N", "V"], False),
        (["a text; of words"], False),
        ([], False),
    ],
)
def test_what_looks_like_features(values: list[str], expected: bool) -> None:
    assert looks_like_features(values) == expected


def test_unused_columns_are_said(tmp_path: Path) -> None:
    group = table(tmp_path / "a.tsv", [(*row, "x", "y") for row in FORMS])
    assert describe_columns(Corpus((group,), columns=Columns("1", "3", "2"))) == [
        f"columns of {group[0]}: source=1, features=2, target=3 (features such as V;PRS;1;SG); not used: 4, 5"
    ]
    assert "not used: 3, 4, 5" in describe_columns(Corpus((group,)))[0]
    assert describe_columns(Corpus((table(tmp_path / "b.tsv", [("a", "b")]),))) == []


def test_real_layouts(shared_data: Path) -> None:
    inflection = shared_data / "conll2017-inflection" / "german" / "train-low.tsv"
    assert infer_columns([(str(inflection),)], ()) == Columns("1", "2", "3")


# --- from training to translating


@pytest.fixture(scope="module")
def inflection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lemma, features, form, and a blank line at the end, by one command."""
    folder = tmp_path_factory.mktemp("inflection")
    for name, rows in (("train", FORMS * 3), ("valid", FORMS[:4])):
        (path,) = table(folder / f"{name}.tsv", rows)
        Path(path).write_text(Path(path).read_text() + "\n")
    files = ["--train", f"{folder}/train.tsv", "--valid", f"{folder}/valid.tsv", "--skip-blank-lines"]
    assert main(["train", f"{folder}/run", *files, "--set", *TINY, f"data.cache={folder}/cache"]) == 0
    return folder / "run"


def test_features_are_recognised_by_training(inflection: Path) -> None:
    data = read_config(RunFolder(inflection)).data
    assert data.columns == ("source=1", "features=2", "target=3")
    assert (data.task, data.skip_blank_lines) == ("symbols", True)
    vocabulary = transduce.load(inflection, engine="torch").vocabularies.source
    assert ";PST" in vocabulary.pieces(range(vocabulary.size))


def test_a_run_with_recognised_columns_is_resumed(inflection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(inflection), "--steps", "3"]) == 0
    assert "blank lines skipped" in capsys.readouterr().err


def test_translate_reads_the_columns_of_training(
    inflection: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["gehen ;V;PST;1;SG", "gehen\tV;PST;1;SG", "gehen\tV;PST;1;SG\tging"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert main(["translate", str(inflection), "--json", "--engine", "torch"]) == 0
    out = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({line["source_tokens"] for line in out}) == len({line["outputs"][0]["text"] for line in out}) == 1
    assert [line["source"] for line in out] == [lines[0]] * 3
    other = "V;PST;1;SG\tgehen"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(other.encode())))
    assert main(["translate", str(inflection), "--columns", "source=2,features=1", "--json", "--engine", "torch"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["text"] == out[0]["outputs"][0]["text"]
    for columns, complaint in (("source=4", "-:1: has 2 of the 4 columns"), ("source=lemma", "such as source=1")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(other.encode())))
        assert main(["translate", str(inflection), "--columns", columns]) == 2
        assert complaint in capsys.readouterr().err


def test_evaluate_and_score_read_the_columns_of_training(
    inflection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plain,) = table(tmp_path / "a.tsv", FORMS[:3])
    (turned,) = table(tmp_path / "b.tsv", [(form, lemma, tags) for lemma, tags, form in FORMS[:3]])
    assert main(["score", str(inflection), plain]) == 0
    scores = capsys.readouterr().out
    assert main(["score", str(inflection), turned, "--columns", "source=2,features=3,target=1"]) == 0
    assert capsys.readouterr().out == scores
    assert main(["evaluate", str(inflection), turned, "--columns", "source=2,features=3,target=1"]) == 0
    assert "columns of" in capsys.readouterr().err
    assert main(["score", str(inflection), plain, "--columns", "nonsense"]) == 2
    assert "'nonsense' is not one of source=, features= and target=" in capsys.readouterr().err


def test_lines_without_features_are_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "forms.tsv"
    data.write_text("".join(f"w{n:b}\tV;PST\tw{n:b}te\n" for n in range(300)))
    small = ["model.d_model=16", "model.d_ff=16", "model.num_heads=2", "train.threads=1", f"data.cache={tmp_path}/c"]
    assert main(["train", str(tmp_path / "run"), "--train", str(data), "--steps", "1", "--quiet", "--set", *small]) == 0
    words = tmp_path / "words"
    words.write_text("w1\tV;PST\nw1\n\nw1 V;PST\n")
    assert main(["translate", str(tmp_path / "run"), str(words), "--max-extra", "1"]) == 0
    assert "2 lines have no features: this model expects a word, a tab, and the features" in capfd.readouterr().err
