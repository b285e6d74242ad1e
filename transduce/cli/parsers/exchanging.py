"""The options of the commands for other toolkits: export, import."""

from transduce.cli.options import THREADS, Parser, add_weights

EXPORT = (
    "The export is kept only if the other runtime gives the same translations on sample sentences. A language model must predict "
    "and continue sample texts in the same way."
)


def export(parser: Parser) -> None:
    add = parser.add_argument
    add("run", help="run folder of the model")
    add("folder", metavar="DIR", help="folder to create")
    add(
        "--to",
        choices=["hf", "ct2", "onnx"],
        required=True,
        help="hf: Hugging Face transformers; ct2: CTranslate2; onnx: onnxruntime. Each needs an extra: pip install "
        "'transduce[hf]'",
    )
    add_weights(parser)
    add(
        "--sample",
        metavar="FILE",
        default="",
        help="source lines, or text, to compare on (default: the run's validation data)",
    )
    add("--threads", type=int, default=0, help=THREADS)
    add("--json", action="store_true", help="print the comparison as JSON on stdout")


def import_model(parser: Parser) -> None:
    parser.set_defaults(command="import_model")  # `import` is a keyword of Python
    parser.add_argument("source", help="folder with config.json and model.safetensors, or with Marian's model.npz")
    parser.add_argument("run", help="model folder to create")
