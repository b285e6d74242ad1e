"""N-gram models: probabilities that sum to 1, ARPA files, and what is refused."""

import math
from itertools import product
from pathlib import Path

import pytest

from transduce.errors import DataError, SettingError
from transduce.ngrams import BEGIN, END, UNKNOWN_WORD, NgramModel, estimate, read_arpa, write_arpa

TEXT = [line.split() for line in ("a b a c", "a b", "b a b c", "c", "a b a b a d", "d a c b", "a a a", "b c a b")]
ORDERS = [1, 2, 3, 4]


def histories(model: NgramModel, most: int) -> list[tuple[str, ...]]:
    """Every history of up to `most` words, those that never occurred included."""
    words = sorted(model.words - {END})
    return [
        tuple(start + history)
        for length in range(most + 1)
        for history in product(words, repeat=length)
        for start in ((), (BEGIN,))
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_probabilities_after_every_history_sum_to_one(order: int) -> None:
    model = estimate(TEXT, order, ["unseen"])
    for history in histories(model, min(order, 2)):
        assert math.isclose(
            sum(math.exp(model.log_probability(word, history)) for word in model.words), 1.0, rel_tol=1e-9
        )


def test_a_bigram_model_computed_by_hand() -> None:
    """Two sentences are too few to estimate discounts, so those of 0.5, 1 and 1.5 are used."""
    model = estimate([["a", "b"], ["a"]], 2)
    # Words are counted by how many different words precede them: a 1 (<s>), b 1 (a), </s> 2 (b, a).
    words = 4  # a, b, </s> and <unk>
    saved = (0.5 + 0.5 + 1.0) / 4
    single = {"a": 0.5 / 4 + saved / words, "b": 0.5 / 4 + saved / words, END: 1.0 / 4 + saved / words}
    for word, probability in single.items():
        assert math.isclose(math.exp(model.log_probability(word, ())), probability)
    # After a: b once, </s> once; each loses 0.5.
    expected = (1 - 0.5) / 2 + (0.5 + 0.5) / 2 * single["b"]
    assert math.isclose(math.exp(model.log_probability("b", ("a",))), expected)
    assert math.isclose(math.exp(model.log_probability("a", ("a",))), (0.5 + 0.5) / 2 * single["a"])


def test_frequent_words_are_more_probable_and_unknown_words_count_as_one() -> None:
    model = estimate(TEXT, 3)
    assert model.log_probability("b", ("a",)) > model.log_probability("d", ("a",))
    assert model.log_probability("zzz", ()) == model.log_probability(UNKNOWN_WORD, ())
    assert model.sentence(["a", "b"]) > model.sentence(["d", "d"])


def test_only_the_last_words_of_a_history_matter() -> None:
    model = estimate(TEXT, 3)
    assert model.log_probability("a", ("c", "c", "a", "b")) == model.log_probability("a", ("a", "b"))


@pytest.mark.parametrize("order", ORDERS)
def test_an_arpa_file_has_the_same_probabilities(order: int, tmp_path: Path) -> None:
    model = estimate(TEXT, order)
    write_arpa(model, tmp_path / "m.arpa")
    read = read_arpa(tmp_path / "m.arpa")
    assert (read.order, read.words) == (model.order, model.words)
    for history in histories(model, 2):
        for word in model.words:
            assert abs(read.log_probability(word, history) - model.log_probability(word, history)) < 1e-5
    write_arpa(read, tmp_path / "again.arpa")
    assert (tmp_path / "again.arpa").read_bytes() == (tmp_path / "m.arpa").read_bytes()


def test_arpa_files_of_others_are_read(tmp_path: Path) -> None:
    """With spaces instead of tabs, and without an unknown word."""
    lines = [
        "\\data\\",
        "ngram 1=3",
        "ngram 2=1",
        "",
        "\\1-grams:",
        "-99 <s> -0.3",
        "-0.3 a -0.2",
        "-0.5 </s>",
        "",
        "\\2-grams:",
    ]
    (tmp_path / "m.arpa").write_text("\n".join([*lines, "-0.1 <s> a", "", "\\end\\"]) + "\n")
    model = read_arpa(tmp_path / "m.arpa")
    assert math.isclose(model.log_probability("a", (BEGIN,)) / math.log(10), -0.1)
    assert math.isclose(model.log_probability(END, ("a",)) / math.log(10), -0.2 - 0.5)
    assert model.log_probability("b", ()) < -200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", "not a complete ARPA file"),
        ("\\data\\\n\\1-grams:\n-1\ta\n", "not a complete ARPA file"),
        ("\\1-grams:\n-1\ta b c\n\\end\\\n", r":2: a line must be: log10 probability, 1 words"),
        ("\\1-grams:\nx\ta\n\\end\\\n", r":2: a line must be"),
        ("\\1-grams:\n0.5\ta\n\\end\\\n", r":2: 0\.5 is not the logarithm of a probability"),
        ("\\words:\n", r":1: '\\words:' is no section"),
    ],
)
def test_files_that_are_no_arpa_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text(content)
    with pytest.raises(DataError, match=message):
        read_arpa(tmp_path / "m.arpa")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        read_arpa(tmp_path / "none")


def test_orders_and_texts_that_make_no_model_are_refused() -> None:
    with pytest.raises(SettingError, match="order = 0: an n-gram model has an order from 1 to 6"):
        estimate(TEXT, 0)
    with pytest.raises(DataError, match="every line is empty"):
        estimate([[]], 3)
