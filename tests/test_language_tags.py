"""Several target languages in one model: tags from the corpora, `--to`, and every mistake in one line."""

import dataclasses
import json
from pathlib import Path

import pytest
from folders import write_folder

import transduce
from transduce.cli import main
from transduce.config import Config, DataConfig, check
from transduce.data import Corpus, read_pairs, scan
from transduce.data.corpus import are_equal
from transduce.errors import DataError, RunError, SettingError
from transduce.explore.views import translate_view
from transduce.server.models import ServedModel, Specification
from transduce.text import train_vocabulary
from transduce.translator import LoadOptions

WORDS = ["ab", "ba", "abba", "baab", "aab", "bba", "abab", "baba", "aa", "bb", "aba", "bab"]
LETTERS = {"de": {"a": "A", "b": "B"}, "fr": {"a": "X", "b": "Y"}}
SETTINGS = """
model.d_model=64 model.d_ff=128 model.num_heads=4 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0 train.steps=160 train.tokens_per_batch=400 train.learning_rate=5e-3 train.warmup_steps=10
train.validate_every=160 train.checkpoint_every=160 train.threads=1 search.max_extra=5 data.tags=de,fr
""".split()


def said(word: str, language: str) -> str:
    return " ".join(LETTERS[language][letter] for letter in word)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each word in two languages, in files of their own."""
    folder = tmp_path_factory.mktemp("tags")
    for language in LETTERS:
        pairs = [f"{word}\t{said(word, language)}\n" for word in WORDS]
        (folder / f"train.{language}.tsv").write_text("".join(pairs * 10))
        (folder / f"valid.{language}.tsv").write_text("".join(pairs))
    return folder


@pytest.fixture(scope="module")
def model(files: Path) -> Path:
    """One model for both languages."""
    groups = [
        ["--" + kind, str(files / f"{kind}.{language}.tsv")] for kind in ("train", "valid") for language in LETTERS
    ]
    options = [option for group in groups for option in group]
    settings = ["--set", *SETTINGS, f"data.cache={files / 'cache'}"]
    assert main(["train", str(files / "run"), *options, "--quiet", *settings]) == 0
    return files / "run"


@pytest.mark.parametrize("language", LETTERS)
def test_one_source_has_two_targets(
    language: str, model: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model learns both, and gives the one that is asked for, on the command line and in Python."""
    (files / "words").write_text("".join(f"{word}\n" for word in WORDS))
    expected = [said(word, language) for word in WORDS]
    assert main(["translate", str(model), str(files / "words"), "--to", language, "--engine", "torch"]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    translator = transduce.load(model, engine="torch")
    assert translator.target_languages == ("de", "fr")
    assert translator.to(language).translate(WORDS) == expected
    assert translator.translate([f">>{language}<< {word}" for word in WORDS]) == expected
    assert transduce.translate(translator, WORDS, to=language) == expected
    test = [str(files / f"valid.{language}.tsv")]
    assert (
        main(
            ["evaluate", str(model), *test, "--to", language, "--engine", "torch", "--json", "--metrics", "exact-match"]
        )
        == 0
    )
    [score] = json.loads(capsys.readouterr().out)["scores"].values()
    assert score["value"] == 100


def test_a_tag_in_the_line_wins(model: Path) -> None:
    assert transduce.load(model, engine="torch", to="fr").translate([">>de<< ab", "ab", ""]) == ["A B", "X Y", ""]


def test_scores_know_the_language(model: Path) -> None:
    translator = transduce.load(model, engine="torch")
    right, wrong = transduce.score(translator, ["ab", "ab"], ["A B", "X Y"], to="de")
    assert right > -1 > wrong


def test_the_explorer_counts_what_was_cut_with_the_tag(model: Path) -> None:
    found = translate_view(transduce.load(model, engine="torch", to="fr"), "ab")
    assert found["source"]["tokens"][0] == "\u2581>>fr<<"
    assert (found["cut"], found["unknown"]) == (0, 0)


def test_alignments_are_of_the_line_without_the_tag(model: Path) -> None:
    """Words are counted in what the user wrote: the tag that was added is none of them."""
    translator = transduce.load(model, engine="torch", to="de")
    [added] = translator.stream(["ab"], translator.request(aligned=True))
    [written] = translator.stream([">>de<< ab"], translator.request(aligned=True))
    assert {source for source, _ in added.outputs[0].alignment} <= {0}
    assert {source for source, _ in written.outputs[0].alignment} <= {0, 1}
    assert [(s - 1, t) for s, t in written.outputs[0].alignment if s] == added.outputs[0].alignment
    assert (added.source, written.source) == ("ab", ">>de<< ab")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            [],
            "no target language: choose one of de, fr with --to (to= in Python), or begin the line with its tag, such as >>de<<",
        ),
        (["--to", "es"], "target language 'es': this model translates into de, fr"),
    ],
)
def test_the_target_language_must_be_known(
    options: list[str], message: str, model: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "line").write_text("ab\n")
    assert main(["translate", str(model), str(files / "line"), "--engine", "torch", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_model_without_tags_has_one_language(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="this model translates into one language"):
        transduce.load(write_folder(tmp_path / "run"), lazy=True).to("de")


def test_metrics_follow_the_language(tmp_path: Path) -> None:
    """BLEU's tokenizer depends on the target language."""
    translator = transduce.load(write_folder(tmp_path / "run"), lazy=True)
    translator.forms = dataclasses.replace(translator.forms, tags=(">>zh<<",))
    assert translator.to("zh").config.data.languages == ("en", "zh")


def test_corpora_are_translated_into_one_language(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab\nbab\n")
    common = ["-o", str(tmp_path / "out"), "--quiet", "--threads", "1", "--engine", "torch"]
    assert main(["batch", str(model), str(tmp_path / "a.txt"), "--to", "fr", *common]) == 0
    assert main(["batch", "-o", str(tmp_path / "out"), "--collect", str(tmp_path / "joined"), "--quiet"]) == 0
    assert (tmp_path / "joined").read_text() == f"{said('ab', 'fr')}\n{said('bab', 'fr')}\n"
    with pytest.raises(RunError, match="was begun with to = fr instead of de"):
        transduce.batch(
            model,
            tmp_path / "a.txt",
            tmp_path / "out",
            to="de",
            options=LoadOptions(engine="torch", threads=1),
            quiet=True,
        )


def test_a_corpus_without_a_language_is_refused_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab\n")
    with pytest.raises(DataError, match=r"a\.txt:1: 'ab': no target language: choose one of de, fr with --to"):
        transduce.batch(model, tmp_path / "a.txt", tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_systems_are_compared_in_one_language(model: Path, tmp_path: Path) -> None:
    words = [word for word in WORDS if len(word) < 5]
    (tmp_path / "test.tsv").write_text("".join(f"{word}\t{said(word, 'fr')}\n" for word in words))
    (tmp_path / "outputs").write_text("X\n" * len(words))
    options = LoadOptions(engine="torch", threads=1)
    found = transduce.compare(
        [tmp_path / "outputs", model],
        source=tmp_path / "test.tsv",
        metrics=["exact-match"],
        samples=100,
        to="fr",
        options=options,
        quiet=True,
    )
    assert [system.score for system in found.main.systems] == [0, 100]


def test_a_student_learns_one_language_of_its_teacher(model: Path, files: Path, tmp_path: Path) -> None:
    settings = [one for one in SETTINGS if not one.startswith("data.tags")]
    transduce.distill(
        model,
        tmp_path / "student",
        train=files / "train.de.tsv",
        valid=files / "valid.fr.tsv",
        to="fr",
        settings=[*settings, f"data.cache={files / 'cache'}"],
        steps=1,
        options=LoadOptions(engine="torch", threads=1),
        quiet=True,
    )
    made = (tmp_path / "student/made/made.txt").read_text().splitlines()
    assert set(made) == {said(word, "fr") for word in WORDS}
    assert transduce.load(tmp_path / "student", engine="torch").target_languages == ()


def test_the_server_serves_one_language_of_it(model: Path) -> None:
    loading = LoadOptions(engine="torch")
    served = ServedModel.load(Specification.parse(f"en-fr={model}"), loading)
    [found] = served.translate(["ab"], served.translator.request())
    assert found.text == "X Y"
    with pytest.raises(SettingError, match=r"translates into de, fr: serve it as en-de="):
        ServedModel.load(Specification.parse(str(model)), loading)


def test_held_out_sources_are_the_same_in_every_language(files: Path) -> None:
    """Otherwise the model would see the other language's pair of a sentence that it is validated on."""
    groups = tuple((str(files / f"train.{language}.tsv"),) for language in LETTERS)
    held = dataclasses.replace(Corpus(groups, tags=("de", "fr")), hold_out=3, part="held out")
    sources = read_pairs(held)[0]
    words = {tag: {text.partition(" ")[2] for text in sources if text.startswith(tag)} for tag in (">>de<<", ">>fr<<")}
    assert words[">>de<<"] == words[">>fr<<"] != set()


def test_a_tag_hides_no_identical_pair(tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text("same\tsame\none\ttwo\n\t\n")
    corpus = Corpus(((str(tmp_path / "data.tsv"),),), tags=("de",))
    found = scan(corpus, sample_pairs=10)
    assert (found.identical, found.empty) == (2, 1)
    assert [are_equal(*pair) for pair in zip(*read_pairs(corpus), strict=True)] == [True, False, True]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"tags": ("de",), "train": ("a", "b")}, "data.tags = de: 1 for 2 corpora: give one language for each --train"),
        ({"tags": ("d e",)}, "data.tags = d e: 'd e' is not a language code"),
        ({"valid_tags": ("de",)}, "data.valid_tags without data.tags"),
        (
            {"tags": ("de", "fr"), "train": ("a", "b"), "valid": ("c",)},
            r"data.tags = de,fr: which languages are the 1 --valid in\? Set data.valid_tags",
        ),
        (
            {"tags": ("de", "fr"), "train": ("a", "b"), "valid": ("c",), "valid_tags": ("de", "fr")},
            "data.valid_tags = de,fr: 2 for 1 corpora: give one language for each --valid",
        ),
    ],
)
def test_wrong_tags_are_refused(data: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check(Config(data=DataConfig(**data)))  # type: ignore[arg-type]


def test_a_vocabulary_tells_its_tags() -> None:
    vocabulary = train_vocabulary(["a b c >> <<"], units="word", size=30, symbols=(">>de<<", ">>zh_Hant<<", "<x>"))
    assert vocabulary.language_tags == (">>de<<", ">>zh_Hant<<")


def test_a_start_without_the_tags_is_refused(tmp_path: Path, files: Path) -> None:
    """Fine-tuning keeps the vocabulary, which must have the tags."""
    start = write_folder(tmp_path / "start", task="symbols", joint=True)
    groups = [str(files / f"train.{language}.tsv") for language in LETTERS]
    with pytest.raises(DataError, match="has no symbol >>de<<"):
        transduce.train(
            tmp_path / "run", train=groups, start_from=start, settings={"data.tags": "de,fr"}, steps=2, quiet=True
        )
