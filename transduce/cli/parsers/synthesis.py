"""The options of the commands that make training data with a model: distill, backtranslate."""

from transduce.cli.options import (
    JSON_RESULT,
    SEED,
    Parser,
    add_budget,
    add_columns,
    add_engine,
    add_loading,
    add_settings,
    add_target_language,
    add_verbosity,
    add_workers,
)
from transduce.config import PRESETS

RERUN = "Rerun the command to resume."
TEACHER = (
    f"{RERUN} --device, --threads, --engine, --quantization, --weights, --beam, --to, --workers and --on apply to the teacher only; use --set for the "
    "student, for example --set train.device=cpu train.threads=4."
)


def distill(parser: Parser) -> None:
    add = parser.add_argument
    add("teacher", help="run folder of the large model")
    add("run", help="run folder of the student to create; an existing run is resumed")
    add(
        "--train",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="training data, whose sources the teacher translates",
    )
    add(
        "--valid",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="validation data, which the teacher does not translate",
    )
    add(
        "--languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        default=[],
        help="language codes (default: the teacher's)",
    )
    add_columns(parser)
    add(
        "--preset",
        choices=sorted(PRESETS),
        default="student",
        help="recipe for the student (default: student, 6 + 1 layers of width 256, or less for a small teacher)",
    )
    add("--config", metavar="FILE.toml", default="", help="TOML file of settings of the student")
    add_budget(parser, "time for training the student, after the teacher has translated")
    add_settings(parser)
    add("--keep-original", action="store_true", help="also train on the original targets")
    add("--beam", type=int, help="beam size of the teacher (default: its setting)")
    add_target_language(parser, "teachers")
    add_loading(parser)
    add_engine(parser)
    add_workers(parser)
    add_verbosity(parser)
    add("--json", action="store_true", help=JSON_RESULT)


def backtranslate(parser: Parser) -> None:
    add = parser.add_argument
    add("model", help="run folder of a model that translates from the target language to the source language")
    add("folder", metavar="DIR", help="folder for made.txt (sources) and given.txt (targets)")
    add(
        "file", nargs="?", metavar="FILE", help="lines of the target language; may be .gz, .xz or .bz2 (default: stdin)"
    )
    add("--input", metavar="FILE", help="the same as FILE")
    add("--sample", action="store_true", help="sample sources instead of searching for the best ones")
    add("--beam", type=int, help="beam size (default: the model's setting)")
    add("--seed", type=int, metavar="N", help=SEED)
    add_target_language(parser)
    add_loading(parser)
    add_engine(parser)
    add_workers(parser)
    add("--quiet", action="store_true", help="print only errors")
    add("--json", action="store_true", help=JSON_RESULT)
