"""Tables: which column is what, given or recognised, and the same wherever pairs are read."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from transduce.checkpoint import RunFolder
from transduce.cli import main
from transduce.cli.notices import Notices
from transduce.config import build
from transduce.config.columns import Columns, features_as_written
from transduce.data import Corpus, describe_columns, infer_columns, scan
from transduce.data.headers import named_sides
from transduce.data.layout import looks_like_features
from transduce.data.store import Rules, open_or_build
from transduce.errors import DataError, SettingError
from transduce.text import UNKNOWN, Vocabulary
from transduce.translator import Translation, read_config

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


@pytest.mark.parametrize(
    ("header", "languages", "sides"),
    [
        ("word ipa", "", "word ipa"),
        ("IPA Word", "", "Word IPA"),
        ("German English", "", "German English"),
        ("German English", "en de", "English German"),
        ("de en", "", "de en"),
        ("id English German", "", "English German"),
        ("pt en", "en pt-BR", "en pt"),
        ("de en", "de fr", ""),
        ("de Hallo en", "", ""),
        ("id en", "", ""),
        ("id en", "id en", "id en"),
        ("no no", "", ""),
        ("German Deutsch", "", ""),
        ("word words", "", ""),
        ("form ipa", "", ""),
    ],
)
def test_columns_are_named_by_usual_words_or_languages(header: str, languages: str, sides: str) -> None:
    assert named_sides(header.split(), languages.split()) == tuple(sides.split())


def test_a_header_line_is_no_pair_whatever_the_settings(tmp_path: Path) -> None:
    group = table(tmp_path / "a.tsv", [("Hallo", "Hello")], ("German", "English"))
    assert pairs_of(group) == pairs_of(group, "source=1", "target=2") == [("Hallo", "Hello")]
    assert pairs_of(group, languages=("en", "de")) == [("Hello", "Hallo")]
    assert pairs_of(group, "source=2", "target=1", languages=("de", "en")) == [("Hello", "Hallo")]
    names = f"first line of {group[0]} taken as header: German, English; columns"
    assert describe_columns(Corpus((group,))) == [f"{names}: source=German, target=English"]
    assert describe_columns(Corpus((group,), columns=Columns("2", "1"))) == [f"{names}: source=2, target=1"]
    other = table(tmp_path / "b.tsv", [("Hallo", "Hello")])
    assert pairs_of(other) == [("Hallo", "Hello")]
    assert describe_columns(Corpus((other,))) == []


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


@pytest.mark.parametrize(
    "command",
    ["score RUN FILE", "evaluate RUN FILE", "compare A=RUN B=RUN --source FILE --json", "doctor --train FILE --json"],
)
def test_all_commands_recognise_the_same_header_line(
    inflection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Also where the training data had none."""
    (plain,) = table(tmp_path / "a.tsv", FORMS[:12])
    (headed,) = table(tmp_path / "b.tsv", FORMS[:12], ("Lemma", "Features", "Form"))
    said = f"first line of {headed} taken as header: Lemma, Features, Form; columns: source="
    printed = []
    for path in (plain, headed):
        assert main(command.replace("RUN", str(inflection)).replace("FILE", path).split()) == 0
        captured = capsys.readouterr()
        assert (said in captured.err) == (path == headed)
        printed.append(captured.out)
    assert pairs_in(printed[0]) == pairs_in(printed[1]) == 12 if "json" in command else printed[0] == printed[1]


def pairs_in(report: str) -> int:
    read = json.loads(report)
    return int(read["sentences"] if "sentences" in read else read["pairs"])


def test_training_takes_a_header_line_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (train,) = table(tmp_path / "train.tsv", [(f"w{n:b}", " ".join(f"{n:b}")) for n in range(300)], ("word", "ipa"))
    (test,) = table(tmp_path / "test.tsv", [("w101", "1 0 1"), ("w11", "1 1")], ("word", "ipa"))
    run = str(tmp_path / "run")
    assert main(["train", run, "--train", train, "--valid", test, "--set", *TINY, f"data.cache={tmp_path}/c"]) == 0
    said = capsys.readouterr().err
    for path in (train, test):
        assert f"first line of {path} taken as header: word, ipa; columns: source=word, target=ipa" in said
    assert "training data: 300 pairs" in said
    assert main(["evaluate", run, test]) == 0
    said = capsys.readouterr().err
    assert f"first line of {test} taken as header: word, ipa" in said
    assert "2 sentences in" in said


# --- features that did not occur in training


def test_each_feature_is_one_symbol_and_an_unseen_one_is_unknown(inflection: Path) -> None:
    """`PSTX` begins like the known feature `PST`."""
    translator = transduce.load(inflection, engine="torch")
    vocabulary = translator.vocabularies.source
    known = translator.source_ids("gehen\tV;PST;1;SG")
    assert known == vocabulary.encode(["gehen ;V;PST;1;SG"])[0]
    assert vocabulary.pieces(known)[-5:] == [";V", ";PST", ";1", ";SG", "</s>"]
    for features, unseen in {
        "V;PSTX;1;SG": [1],
        "W;PST;1;SG": [0],
        "W;PSTX;X;Y": [0, 1, 2, 3],
        "V;PST;1;SGX": [3],
    }.items():
        ids = translator.source_ids(f"gehen\t{features}")
        assert ids == [UNKNOWN if at - len(known) + 5 in unseen else one for at, one in enumerate(known)]
        assert translator.source_ids("gehen " + "".join(f";{one}" for one in features.split(";"))) == ids
    (found,) = translator.stream(["gehen\tV;PSTX;1;Y"])
    assert (found.unseen_features, found.unknown, found.source) == (("PSTX", "Y"), 2, "gehen ;V;PSTX;1;Y")
    for line in ("gehen", "gehen ; sehen", ""):
        assert translator.source_ids(line) == vocabulary.encode([line])[0]
    assert translator.align(["gehen\tV;PSTX"], ["ging"])[0]


