"""The model card of an export: that of the run, with instructions for the target runtime.

Paths of the machine that trained the model are removed.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from transduce.translator import ModelFolder, Translator

_PATHS = ("data.train", "data.valid", "data.cache", "train.start_from")


def write_card(opened: ModelFolder, folder: Path, use: str, front: Sequence[str] = ()) -> None:
    """Write `README.md`: `front` (metadata for the Hugging Face hub), the card of the run, and how to `use` the export."""
    name, ours = opened.folder.path.resolve().name, opened.folder.card
    card = ours.read_text(encoding="utf-8") if ours.exists() else f"# {name}\n"
    (folder / "README.md").write_text("\n".join([*front, _with_use(card, use)]), encoding="utf-8")


def show_features(translator: Translator, folder: Path, lines: Sequence[str]) -> None:
    """Replace the source in `README.md` by one of these lines with features, and say how features are written."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8")
    source = _with_features(translator, lines)
    known = " ".join(f"`{symbol[1:]}`" for symbol in translator.sources.known)
    program, end, rest = text.replace('"..."', json.dumps(source, ensure_ascii=False)).partition("\n```\n")
    about = (
        f"\nA source is a word, a space, and its features, each after a semicolon: `{source}`. Known features: {known}. Other "
        "features would be split into pieces.\n"
    )
    card.write_text(f"{program}{end}{about}{rest}", encoding="utf-8")


def _with_features(translator: Translator, lines: Sequence[str]) -> str:
    """The first line whose features are all known, or one with the first known feature."""
    sources = [line.text for line in translator.forms.learned(lines)]
    good = (text for text in sources if translator.sources.features(text) and not translator.sources.unseen(text))
    return next(good, f"word {translator.sources.known[0]}")


def _with_use(card: str, use: str) -> str:
    """The card with its section on use replaced and moved to the front, and without rows that contain paths."""
    parts = card.split("\n## ")
    others = [part for part in parts[1:] if part.split("\n", 1)[0] != "Use"]
    text = "\n## ".join([parts[0].rstrip("\n") + "\n", f"Use\n\n{use.strip()}\n", *others])
    rows = (line for line in text.split("\n") if not line.startswith(tuple(f"| {key} |" for key in _PATHS)))
    return "\n".join(rows)
