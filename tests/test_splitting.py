"""Documents to sentences and back: nothing between sentences changes, tags stay, and hostile text takes no longer."""

import html
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from folders import write_folder
from hypothesis import assume, given
from hypothesis import strategies as st

import transduce
from transduce.cli import main
from transduce.config import Config, DataConfig
from transduce.documents import Splitter
from transduce.errors import SettingError
from transduce.translator import Output, Translation
from transduce.translator.forms import LineForms
from transduce.translator.split import stream_split


def is_short(sentence: str) -> bool:
    return len(sentence.encode()) <= 1_000


SENTENCES = Splitter(sentences=True, fits=is_short)
LINES = Splitter(sentences=False, fits=is_short)
TEXTS = st.text(st.characters(codec="utf-8")) | st.text("aB .!?\n\"'<>/&;-é。")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Smith met Dr. J. Jones on 3. Mai.", ["Mr. Smith met Dr. J. Jones on 3. Mai."]),
        ("z.B. so. Oder e.g. so.", ["z.B. so.", "Oder e.g. so."]),
        ('"Stop!" he said. "Why?" She left.', ['"Stop!" he said.', '"Why?"', "She left."]),
        ("a line\nanother line\r\n\r\na third", ["a line", "another line", "a third"]),
        ("Well... Yes.", ["Well...", "Yes."]),
        ("你好。世界！", ["你好。", "世界！"]),
        ("--- \n ***", []),
        ("It was 1984. Then", ["It was 1984.", "Then"]),
        ("- One. Two.\n  • Three\n2) Four\n> # Five", ["One.", "Two.", "Three", "Four", "Five"]),
        ("It is - so to say - good.\n3. Mai\n-5 degrees", ["It is - so to say - good.", "3. Mai", "-5 degrees"]),
    ],
)
def test_sentences_end_where_they_end(text: str, sentences: list[str]) -> None:
    assert SENTENCES.text(text).sentences == sentences


@given(TEXTS)
def test_what_is_not_changed_comes_back(text: str) -> None:
    for splitter in (SENTENCES, LINES):
        document = splitter.text(text)
        assert document.rejoin(document.sentences) == text


@pytest.mark.parametrize(
    ("text", "translations", "whole"),
    [
        ("你好。世界！", ["Hello.", "World!"], "Hello. World!"),
        ("你好。世界！", ["こんにちは。", "世界！"], "こんにちは。世界！"),
        ("你好。 世界！", ["Hello.", "World!"], "Hello. World!"),
        ("Hello. World!", ["你好。", "世界！"], "你好。 世界！"),
        ("你好。世界！", ["", ""], ""),
    ],
)
def test_sentences_of_a_script_without_spaces_are_joined_with_spaces(
    text: str, translations: list[str], whole: str
) -> None:
    assert SENTENCES.text(text).rejoin(translations) == whole


def test_symbols_are_split_at_lines_only() -> None:
    assert LINES.text("A. B! C\n- -").sentences == ["A. B! C", "- -"]


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.integers(5, 40))
def test_no_sentence_is_too_long_and_none_is_lost(text: str, longest: int) -> None:
    document = Splitter(sentences=True, fits=lambda sentence: len(sentence.encode()) <= longest).text(text)
    assert all(len(sentence.encode()) <= longest for sentence in document.sentences)
    assert document.rejoin(document.sentences) == text


def test_long_sentences_are_divided_near_their_middle() -> None:
    splitter = Splitter(sentences=True, fits=lambda sentence: len(sentence) <= 20)
    assert splitter.text("one two, three four five six").sentences == ["one two, three", "four five six"]
    assert splitter.text("a" * 30 + ".").sentences == ["a" * 15, "a" * 15 + "."]


# --- HTML ------------------------------------------------------------------------------------------------------


def test_html_keeps_tags_and_escapes_text() -> None:
    text = '<p title="a > b">Tom &amp; I run.\n They <b>fall</b>.</p><script>if (a<b) x. Y</script><!-- No. -->a < b'
    document = SENTENCES.html(text)
    assert document.sentences == ["Tom & I run.", "They fall.", "fall", "a < b"]
    rejoined = document.rejoin(["<i>&", "Sie fallen.", "fallen", "c"])
    assert rejoined == (
        '<p title="a > b">&lt;i&gt;&amp;\n Sie <b>fallen</b>.</p><script>if (a<b) x. Y</script><!-- No. -->c'
    )


