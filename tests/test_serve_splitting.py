"""Documents to sentences and back: nothing between sentences changes, tags stay, and hostile text takes no longer."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.serve.splitting import Splitter


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
    ],
)
def test_sentences_end_where_they_end(text: str, sentences: list[str]) -> None:
    assert SENTENCES.text(text).sentences == sentences


@given(TEXTS)
def test_what_is_not_changed_comes_back(text: str) -> None:
    for splitter in (SENTENCES, LINES):
        document = splitter.text(text)
        assert document.rejoin(document.sentences) == text


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
    assert document.sentences == ["Tom & I run.", "They", "fall", "a < b"]
    rejoined = document.rejoin(["<i>&", "Sie", "fallen", "c"])
    assert rejoined == (
        '<p title="a > b">&lt;i&gt;&amp;\n Sie <b>fallen</b>.</p><script>if (a<b) x. Y</script><!-- No. -->c'
    )


class Seen(HTMLParser):
    """What a browser would make of a page: its tags in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(f"<{tag} {attrs}>")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")


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


HOSTILE = [
    "." * 50_000, ". " * 25_000, '"' * 50_000, '."' * 25_000, "<" * 50_000, '<"' * 25_000, "<a " * 16_000, "<!--" * 12_000,
    "<script>" * 6_000, "&" * 50_000, "a" * 50_000, "é " * 25_000, "\n" * 50_000, " " * 50_000, "<a '>" * 10_000, "<a\"'>" * 8_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
def test_hostile_texts_take_no_longer(text: str) -> None:
    began = time.process_time()
    SENTENCES.text(text)
    SENTENCES.html(text)
    assert time.process_time() - began < 2
