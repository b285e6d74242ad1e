"""Figures in prose: what documents say in words is what the result files have."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from prose import DOCUMENTS, WHOLE
    from prose.statements import figures, given, header, logged, prose, says, uncovered, without_parts
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_says_what_was_measured(document: str) -> None:
    text = prose(document)
    found = list(DOCUMENTS[document]())
    assert found
    assert [one.text for one in found if one.text not in text] == [], f"{document} should say this"
    assert [one.text for one in found if not one.holds] == [], f"{document} says this, and it is not true"


@pytest.mark.parametrize("document", WHOLE)
def test_no_figure_is_typed_by_hand(document: str) -> None:
    left = uncovered(prose(document), WHOLE[document]())
    assert left == [], f"{document}: state these figures in benchmarks/prose, or leave them out"


def test_every_recipe_is_checked() -> None:
    recipes = {str(path.relative_to(ROOT)) for path in ROOT.glob("configs/*.toml")}
    assert recipes == {document for document in WHOLE if document.startswith("configs/")}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loses 9 points (-1.8), of 29,000 pairs", ["9", "-1.8", "29,000"]),
        ("Table 2, section 3.2.1, Wu et al. 2021, `--beam 4`, [decision](0027-muon.md)", []),
        ("Multi30k, an H200, chrF2, int8, 1/sqrt(d_k), 8 n d²", ["8"]),
        ("3 + 3 layers of 256, 97 % or 12.5", ["3", "3", "256", "97", "12.5"]),
    ],
)
def test_figures_are_found(text: str, found: list[str]) -> None:
    assert figures(text) == found


def test_a_figure_that_is_not_stated_is_found() -> None:
    text = "It takes 12 s with 3 layers, and 13 s with 4."
    assert uncovered(text, [says("It takes 12 s"), given("with 3 layers")]) == ["13", "4"]


def test_a_figure_that_is_not_in_the_log_is_found() -> None:
    entry = "one model with language tags"
    assert logged("26.5 % Dutch", entry).holds
    assert not logged("26.6 % Dutch", entry).holds
    with pytest.raises(ValueError, match="not enough values"):
        logged("26.5 %", "no such entry")


def test_generated_parts_code_and_commands_are_no_prose() -> None:
    page = "One.\n<!-- t: python x.py -->\n| 2 |\n<!-- end of t -->\n```\n3\n```\nFour.\n"
    assert without_parts(page).split() == ["One.", "Four."]
    recipe = "# A recipe of 5 layers.\n#\n#   transduce train --beam 6 \\\n#       --steps 7\n#\n# It takes 8 s.\n\n[train]  # 9\n"
    assert " ".join(" ".join(header(recipe)).split()) == "A recipe of 5 layers. It takes 8 s."