class Seen(HTMLParser):
    """What a browser would make of a page: its tags in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(f"<{tag} {attrs}>")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def is_nested(self) -> bool:
        """Whether each tag is ended before those around it."""
        opened: list[str] = []
        for tag in self.tags:
            if not tag.startswith("</"):
                opened.append(tag[1:].split()[0])
            elif not opened or opened.pop() != tag[2:-1]:
                return False
        return not opened


@given(
    st.lists(
        st.sampled_from(["<p>", "</p>", '<a href="x>y">', "<br/>", "text. ", "&lt;", " < ", "<3", "&amp;lt;", "\n"])
    )
)
def test_translations_bring_no_markup(parts: list[str]) -> None:
    """Whatever the model says, the tags are those that came in."""
    text = "".join(parts)
    document = SENTENCES.html(text)
    assert Seen(document.rejoin(["<script>&lt;" for _ in document.sentences])).tags == Seen(text).tags


# --- inline tags -----------------------------------------------------------------------------------------------

GERMAN = {
    "two dogs run.": "Zwei Hunde rennen.",
    "two dogs": "Zwei Hunde.",
    "dogs": "Hunde.",
    "run": "Ein Lauf.",
    "today two dogs run.": "Es rennen heute zwei Hunde.",
    "today": "Heute!",
    "a man sees two dogs & sleeps.": "Ein Mann sieht zwei Hunde & schläft.",
    "a man": "Der Mann",
    "sees two dogs": "sieht zwei Hunde",
    "water is h2o.": "Wasser ist H2O.",
    "is in": "in",
    "it is in time.": "Kind und in Zeit.",
    "dogs like dogs.": "Hunde mögen Hunde.",
    "猫在睡觉。": "The cat sleeps.",
    "cats eat fish.": "猫吃鱼。",
    "fish": "鱼。",
}


def german(text: str) -> str:
    return GERMAN.get(text.lower(), text)


def backwards(text: str) -> str:
    """A language with other words, in the other order."""
    return " ".join(word.swapcase() for word in reversed(text.split()))


def translated(text: str, translate: Callable[[str], str] = german) -> str:
    document = SENTENCES.html(text)
    return document.rejoin(map(translate, document.sentences))


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("<b>Two dogs</b> run.", "<b>Zwei Hunde</b> rennen."),
        ("<b>Today</b> <i>two dogs</i> run.", "Es rennen <b>heute</b> <i>zwei Hunde</i>."),
        ("<b>Two <i>dogs</i></b> run.", "<b>Zwei <i>Hunde</i></b> rennen."),
        ("<b><i>Two dogs</i></b> run.", "<b><i>Zwei Hunde</i></b> rennen."),
        ("<b> Two dogs </b>run.", " <b>Zwei Hunde</b> rennen."),
        ("Two dogs <u>run</u>.", "Zwei Hunde <u>rennen</u>."),  # not found: at its share
        ("Two <B CLASS=x>dogs</B> run.", "Zwei <B CLASS=x>Hunde</B> rennen."),
        ("Dogs like <b>dogs</b>.", "Hunde mögen <b>Hunde</b>."),
        ("It <b>is in</b> time.", "Kind und <b>in</b> Zeit."),  # not the one within a word
        ("Water is H<sub>2</sub>O.", "Wasser ist H<sub>2</sub>O."),  # but here it was
        ("Cats eat <b>fish</b>.", "猫吃<b>鱼</b>。"),
        ("<p><b>猫</b>在睡觉。</p>", "<p><b>The</b> cat sleeps.</p>"),
        ("Two dogs run<b>.</b>", "Zwei Hunde rennen<b>.</b>"),
    ],
)
def test_tags_go_where_their_words_are(text: str, translation: str) -> None:
    assert translated(text) == translation


def test_what_is_within_tags_is_translated_by_itself_too() -> None:
    text = "<p>A man sees <b>two <i>dogs</i></b> <u></u>&amp; <a>sleeps</a>.</p>"
    assert SENTENCES.html(text).sentences == ["A man sees two dogs & sleeps.", "two dogs", "dogs", "sleeps"]


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("<b>Two dogs run.</b>", "<b>Zwei Hunde rennen.</b>"),
        ("<b><i> Two dogs run. </i></b>", "<b><i> Zwei Hunde rennen. </i></b>"),
        ("<b>Two dogs run. Two dogs run.</b>", "<b>Zwei Hunde rennen. Zwei Hunde rennen.</b>"),
        ("<i>Two dogs run.</i> <b>Two dogs</b> run.", "<i>Zwei Hunde rennen.</i> <b>Zwei Hunde</b> rennen."),
        ("<i>Two dogs run. <b>Two dogs</b> run.</i>", "<i>Zwei Hunde rennen. <b>Zwei Hunde</b> rennen.</i>"),
        ("Two dogs run.<b> Two dogs</b> run.", "Zwei Hunde rennen. <b>Zwei Hunde</b> rennen."),
        ("<a name=x></a>Two dogs run.<b></b> <i> </i>", "<a name=x></a>Zwei Hunde rennen.<b></b> <i> </i>"),
        ("<b>-</b>\n <b>Two dogs</b> run.", "<b>-</b>\n <b>Zwei Hunde</b> rennen."),
    ],
)
def test_tags_around_sentences_stay_around_them(text: str, translation: str) -> None:
    assert translated(text) == translation


def test_tags_without_words_stay_between_words() -> None:
    assert translated("Two <a id='x'></a>dogs run.") == "Zwei <a id='x'></a>Hunde rennen."
    assert translated("Two<b><i></i><u> </u></b>dogs run.") == "Zwei <b><i></i><u></u></b>Hunde rennen."
    assert translated("<b><i></i>Two dogs</b> run.") == "<b><i></i>Zwei Hunde</b> rennen."


def test_attributes_and_entities_stay() -> None:
    text = """A man <a href="?a=1&amp;b=2" title='a > "b"'>sees two dogs</a> &amp; sleeps."""
    assert translated(text) == (
        """Ein Mann <a href="?a=1&amp;b=2" title='a > "b"'>sieht zwei Hunde</a> &amp; schläft."""
    )
    assert translated("1 &lt; <b>2 &amp;amp; 3</b> &gt; 0") == "1 &lt; <b>2 &amp;amp; 3</b> &gt; 0"


@pytest.mark.parametrize("tag", ["<br>", "<p>", "</div>", "<code>", "<!-- -->", "<img src=x>", "<custom-b>"])
def test_other_tags_end_a_sentence(tag: str) -> None:
    assert SENTENCES.html(f"Two{tag}dogs").sentences == ["Two", "dogs"]


@pytest.mark.parametrize(
    "text",
    [
        "Two <b>dogs run.",
        "Two dogs</b> run.",
        "<b>Two <i>dogs</b> run</i>.",
        "Two <b>dogs <i>run</b>.",
        "<b>Two </i>dogs</b> run.",
        "Two <b/>dogs run.",
        "Two <b>dogs<br>run</b> fast.",
        "".join(f"<b>w{n} " for n in range(9)) + "</b>" * 9 + "end",
    ],
)
def test_tags_that_do_not_fit_together_cut_the_sentence(text: str) -> None:
    pieces = [piece.strip() for piece in html.unescape(Cut(text).text).split("|")]
    assert SENTENCES.html(text).sentences == [piece for piece in pieces if any(map(str.isalnum, piece))]
    assert translated(text, str) == text


class Cut(Seen):
    """The text with a line for each tag."""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.text += "|"

    def handle_endtag(self, tag: str) -> None:
        self.text += "|"


def test_a_tag_that_does_not_fit_spoils_its_own_sentence_only() -> None:
    assert SENTENCES.html("Two <b>dogs run. Ten</b> cats.").sentences == ["Two", "dogs run.", "Ten", "cats."]
    assert SENTENCES.html("Two <b>dogs run. Two <i>dogs</i> run.").sentences == [
        "Two",
        "dogs run.",
        "Two dogs run.",
        "dogs",
    ]


@pytest.mark.parametrize(
    ("translation", "tagged"),
    [
        ("x dogs y z w v u t", "x <i>dogs</i> <b>y z</b> w v u t"),
        ("x y dogs z w", "<b>x y</b> <i>dogs</i> z w"),
        ("x y z w v dogs", "<b>x y z w</b> v <i>dogs</i>"),
    ],
)
def test_a_guess_stays_clear_of_what_was_found(translation: str, tagged: str) -> None:
    text = "<b>one two three</b> <i>dogs</i> end"
    assert translated(text, lambda line: translation if line.endswith("end") else line) == tagged


def test_more_tags_than_words() -> None:
    text = "<b>one</b> <i>two</i> <u>three</u>"
    assert translated(text, lambda line: "eins" if " " in line else line) == "<i></i><b>eins</b><u></u>"
    assert Seen(translated(text, lambda line: "")).tags == Seen(text).tags


WORDS = st.sampled_from(["two", "Dogs", "run", "in", "a", "a", "&amp;", "&lt;b&gt;", "x<3", "é", "猫", "-", "ran,"])
MARKS = st.sampled_from([". ", "!\n", "? ", "。"])
BLANKS = st.sampled_from([" ", " ", " ", "", "\n "])
NAMES = st.sampled_from(["b", "i", "A", "span"])
ATTRIBUTES = st.sampled_from(["", ' title="a > b"', " id='\"'", " x=1"])


def element(name: str, attributes: str, inside: str) -> str:
    return f"<{name}{attributes}>{inside}</{name}>"


def well_formed(texts: "st.SearchStrategy[str]") -> "st.SearchStrategy[str]":
    pages = st.lists(texts, max_size=4).map("".join)
    for _ in range(3):
        pages = st.lists(texts | st.builds(element, NAMES, ATTRIBUTES, pages), max_size=4).map("".join)
    return pages


@given(well_formed(WORDS | BLANKS | MARKS))
def test_every_tag_comes_back_well_nested(text: str) -> None:
    for translate in (backwards, german, lambda line: "", lambda line: "a <b>"):
        seen = Seen(translated(text, translate))
        assert seen.is_nested
        assert sorted(seen.tags) == sorted(Seen(text).tags)


@given(well_formed(WORDS | BLANKS.filter(lambda blank: "\n" not in blank)))
def test_tags_change_nothing_of_a_translation(text: str) -> None:
    assume(not re.search(r"\S(?:</\w+>)+<\w", text))  # entries of a menu, which are apart
    assume(
        not re.search(r"<\w+>\s*(?:[-–—*+•‣◦▪·>#]|\d+\))", text)
    )  # a tag around the marker of an item divides the item
    plain = SENTENCES.text(Seen(text).text)
    assert Seen(translated(text, backwards)).text == plain.rejoin(map(backwards, plain.sentences))


@given(
    st.lists(
        st.sampled_from(["<b>", "</b>", "<i x='>'>", "</i>", "<br>", "<p>", "two ", "dogs", ". ", " ", "&amp;", "\n"])
    )
)
def test_nothing_is_lost_of_any_html(parts: list[str]) -> None:
    text = "".join(parts)
    seen = Seen(translated(text, str.upper))
    assert sorted(seen.tags) == sorted(Seen(text).tags)
    assert seen.text == Seen(text).text.upper()


@given(
    st.lists(st.tuples(st.sampled_from(["dogs", "in", "a", "A", "run"]), st.sampled_from(["", "b", "i"])), min_size=1)
)
def test_a_translation_that_changes_nothing_has_its_tags_where_they_were(words: list[tuple[str, str]]) -> None:
    text = " ".join(f"<{name}>{word}</{name}>" if name else word for word, name in words)
    assert translated(text, str) == text


@pytest.mark.parametrize(
    "text",
    [
        "<b>a</b> " * 1_000,
        "<b>a " * 1_000 + "</b>" * 1_000,
        "<b>" * 1_000 + "a b" + "</b>" * 1_000 + " c",
        "a <b></b>" * 1_000 + "c",
        " ".join(f"<b>w{n}</b>" for n in range(1_000)),
        "".join(f"<b>w{n} <i>x</i></b> " for n in range(1_000)),
    ],
    ids=lambda text: text[:12],
)
def test_a_thousand_tags_in_a_sentence_take_no_longer(text: str) -> None:
    began = time.process_time()
    document = Splitter(sentences=True, fits=lambda sentence: True).html(text)
    for translate in (str, backwards, str.upper, lambda line: "a " * 1_000):
        seen = Seen(document.rejoin(map(translate, document.sentences)))
        assert seen.is_nested
        assert sorted(seen.tags) == sorted(Seen(text).tags)
    assert time.process_time() - began < 2


# --- hostile texts ---------------------------------------------------------------------------------------------

HOSTILE = [
    "." * 50_000, ". " * 25_000, '"' * 50_000, '."' * 25_000, "<" * 50_000, '<"' * 25_000, "<a " * 16_000, "<!--" * 12_000,
    "<script>" * 6_000, "&" * 50_000, "a" * 50_000, "é " * 25_000, "\n" * 50_000, " " * 50_000, "<a '>" * 10_000, "<a\"'>" * 8_000,
    "<b>" * 16_000, "</b>" * 12_000, "<b></b>" * 7_000, "<b>a</b>" * 6_000, "<b>a " * 6_000 + "</b>" * 5_000, "<b>a.</i> " * 5_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
def test_hostile_texts_take_no_longer(text: str) -> None:
    began = time.process_time()
    SENTENCES.text(text)
    document = SENTENCES.html(text)
    document.rejoin(document.sentences)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a>one</a><a>two</a>", ["one", "two"]),
        ("<b><a>one</a></b><b><a>two</a></b>", ["one", "two"]),
        ("<a>one</a> <a>two</a>", ["one two", "one", "two"]),
        ("<b>x</b><sub>two</sub>", ["xtwo", "x", "two"]),
        ("one<b></b><b>two</b>", ["onetwo", "two"]),
    ],
)
def test_entries_of_a_menu_are_apart(text: str, expected: list[str]) -> None:
    assert SENTENCES.html(text).sentences == expected


# --- translate --split -------------------------------------------------------------------------------------------


class Upper:
    """Stands in for a translator: it shouts, and counts how often it was asked to go on without waiting."""

    def __init__(self, task: str = "translation") -> None:
        self.config = Config(data=DataConfig(task=task, max_length=50))  # type: ignore[arg-type]
        self.longest_source, self.blocks = 100, 0
        self.forms = LineForms(self.config.data, (">>de<<",))

    def stream(
        self, lines: Iterable[str], request: object, paused: Callable[[], bool] | None = None
    ) -> Iterator[Translation]:
        for line in lines:
            self.blocks += bool(paused and paused())
            yield Translation(line, [Output(line.upper(), [], 0.0, 0.0, [])] if line else [])


@given(st.lists(TEXTS.map(lambda text: text.replace("\n", " "))))
def test_a_line_of_sentences_is_a_line(lines: list[str]) -> None:
    lines = [line for line in lines if line.isascii()]
    found = list(stream_split(Upper(), lines, None))  # type: ignore[arg-type]
    assert [line.text for line in found] == [line.upper() for line in lines]
    assert all(sentence.source in line for line, one in zip(lines, found, strict=True) for sentence in one.sentences)


def test_a_sender_that_waits_gets_its_line() -> None:
    """A pause counts only after the last sentence of a line."""
    shout = Upper()
    found = stream_split(shout, ["One. Two. Three.", "---", "", "Four."], None, lambda: True)  # type: ignore[arg-type]
    assert [(line.text, len(line.sentences)) for line in found] == [
        ("ONE. TWO. THREE.", 3), ("---", 0), ("", 0), ("FOUR.", 1)
    ]  # fmt: skip
    assert shout.blocks == 4


def test_a_language_tag_is_of_all_sentences() -> None:
    [found] = stream_split(Upper(), [">>de<< One. Two."], None)  # type: ignore[arg-type]
    assert [one.source for one in found.sentences] == [">>de<< One.", ">>de<< Two."]


def test_symbols_are_not_split() -> None:
    with pytest.raises(SettingError, match="each line of this model is one sequence of symbols"):
        list(stream_split(Upper("symbols"), ["a"], None))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("split") / "run", task="translation")


TEXT = "  The cat sat. The dog ran!  Why?\n\n--- \nNobody knew\n"


def test_split_on_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every sentence is translated as it would be alone, and what stands between them is kept."""
    (tmp_path / "text").write_text(TEXT)
    (tmp_path / "sentences").write_text("The cat sat.\nThe dog ran!\nWhy?\nNobody knew\n")
    assert main(["translate", str(model), str(tmp_path / "sentences"), "--engine", "torch"]) == 0
    one, two, three, four = capsys.readouterr().out.splitlines()
    assert main(["translate", str(model), str(tmp_path / "text"), "--engine", "torch", "--split"]) == 0
    assert capsys.readouterr().out == f"  {one} {two}  {three}\n\n--- \n{four}\n"
    assert main(["translate", str(model), str(tmp_path / "text"), "--engine", "torch", "--split", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["sentences"]) for line in found] == [3, 0, 0, 1]
    assert transduce.translate(transduce.load(model, engine="torch"), TEXT.splitlines()[:1], split=True) == [
        f"  {one} {two}  {three}"
    ]


@pytest.mark.parametrize(
    "option", ["--n-best=2", "--alignments=pharaoh", "--prefix=x", "--terms=x", "--columns=source=1"]
)
def test_options_for_single_sentences(option: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(model), "--split", option]) == 2
    name = option.partition("=")[0]
    assert capsys.readouterr().err == (
        f"transduce: {name} needs one sentence per line: leave out --split, or leave out {name}\n"
    )
