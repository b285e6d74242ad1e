"""The whole of `transduce doctor`: examine the corpora, and write what was asked for.

Everything that can be refused is refused before the first file is read.
"""

from dataclasses import dataclass

from transduce.data import Group
from transduce.diagnosis.examination import Options, examine, open_corpora
from transduce.diagnosis.findings import Report
from transduce.diagnosis.writing import check_folder, write_clean
from transduce.errors import SettingError
from transduce.training.request import RequestedSettings
from transduce.translator.engines import Say


@dataclass(frozen=True)
class Outputs:
    """What to write besides the report, and the models to rank the pairs with."""

    write: str = ""
    html: str = ""
    model: str = ""
    reverse: str = ""

    def check(self) -> None:
        if self.write:
            check_folder(self.write)
        if self.reverse and not self.model:
            raise SettingError("--reverse needs --model: give the model of the forward direction as well")


def check_up(
    requested: RequestedSettings, test: tuple[Group, ...], options: Options, outputs: Outputs, say: Say
) -> Report:
    """Examine the corpora that the settings name."""
    outputs.check()
    with open_corpora(requested, test) as corpora:
        examined = examine(corpora, requested, options)
        if outputs.write:
            pairs = sum(one.pairs for one in examined.report.corpora if one.role == "train")
            written = write_clean(corpora["train"], examined.removed, pairs, check_folder(outputs.write))
            say(written.summary())
    return examined.report
