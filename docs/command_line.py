"""Writes docs/reference/command-line.md from the parser of `transduce`, so that it lists what can be typed today.

python docs/command_line.py
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from transduce.cli.parser import make_parser

PAGE = Path(__file__).parent / "reference" / "command-line.md"
INTRODUCTION = """# Command line

This page lists every command and option. It is generated from the parser by `python docs/command_line.py`.
`transduce COMMAND --help` prints the same in a terminal.

Results go to stdout; progress, warnings and errors go to stderr. The exit status is 0 on success, 2 after a mistake that you can
correct (the message says how), 3 if a check that you asked for found something (`compare --fail-if-worse`, or anything serious in `doctor`) or a shard of `batch` failed, and 128 plus the signal's
number when a signal ends the command.

**Completion.** The shell completes commands, options and their values once you have run one of these lines (for fish, run it again after an update):

| shell | line |
| --- | --- |
| bash | `echo 'eval "$(transduce completion bash)"' >> ~/.bashrc` |
| zsh | `echo 'eval "$(transduce completion zsh)"' >> ~/.zshrc` (after the line with `compinit`) |
| fish | `transduce completion fish > ~/.config/fish/completions/transduce.fish` |
"""


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    commands = dict(commands_of(make_parser()))
    rows = [f"| [`{name}`](#{name}) | {cell(summary)} |" for name, (summary, _) in commands.items()]
    contents = "\n".join(["| command | what it does |", "| --- | --- |", *rows])
    return "\n".join([INTRODUCTION, contents, *(section(name, *command) for name, command in commands.items())])


def commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[str, argparse.ArgumentParser]]]:
    """Every command by name, with its one-line summary and its own parser."""
    [commands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for choice in commands._choices_actions:
        yield choice.dest, (choice.help or "", commands.choices[choice.dest])


def section(name: str, summary: str, parser: argparse.ArgumentParser) -> str:
    text = parser.description or f"{summary[:1].upper()}{summary[1:]}."
    groups = [table(group) for group in parser._action_groups if shown(group)]
    return "\n".join([f"\n## {name}\n", f"```\n{usage(name, parser)}\n```\n", plain(text), *groups])


def usage(name: str, parser: argparse.ArgumentParser) -> str:
    """The command with its arguments and the options that it needs."""
    arguments = [value(action) for action in parser._actions if not action.option_strings]
    options = [f"{a.option_strings[-1]} {value(a)}" for a in parser._actions if a.option_strings and a.required]
    return " ".join(["transduce", name, *arguments, *options])


def shown(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """A group's arguments, without `--help` and what is hidden."""
    return [a for a in group._group_actions if a.help != argparse.SUPPRESS and not isinstance(a, argparse._HelpAction)]


def table(group: argparse._ArgumentGroup) -> str:
    title = group.title or "options"
    heading = "argument" if title.startswith("positional") else "option"
    rows = [f"| {names(action)} | {meaning(action)} |" for action in shown(group)]
    name = f"**{title[0].upper() + title[1:]}**"
    about = f": {plain(group.description)}." if group.description else ""
    opening = [] if title == "options" or heading == "argument" else [f"\n{name}{about}"]
    return "\n".join([*opening, "", f"| {heading} | meaning |", "| --- | --- |", *rows])


def names(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{value(action)}`"
    given = f" {value(action)}" if action.nargs != 0 else ""
    return ", ".join(f"`{option}{given}`" for option in action.option_strings).replace("|", "\\|")


def value(action: argparse.Action) -> str:
    """What stands after an option, or for an argument, in a usage line."""
    words = action.metavar or ("{" + ",".join(action.choices) + "}" if action.choices else action.dest.upper())
    if isinstance(words, tuple):
        return " ".join(words)
    shapes = {"+": f"{words} ...", "*": f"[{words} ...]", "?": f"[{words}]"}
    return shapes.get(str(action.nargs), words)


def meaning(action: argparse.Action) -> str:
    text = (action.help or "") % vars(action) if "%(" in (action.help or "") else action.help or ""
    return cell(text.replace("%%", "%"))


def cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def plain(text: str) -> str:
    """Text in which nothing outside backticks reads as HTML."""
    parts = text.split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


if __name__ == "__main__":
    main()
