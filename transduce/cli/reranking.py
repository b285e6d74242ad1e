"""The command `rerank`: weights for reranking, tuned on validation data."""

from dataclasses import asdict, replace

from transduce import api
from transduce.cli.arguments import Options, load_options, print_json
from transduce.cli.measuring import read_test_set
from transduce.files import check_place
from transduce.translator import Translator

NAMES = {"direct": "translator", "lm": "language model", "reverse": "reverse model", "length": "length"}


def rerank(options: Options) -> int:
    check_place(options.output)
    files = read_test_set(options)
    loading = replace(load_options(options), to=options.to, lm="")  # the language model judges, and does not search
    translator = Translator.load(options.run, loading)
    changes = {name: getattr(options, name) for name in ("beam", "alpha", "length_penalty", "max_extra")}
    with files.naming_lines():
        tuned = api.tune_reranker(
            translator,
            files.sources,
            *files.references,
            output=options.output,
            lm=options.lm,
            reverse=options.reverse,
            n_best=options.n_best,
            metric=options.metric,
            seed=options.seed,
            request=translator.request(**changes),
            options=loading,
            quiet=options.quiet,
        )
    if options.json:
        print_json(asdict(tuned))
    else:
        weights = ", ".join(f"{NAMES[name]} {value:g}" for name, value in asdict(tuned.weights).items())
        print(f"{tuned.metric} {tuned.before:.2f} -> {tuned.after:.2f} on the validation data (weights: {weights})")
    return 0