def test_fine_tuning_learns_unseen_features_as_translation_reads_them(
    inflection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (train,) = table(tmp_path / "train.tsv", [("gehen", "V;PSTX;1;SG", "gingx"), ("sehen", "V;PSTX;Y;SG", "sahx")] * 20)
    run, cache = tmp_path / "tuned", tmp_path / "cache"
    settings = ["train.steps=1", "train.threads=1", "train.tokens_per_batch=200", f"data.cache={cache}"]
    assert (
        main(["train", str(run), "--train", train, "--valid", train, "--from", str(inflection), "--set", *settings])
        == 0
    )
    said = capsys.readouterr().err
    assert (
        f"the vocabulary of {inflection} does not have these features, so the model cannot tell them apart: PSTX, Y;"
        in said
    )
    translator = transduce.load(run, engine="torch")
    corpus = Corpus(((train,),), columns=Columns("1", "3", "2"))
    store = open_or_build(corpus, scan(corpus, 10), translator.vocabularies, Rules.for_validation(100), cache)
    read = [translator.source_ids(line) for line in ("gehen\tV;PSTX;1;SG", "sehen\tV;PSTX;Y;SG")]
    assert [store.source(number).tolist() for number in (0, 1)] == read


def test_unseen_features_are_said(
    inflection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (pairs,) = table(
        tmp_path / "a.tsv", [("gehen", "V;PSTX", "ging"), ("sehen", "V;PSTX", "sah"), ("gehen", "V;PST", "ging")]
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(pairs).read_bytes())))
    for command in (
        ["translate", str(inflection)],
        ["evaluate", str(inflection), pairs],
        ["score", str(inflection), pairs],
    ):
        assert main(command) == 0
        said = capsys.readouterr().err
        known = "known features: 1, 2, NFIN, PRS, PST, SG, V\n"
        assert f"feature PSTX did not occur in training and is unknown (2 lines); {known}" in said
        assert "not in the vocabulary" not in said


def test_long_lists_of_features_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    notices = Notices()
    notices.known_features = [f"K{n}" for n in range(42)]
    notices.add_all([Translation("a", [], unknown=1, unseen_features=(f"X{n}",)) for n in range(7)]).print()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("K39 and 2 more")
    assert [line for line in lines if "2 more features did not occur in training" in line]


def test_the_server_names_unseen_features(inflection: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from serving import Client, make_service

    client = Client(make_service([inflection], "torch"))
    answer = client.post("/v1/translate", {"text": ["gehen\tV;PSTX", "gehen\tV;PST"]}).json()
    unseen, seen = (text["sentences"][0] for text in answer["translations"])
    assert (unseen["unseen_features"], unseen["unknown"]) == (["PSTX"], 1)
    assert "unseen_features" not in seen


@pytest.mark.parametrize(
    ("to", "package", "sample"),
    [
        ("ct2", "ctranslate2", ""),
        pytest.param("onnx", "onnxruntime", "", marks=pytest.mark.slow),
        ("hf", "transformers", ""),
        ("ct2", "ctranslate2", "gehen\n"),
    ],
)
def test_exports_show_how_features_are_written(
    inflection: Path, tmp_path: Path, to: str, package: str, sample: str
) -> None:
    """With a real line if there is one; in a process of its own, because ONNX cannot trace functions whose types are checked."""
    pytest.importorskip(package)
    (tmp_path / "sample").write_text(sample)
    lines = ["--sample", str(tmp_path / "sample")] if sample else []
    command = [sys.executable, "-m", "transduce", "export", str(inflection), str(tmp_path / to), "--to", to, *lines]
    subprocess.run(command, check=True, capture_output=True)
    card = (tmp_path / to / "README.md").read_text(encoding="utf-8")
    shown, symbols = ("word ;1", [";1"]) if sample else ("gehen ;V;PRS;1;SG", [";V", ";PRS", ";1", ";SG"])
    assert f'"{shown}"' in card.split("```python\n")[1].split("```")[0]
    assert '"..."' not in card
    assert f"each after a semicolon: `{shown}`. Known features: `1` `2` `NFIN` `PRS` `PST` `SG` `V`." in card
    pieces = Vocabulary.load(tmp_path / to / "source.spm").written(shown)
    assert pieces[-1 - len(symbols) :] == [*symbols, "</s>"]


def test_lines_without_features_are_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "forms.tsv"
    data.write_text("".join(f"w{n:b}\tV;PST\tw{n:b}te\n" for n in range(300)))
    small = ["model.d_model=16", "model.d_ff=16", "model.num_heads=2", "train.threads=1", f"data.cache={tmp_path}/c"]
    assert main(["train", str(tmp_path / "run"), "--train", str(data), "--steps", "1", "--quiet", "--set", *small]) == 0
    words = tmp_path / "words"
    words.write_text("w1\tV;PST\nw1\n\nw1 V;PST\n")
    assert main(["translate", str(tmp_path / "run"), str(words), "--max-extra", "1"]) == 0
    assert "2 lines have no features: this model expects a word, a tab, and the features" in capfd.readouterr().err
