"""Equal outputs: of fast searches and a plain one, and of a model and its exported forms."""

from collections.abc import Iterator

from .section import Result, Section, row

section = Section("Equal outputs")

FORMS = {  # by their names in the result file; all others are exports
    "ours": "Before export",
    "HF and back": "Exported to HF and imported again",
    "int8": "In int8, as used on CPUs",
    "Marian, imported": "A Marian model, imported",
}


@section.rows_from("same-outputs")
def searches(result: Result) -> Iterator[str]:
    how = "`benchmarks/same_outputs.py`; the reference search takes one sentence at a time, uses no cache and never stops early"
    for name, engines in result["results"].items():
        shares: dict[str, list[float]] = {}
        for engine, one in engines.items():
            shares.setdefault(engine.partition(",")[0], []).append(one["same"])
        figure = ", ".join(f"{engine} {min(found):.1%}" for engine, found in shares.items())
        yield row(f"Outputs that equal those of a reference search, {name}", f"{figure} of {result['lines']:,}", how)


@section.rows_from("round-trips")
def exports(result: Result) -> Iterator[str]:
    for name, one in result["results"].items():
        marian = "same" in one
        searches = {"beam 6": one} if marian else {search: one[search] for search in ("greedy", "beam 4")}
        shown = "; ".join(f"{search}: {agreement(found)}" for search, found in searches.items())
        far = f"; logits within {one['largest_logit_difference']:.0e}" if "largest_logit_difference" in one else ""
        other = "Marian's own output" if marian else "the PyTorch engine"
        how = f"`benchmarks/round_trips.py`, {result['lines']:,} sentences of Multi30k, compared with {other}"
        yield row(FORMS.get(name, f"Exported: {name}"), shown + far, how)


def agreement(found: Result) -> str:
    identical = f"{found['same']:.1%} identical, " if "same" in found else ""
    return f"{identical}BLEU {found['bleu']['value']:.2f}"
