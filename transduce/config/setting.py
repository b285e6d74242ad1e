"""One setting: its default, meaning, bounds and unit, declared on its dataclass field.

Everything said about a setting is read from here: the range check, `transduce settings`, docs/settings.md, what may change
when a run is resumed, and what fine-tuning takes from the model it starts from. Knows no particular setting.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Inherited = Literal["no", "default", "always"]
KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a field says about its setting, apart from name, type and default."""

    meaning: str
    unit: str = ""
    zero: str = ""  # what 0 stands for, where it is not a quantity
    least: float | None = None
    most: float | None = None
    below: float | None = None  # an upper bound that is itself not allowed
    choices: Mapping[str, str] | None = None  # the meaning of each value
    resumable: bool = False
    inherited: Inherited = "no"


def setting(
    default: T,
    meaning: str,
    *,
    unit: str = "",
    zero: str = "",
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Mapping[str, str] | None = None,
    resumable: bool = False,
    inherited: Inherited = "no",
) -> T:
    """A dataclass field with its description.

    `resumable`: may change when a run is resumed. `inherited`: whether fine-tuning takes the value of the model it starts
    from, either as a default or always, so that another value is refused.
    """
    about = Description(
        meaning=meaning, unit=unit, zero=zero, least=least, most=most, below=below,
        choices=choices, resumable=resumable, inherited=inherited,
    )  # fmt: skip
    return field(default=default, metadata={"about": about})


def rate(default: float, meaning: str, **others: Any) -> float:
    """A number that is at least 0 and below 1."""
    return setting(default, meaning, least=0, below=1, **others)


@dataclass(frozen=True)
class Setting:
    """A setting with its name, type and default."""

    section: str
    key: str
    kind: Any
    default: Any
    about: Description

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it can have, where they are few and named."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def kind_in_words(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return "a list of texts" if get_origin(self.kind) is tuple else KINDS[self.kind]

    def refusal(self, value: Any) -> str:
        """Why this value is outside the bounds, or cannot be written to a file; or nothing."""
        about = self.about
        if self.kind not in (int, float):
            texts = value if isinstance(value, tuple) else [value]
            return next(filter(None, map(self._not_unicode, texts)), "")
        if about.below is not None and not (about.least or 0) <= value < about.below:
            return f"{self.name} = {value}: must be at least {about.least or 0:g} and below {about.below:g}"
        if not math.isfinite(value):
            return f"{self.name} = {value}: must be finite"
        if about.least is not None and value < about.least:
            bound = "must not be negative" if about.least == 0 else f"must be at least {about.least:,}"
            return f"{self.name} = {value}: {bound}"
        if about.most is not None and value > about.most:
            return f"{self.name} = {value}: must be at most {about.most:,}"
        return ""

    def _not_unicode(self, value: Any) -> str:
        """In Python's texts, surrogates stand for the bytes of a file name that is not UTF-8."""
        shown = str(value).encode(errors="backslashreplace").decode()
        return "" if shown == str(value) else f"{self.name} = {shown}: not valid UTF-8: rename the file or folder"


def settings_of(section: str, kind: type) -> Iterator[Setting]:
    """The settings of a section, in the order of its class."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        yield Setting(section, each.name, hints[each.name], each.default, each.metadata["about"])
