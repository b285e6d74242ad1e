"""A look at the first lines of an input: whether they are text, and text that the model can have learned to read.

Says what looks wrong before the lines are translated, on stderr. Changes no line, and knows nothing of outputs.
"""

from collections.abc import Iterable, Iterator

from transduce.scripts import script_of_texts
from transduce.translator import Translator
from transduce.translator.engines import say_to_stderr

LINES = 100  # that are looked at
CHARACTERS = 1_000  # of each of them
LETTERS = 5  # fewer say nothing about the language
MOST_UNKNOWN = 0.5  # share of the characters
MANY_UNDECODABLE = 0.2  # share of the lines


def looked_at(lines: Iterable[str], name: str, translator: Translator) -> Iterator[str]:
    """The same lines; a warning is printed once the first ones have been read, if they look wrong."""
    seen: list[str] = []
    for line in (rest := iter(lines)):
        seen.append(line[:CHARACTERS])
        if len(seen) == LINES:
            break
        yield line
    if warning := warning_about(seen, translator):
        say_to_stderr(f"{'the input' if name == '-' else name}: {warning}")
    if len(seen) == LINES:
        yield line
        yield from rest


def warning_about(lines: list[str], translator: Translator) -> str:
    """What looks wrong with the first lines of an input; empty if nothing does."""
    first = "the first line" if len(lines) == 1 else f"the first {len(lines)} lines"
    if any("\0" in line for line in lines):
        return f"NUL bytes in {first}: this is not UTF-8 text, but perhaps UTF-16 or a binary file"
    undecodable = sum("\ufffd" in line for line in lines)
    if undecodable > MANY_UNDECODABLE * len(lines) and len(lines) == LINES:  # of a short input, the end is soon enough
        return f"{undecodable} of {first} are not valid UTF-8: convert the text first, for example with iconv"
    share = translator.vocabularies.source.unknown_share([line.text for line in translator.forms.learned(lines)])
    if share <= MOST_UNKNOWN or sum(map(str.isalpha, "".join(lines))) < LETTERS:
        return ""
    script = f" ({script} script)" if (script := script_of_texts(lines)) else ""
    return (
        f"{share:.0%} of the characters in {first}{script} are unknown to this model: was it trained on this language?"
    )
