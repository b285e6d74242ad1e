"""The shape of the code: arrows point one way, what the documents name exists, help is quick, nothing is unpickled."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import transduce
from transduce import checkpoint
from transduce.cli.parser import make_parser
from transduce.config import PRESETS, build, flatten
from transduce.config.old_names import OLD_NAMES

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
try:
    import modules
finally:
    sys.path.pop(0)
PACKAGE = ROOT / "transduce"
MODULES = sorted(PACKAGE.rglob("*.py"))
# docs/log.md is not among them: it tells what was, with the names of its day.
DOCUMENTS = ["docs/paper.md", "docs/architecture.md", "docs/explorer.md", "docs/serving.md"]
DOCUMENTS += ["CONTRIBUTING.md", "CHANGELOG.md", "docs/reference/file-formats.md"]
DOCUMENTS += sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/decisions/*.md"))

# From the bottom up. A part may import those of lower rows, never one of its own row: they are independent.
LEVELS = [
    ["errors", "cores", "placeholders", "languages"],
    ["config", "device", "files", "memory", "threads", "scripts", "environment", "pronunciations"],
    ["text", "model", "search", "metrics", "tensor_file", "documents", "audio", "ngrams"],
    ["continuous"],
    ["data", "checkpoint"],
    ["translator", "run_lock", "run_log"],
    ["training", "batch_translation"],
    ["explore", "exchange", "derived", "reranking", "tracking"],
    ["demo", "paper", "server", "diagnosis", "comparison"],
    ["api"],
    ["cli"],
    ["__main__"],
]
LEVEL = {part: number for number, parts in enumerate(LEVELS) for part in parts}
# Narrower than the rows: what the rules of the house say of each island.
SEES_ONLY = {
    "text": {"errors", "files"},
    "metrics": {"errors", "cores", "scripts"},
    "search": {"errors"},
    "model": {"errors", "config"},
    "tensor_file": set(),
    "audio": {"errors"},
    "documents": set(),
    "ngrams": {"errors", "files"},
    "placeholders": set(),
    "languages": set(),
    "continuous": {"errors", "config", "device", "threads", "model", "search"},
    "checkpoint": {"errors", "files", "tensor_file"},
    "run_lock": {"errors", "files", "checkpoint"},
    "run_log": {"errors", "files"},
    "explore": {"errors", "files", "text", "model", "search", "checkpoint", "translator", "run_lock", "run_log"},
    "tracking": {"errors", "config", "files", "data", "checkpoint", "translator", "run_lock", "run_log"},
    "batch_translation": {"errors", "cores", "config", "files", "data", "checkpoint", "translator"},
    "reranking": {"errors", "files", "search", "checkpoint", "metrics", "translator"},
    "comparison": {"errors", "languages", "files", "config", "metrics", "data", "translator", "explore"},
    "server": {"errors", "cores", "languages", "checkpoint", "memory", "documents", "audio", "translator", "explore"},
    "exchange": {
        *("errors", "files", "config", "device", "text", "model", "search", "tensor_file", "data", "checkpoint"),
        "translator",
    },
}
FACE = "__init__"  # the package itself: lazily over everything, and anyone may ask it for the version


# --- arrows ----------------------------------------------------------------------------------------------------


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(module: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything a module imports, wherever in the file; relative names made absolute."""
    package = ["transduce", *module.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def imported_parts(module: Path) -> Iterator[tuple[int, str]]:
    """(line, part of the package) of its imports from the package."""
    for line, name in imports(module):
        owner, _, rest = name.partition(".")
        if owner == "transduce" and rest != "__version__":
            part = rest.partition(".")[0]
            yield line, part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else FACE


def wrong_arrows(module: Path) -> Iterator[str]:
    here = part_of(module)
    for line, part in imported_parts(module):
        where = f"{module.relative_to(ROOT)}:{line}: {here} imports {part}"
        if part == here:
            continue
        if part == FACE or LEVEL[part] > LEVEL[here]:
            yield f"{where}, which is above it"
        elif LEVEL[part] == LEVEL[here]:
            yield f"{where}, which is beside it: modules of one row are independent"
        elif part not in SEES_ONLY.get(here, {part}):
            yield f"{where}, and may see only {', '.join(sorted(SEES_ONLY[here]))}"


def test_every_part_has_a_level() -> None:
    """A new module is given its place in LEVELS before anything else."""
    assert {part_of(module) for module in MODULES} - {FACE} == set(LEVEL)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down(module: Path) -> None:
    if part_of(module) != FACE:
        assert list(wrong_arrows(module)) == []


@pytest.mark.parametrize(
    ("where", "line", "complaint"),
    [
        ("model/new.py", "def f():\n    from transduce.training import loss", "above"),
        ("search/new.py", "import transduce.model.tokens", "beside"),
        ("text.py", "from transduce.config import Config", "only errors, files"),
        ("model/new.py", "from .. import metrics", "beside"),
        ("data/new.py", "if TYPE_CHECKING:\n    from transduce import cli", "above"),
        ("training/new.py", "from transduce import load", "above"),
        ("data/new.py", "from transduce.model import Tokens\nfrom transduce import __version__", ""),
    ],
)
def test_a_wrong_arrow_is_found(
    where: str, line: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("model", "training", "data", "search"):
        (tmp_path / part).mkdir()
    for part in ("text", "metrics", "config", "cli"):
        (tmp_path / f"{part}.py").touch()
    (tmp_path / where).write_text(line)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    found = list(wrong_arrows(tmp_path / where))
    assert len(found) == bool(complaint)
    assert complaint in "".join(found)


def test_the_face_imports_nothing_of_the_package_until_it_is_called() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    eager = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [ast.unparse(node) for node in eager if "transduce" in ast.unparse(node)]


# --- what documents name ---------------------------------------------------------------------------------------


def spans(document: str) -> list[str]:
    """Everything between backticks, fenced blocks aside."""
    text = (ROOT / document).read_text(encoding="utf-8")
    text = re.sub(rf"{modules.BEGIN}.*{modules.END}", "", text, flags=re.S)  # generated from what is there
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.findall(r"`([^`\n]+)`", text)


def missing(span: str) -> str:
    """Why a reference leads nowhere, or nothing; what is no reference leads nowhere wrong."""
    path, _, name = span.partition("::")
    if re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?", path) or name:
        return missing_path(path, name)
    if re.fullmatch(r"(model|data|train|search)\.\w+", span):
        return "" if span in SETTINGS else "no such setting"
    if re.fullmatch(r"[a-z_]+(\.\w+)+\(?\)?", span) and span.partition(".")[0] in LEVEL and span != "config.toml":
        return "" if is_dotted(span.rstrip("()")) else "no such thing in the package"
    if re.fullmatch(r"[A-Za-z_]\w*", span):
        return "" if re.search(rf"\b{span}\b", SOURCE) else "no such word in the code"
    if span.startswith("transduce "):
        return "" if span.split()[1] in VERBS else "no such verb"
    if span.startswith("make "):
        return "" if re.search(rf"^{span.split()[1]}:", MAKEFILE, re.M) else "no such target"
    return ""


SOURCE = "\n".join(module.read_text(encoding="utf-8") for module in MODULES)
SETTINGS = {*flatten(build(PRESETS["base"])), *OLD_NAMES}  # the changelog names what was removed
VERBS = {*re.findall(r"^    (\w+)\b", make_parser().format_help(), re.M), "--help"}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def missing_path(path: str, name: str) -> str:
    if not list(ROOT.glob(path)):
        return "no such file"
    return "" if not name or defines(ROOT / path, name.split(".")) else f"defines no {name}"


def is_dotted(name: str) -> bool:
    """Whether `module.submodule.Class.method` is one, without the leading package name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        stem = PACKAGE.joinpath(*parts[:cut])
        for module in (stem.with_suffix(".py"), stem / "__init__.py"):
            if module.is_file():
                return defines(module, parts[cut:])
    return False


def defines(module: Path, names: list[str]) -> bool:
    """Whether a file defines a function, class or value, or a member of one."""
    scope: list[ast.stmt] = ast.parse(module.read_text(encoding="utf-8")).body
    for name in names:
        found = [node for node in scope if name in names_of(node)]
        if not found:
            return False
        scope = getattr(found[0], "body", [])
    return True


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_the_documents_name_exists(document: str) -> None:
    named = spans(document)
    assert named
    assert {span: why for span in named if (why := missing(span))} == {}


@pytest.mark.parametrize(
    ("span", "wrong"),
    [
        ("tests/test_model.py::test_parameter_counts", False),
        ("tests/test_model.py::test_that_never_was", True),
        ("transduce/model/attention.py::MultiHeadAttention.to_memory", False),
        ("transduce/model/attention.py::MultiHeadAttention.to_nothing", True),
        ("transduce/training/schedule.py::SCHEDULES", False),
        ("transduce/model/gone.py", True),
        ("checkpoint.average", False),
        ("checkpoint.median", True),
        ("model.d_model", False),
        ("model.d_modle", True),
        ("transduce translate", False),
        ("transduce transalte", True),
        ("DecoderState", False),
        ("DecoderStatue", True),
        ("make test", False),
        ("make toast", True),
    ],
)
def test_a_reference_that_leads_nowhere_is_found(span: str, wrong: bool) -> None:
    assert bool(missing(span)) == wrong


def test_every_difference_from_the_paper_is_in_the_list() -> None:
    """A module that says `Differs from the paper` is named in that section of the document."""
    text = (ROOT / "docs/paper.md").read_text(encoding="utf-8")
    listed = text.partition("## Differs from the paper")[2].partition("\n## ")[0]
    loud = [m for m in MODULES if "Differs from the paper" in m.read_text(encoding="utf-8")]
    assert loud
    assert [str(m.relative_to(ROOT)) for m in loud if str(m.relative_to(ROOT)) not in listed] == []


def test_the_diagram_shows_every_part() -> None:
    """The drawing of `docs/architecture.md` has the rows of LEVELS, top down."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    drawing = re.search(r"```\n(.*?)```", text, re.S)
    assert drawing
    rows = [line.partition("  :")[0].split() for line in drawing[1].splitlines() if line.strip()]
    expected = [parts for parts in reversed(LEVELS) if parts != ["__main__"]]
    assert rows == expected


def test_the_list_of_files_is_generated() -> None:
    text = modules.PAGE.read_text(encoding="utf-8")
    assert text.count(modules.BEGIN) == text.count(modules.END) == 1
    assert modules.replaced(text) == text, "the list of files is out of date; run: python docs/modules.py"


def test_every_file_says_what_it_is() -> None:
    assert list(modules.unnamed()) == [], "begin each of these files with a sentence that says what it is"


def test_every_file_of_the_page_is_listed() -> None:
    page = [path for path in (PACKAGE / "explore/page").iterdir() if path.suffix in modules.SCRIPTS]
    listed = modules.file_list()
    assert len(page) > 2
    assert [path for path in page if f"`{modules.where(path)}`" not in listed] == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.py", '"""What it is: one\nthing. And more.\n\nDetails."""', "What it is: one thing"),
        ("a.py", '"""`transduce x` does y."""', "`transduce x` does y"),
        ("a.py", "import os", ""),
        ("a.js", "/* Draws a | b. */\nimport x", "Draws a \\| b"),
        ("a.html", "<!doctype html>\n<!-- The page. -->", "The page"),
    ],
)
def test_the_first_sentence_of_a_file(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert modules.first_sentence(tmp_path / name) == sentence


def test_the_run_folder_is_drawn_as_it_is() -> None:
    """The names of the drawing are those that the code has, and none is forgotten."""
    text = (ROOT / "docs/reference/file-formats.md").read_text(encoding="utf-8")
    drawing = text.partition("## The run folder")[2].split("```")[1]
    drawn = set(re.findall(r"[\w-]+\.\w+|[\w-]+(?=/)", drawing)) - {"RUN"}
    folder = checkpoint.RunFolder(Path("RUN"))
    named = [folder.config, folder.metrics, folder.data, folder.card, folder.checkpoints, folder.ct2, folder.ngram]
    named += [folder.vocabulary(side) for side in ("joint", "source", "target")]
    named += [folder.weights(which) for which in ("best", "last", "averaged")]
    written = {"curves.png", "tensorboard", "weights.safetensors", "optimizer.safetensors", "progress.json"}
    written |= {"words.arpa", "lexicon.txt", "weights.json"}
    assert {name for name in written if f'"{name}"' not in SOURCE} == set()
    assert drawn == {path.name for path in named} | written | {checkpoint.checkpoint_path(folder, 12_000).name}


# --- quick help ------------------------------------------------------------------------------------------------

HEAVY = {"torch", "numpy", "sentencepiece", "sacrebleu", "matplotlib", "rich", "safetensors", "fastapi", "granian"}


def loaded_by(*arguments: str) -> set[str]:
    """The top-level modules that a Python process with these arguments imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    names = re.findall(r"^import time:.*\|\s*(\S+)$", done.stderr, re.M)
    assert "transduce" in names
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "import transduce"],
        ["-m", "transduce", "--help"],
        ["-m", "transduce", "train", "--help"],
        ["-m", "transduce", "serve", "--help"],
        ["-m", "transduce", "--version"],
        ["-m", "transduce", "settings", "model.d_model"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported_for_help(arguments: list[str]) -> None:
    assert loaded_by(*arguments) & HEAVY == set()


def cpu_seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def test_help_answers_at_once() -> None:
    """Under half a second of computing, the best of three: how long a busy machine makes it wait is not its doing."""
    command = [sys.executable, "-m", "transduce", "--help"]
    times = []
    for _ in range(3):
        before = cpu_seconds_of_children()
        subprocess.run(command, capture_output=True, check=True, timeout=60)
        times.append(cpu_seconds_of_children() - before)
    assert min(times) < 0.5


# --- habits ----------------------------------------------------------------------------------------------------


def test_no_drawers() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
    assert [m for m in MODULES if drawers & set(m.relative_to(PACKAGE).with_suffix("").parts)] == []


def test_every_folder_holds_at_least_two_files() -> None:
    """`__init__.py` aside: a folder of one file is a file."""
    folders = [folder for folder in PACKAGE.rglob("*") if folder.is_dir() and folder.name != "__pycache__"]
    assert folders
    assert [f for f in folders if len([p for p in f.iterdir() if p.is_file() and p.name != "__init__.py"]) < 2] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_pickled(module: Path) -> None:
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    assert {name.partition(".")[0] for _, name in imports(module)} & forbidden == set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}, f"line {node.lineno}"
        assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle")


def test_no_function_of_the_model_is_defined_in_another() -> None:
    """The checks of shapes (tests/conftest.py) would be compiled again in every call, which doubled the time of the tests."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (PACKAGE / "model").glob("*.py")]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inner = [node for outer in functions for node in ast.walk(outer) if node is not outer]
    assert [node.name for node in inner if isinstance(node, ast.FunctionDef)] == []


def test_all_is_what_is_exported() -> None:
    """The package, the names it shows to type checkers and `transduce.api` have the same public names."""
    from transduce import api

    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    shown = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "transduce.api"]
    assert [alias.name for node in shown for alias in node.names] == api.__all__
    assert transduce.__all__ == sorted([*api.__all__, "__version__"])
    assert [name for name in api.__all__ if getattr(transduce, name) is not getattr(api, name)] == []
    assert set(transduce.__all__) < set(dir(transduce))
    with pytest.raises(AttributeError, match="module 'transduce' has no attribute 'tranlsate'"):
        transduce.tranlsate  # type: ignore[attr-defined]  # noqa: B018


def test_every_public_function_has_an_example() -> None:
    from transduce import api

    functions = [getattr(api, name) for name in api.__all__ if not isinstance(getattr(api, name), type)]
    assert len(functions) >= 15
    assert [function.__name__ for function in functions if "Example:\n" not in function.__doc__] == []


def test_exported_functions_stay_functions() -> None:
    """A submodule of the same name would take a function's place as soon as anything imports it."""
    assert set(transduce.__all__) & set(LEVEL) == set()
