"""`transduce completion`: a script that completes commands, options and their values in bash, zsh or fish.

The scripts are generated from the parser and hold everything they offer, so completing starts no Python. They need nothing but
the shell. (shtab, the usual generator, does not write scripts for fish, and argcomplete starts Python for every completion.)
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from transduce.cli.parser import make_parser
from transduce.config import all_settings


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command: its names, what it offers, and how many values it takes."""

    names: tuple[str, ...]  # empty for a positional argument
    meaning: str
    values: tuple[str, ...]  # to offer; without any, file names are offered
    takes: str  # "none", "one" or "many" values

    @staticmethod
    def of(action: argparse.Action) -> "Option":
        sets = action.dest == "settings"
        values = tuple(f"{one.name}=" for one in all_settings()) if sets else tuple(map(str, action.choices or ()))
        takes = "none" if action.nargs == 0 else "one" if action.nargs in (None, "?") else "many"
        return Option(tuple(action.option_strings), _first_part(action.help or ""), values, takes)


@dataclass(frozen=True)
class Command:
    """A command with its options and arguments."""

    name: str
    meaning: str
    options: tuple[Option, ...]

    @property
    def named(self) -> list[Option]:
        return [option for option in self.options if option.names]

    @property
    def choices(self) -> list[str]:
        """What its positional arguments offer besides file names."""
        return [value for option in self.options if not option.names for value in option.values]


def completion(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(SCRIPTS[options.shell](list(commands(make_parser()))), end="")
    return 0


def commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """Every command of the parser."""
    [verbs] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for choice in verbs._choices_actions:
        actions = verbs.choices[choice.dest]._actions
        yield Command(choice.dest, choice.help or "", tuple(map(Option.of, actions)))


def _first_part(help_text: str) -> str:
    """The beginning of a help text: a list of completions has little room."""
    return help_text.replace("%%", "%").partition("; ")[0].partition(" (default")[0]


# --- bash --------------------------------------------------------------------------------------------------------

BASH = """# bash completion for transduce, written by `transduce completion bash`
_transduce() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} last="" number
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{verbs} --help --version' -- "$cur"))
        return
    fi
    for ((number = 2; number < COMP_CWORD; number++)); do
        case ${{COMP_WORDS[number]}} in -*) last=${{COMP_WORDS[number]}} ;; esac
    done
    local options="" values="" arguments=""
    case $verb in
{options}
    esac
    case "$verb $prev" in
{one}
    esac
    case "$verb $last" in
{many}
    esac
    case $cur in
        -*) values=$options ;;
        *) values=${{values:-$arguments}} ;;
    esac
    case $values in *=*) compopt -o nospace 2>/dev/null ;; esac
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
}}
complete -o bashdefault -o default -F _transduce transduce
"""


def bash(found: list[Command]) -> str:
    options = [
        f"        {one.name}) options='{' '.join(_all_names(one))}' arguments='{' '.join(one.choices)}' ;;"
        for one in found
    ]
    return BASH.format(
        verbs=" ".join(one.name for one in found),
        options="\n".join(options),
        one="\n".join(_bash_values(found, "one")),
        many="\n".join(_bash_values(found, "many")),
    )


def _bash_values(found: list[Command], takes: str) -> Iterator[str]:
    for command in found:
        for option in command.named:
            if option.takes == takes and option.values:
                cases = " | ".join(f"'{command.name} {name}'" for name in option.names)
                yield f"        {cases}) values='{' '.join(option.values)}' ;;"


def _all_names(command: Command) -> list[str]:
    return [name for option in command.named for name in option.names]


# --- zsh ---------------------------------------------------------------------------------------------------------

ZSH = """#compdef transduce
# zsh completion for transduce, written by `transduce completion zsh`
_transduce() {{
    if (( CURRENT == 2 )); then
        local -a verbs=(
{verbs}
        )
        _describe -t commands 'command' verbs
        return
    fi
    local verb=$words[2]
    shift words
    (( CURRENT-- ))
    case $verb in
{cases}
    esac
}}
if [ "$funcstack[1]" = "_transduce" ]; then
    _transduce "$@"
else
    compdef _transduce transduce
fi
"""


def zsh(found: list[Command]) -> str:
    verbs = [f"            {_quoted(f'{one.name}:{one.meaning}')}" for one in found]
    return ZSH.format(verbs="\n".join(verbs), cases="\n".join(map(_zsh_case, found)))


def _zsh_case(command: Command) -> str:
    specs = [_zsh_option(name, option) for option in command.named for name in option.names]
    rest = f"*:argument:({' '.join(command.choices)})" if command.choices else "*:file:_files"
    lines = " \\\n                ".join(map(_quoted, [*specs, rest]))
    return f"        {command.name})\n            _arguments -S \\\n                {lines} ;;"


def _zsh_option(name: str, option: Option) -> str:
    meaning = option.meaning.replace("[", "(").replace("]", ")").replace(":", "\\:")
    action = f"({' '.join(option.values)})" if option.values else "_files"
    value = {"none": "", "one": f":value:{action}", "many": f":*-*:value:{action}"}[option.takes]
    return f"*{name}[{meaning}]{value}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- fish --------------------------------------------------------------------------------------------------------


def fish(found: list[Command]) -> str:
    lines = ["# fish completion for transduce, written by `transduce completion fish`", "complete -c transduce -e"]
    for name in ("help", "version"):
        lines.append(f"complete -c transduce -n __fish_use_subcommand -l {name}")
    for command in found:
        meaning = _fish_quoted(command.meaning)
        lines.append(f"complete -c transduce -n __fish_use_subcommand -f -a {command.name} -d {meaning}")
        condition = f"-n '__fish_seen_subcommand_from {command.name}'"
        lines += [f"complete -c transduce {condition} {_fish_option(option)}" for option in command.named]
        if command.choices:
            lines.append(f"complete -c transduce {condition} -f -a '{' '.join(command.choices)}'")
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    values = f" -x -a '{' '.join(option.values)}'" if option.values else "" if option.takes == "none" else " -r"
    return f"{names}{values} -d {_fish_quoted(option.meaning)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
