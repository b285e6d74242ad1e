"""The whole of `transduce doctor`: examine the corpora, and write what was asked for.

Everything that can be refused is refused before the first file is read.
"""

from dataclasses import dataclass, replace

from transduce.data import Corpus, Group
from transduce.diagnosis.examination import Options, examine, header_lines, open_corpora
from transduce.diagnosis.findings import RankedPair, Report
from transduce.diagnosis.page import write_page
from transduce.diagnosis.reading import PortionParser, PortionReader
from transduce.diagnosis.removal import Removal
from transduce.diagnosis.writing import check_folder, write_clean
from transduce.errors import SettingError
from transduce.files import check_place
from transduce.training.request import RequestedSettings
from transduce.translator import LoadOptions, Translator, open_folder
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
        if self.html:
            check_place(self.html)
        if self.reverse and not self.model:
            raise SettingError("--reverse needs --model: give the model of the forward direction as well")
        for run in filter(None, (self.model, self.reverse)):
            open_folder(run)


def check_up(
    requested: RequestedSettings, test: tuple[Group, ...], options: Options, outputs: Outputs, say: Say
) -> Report:
    """Examine the corpora that the settings name."""
    if options.removal != Removal() and not outputs.write:
        raise SettingError("--keep and --only choose what --write leaves out: add --write DIR")
    outputs.check()
    with open_corpora(requested, test) as corpora:
        for line in header_lines(corpora):
            say(line)
        examined = examine(corpora, requested, options)
        if outputs.write:
            pairs = sum(one.pairs for one in examined.report.corpora if one.role == "train")
            folder = check_folder(outputs.write)
            written = write_clean(corpora["train"], examined.removed, pairs, folder, options.removal)
            say(written.summary())
        ranking = _ranked(corpora["train"], outputs, say) if outputs.model else ()
    report = replace(examined.report, ranking=ranking)
    if outputs.html:
        write_page(report, outputs.html)
        say(f"{outputs.html}: wrote the report; open it in a browser")
    return report


def _ranked(corpus: Corpus, outputs: Outputs, say: Say) -> tuple[RankedPair, ...]:
    """The worst training pairs by the models' cross-entropy; the files are read again."""
    from transduce.diagnosis.ranking import rank

    forward, reverse = (
        Translator.load(run, LoadOptions(say=say)) if run else None for run in (outputs.model, outputs.reverse)
    )
    assert forward
    parse = PortionParser("train", corpus)
    return rank((parse(portion).block for portion in PortionReader("train", corpus)), forward, reverse).worst
