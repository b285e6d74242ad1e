"""Writes the README's example and five figures, and docs/results.md, from the result files: no figure is typed by hand.

python benchmarks/readme.py            rewrites both pages; the README's parts stand between marks

A row of docs/results.md belongs to the module of its section in `benchmarks/report/`.
"""

from pathlib import Path

from report import (
    budgets,
    equal_outputs,
    front_page,
    language_models,
    quality,
    safety,
    server,
    speech,
    training_speed,
    translation_speed,
)

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"
BEGIN, END = "<!-- {}: python benchmarks/readme.py -->", "<!-- end of {} -->"

INTRODUCTION = """# Results

Every figure comes from a script under `benchmarks/` and a file under `benchmarks/results/`, which records the command, the commit,
the versions and the hardware. `python benchmarks/readme.py` writes this page from these files. A ratio compares systems that ran
alternately on the same machine, over several rounds; the range in brackets is that of the rounds. *HF* is Hugging Face transformers. [The
log](log.md) also has experiments that did not help.
"""

SECTIONS = [
    quality.section,
    budgets.section,
    training_speed.section,
    translation_speed.section,
    speech.section,
    language_models.section,
    equal_outputs.section,
    safety.section,
    server.section,
]


def main() -> None:
    README.write_text(replaced(README.read_text(encoding="utf-8")), encoding="utf-8")
    RESULTS.write_text(page(), encoding="utf-8")


def replaced(text: str) -> str:
    """The README with its generated parts up to date."""
    for name, part in {"example": front_page.example(), "results": front_page.five_figures()}.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{part}\n{end}{after}"
    return text


def page() -> str:
    """Every figure there is, by subject."""
    return "\n".join([INTRODUCTION, *map(str, SECTIONS)])


if __name__ == "__main__":
    main()
