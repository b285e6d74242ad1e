"""Training speed on GPUs and CPUs compared with other toolkits, and the speed of preparing data."""

from collections.abc import Iterator
from statistics import mean

from transduce.paper.results import mean_and_spread

from .section import Result, Section, cores, row

section = Section("Training speed")

PEERS = {  # of training on a CPU, by their names in the result files
    "hf": "HF MarianMT on the same batches",
    "hf, file order": "HF MarianMT in random order",
    "joeynmt": "JoeyNMT",
    "eole": "Eole",
    "onmt": "OpenNMT-py",
    "marian": "Marian",
    "marian, async": "Marian, asynchronous",
}


@section.rows_from("train-speed-gpu", "train-speed-gpu-sizes")
def on_a_gpu(result: Result) -> Iterator[str]:
    how = f"`benchmarks/train_speed.py` on one {result['hardware']['gpu']}, translation lengths, dropout and Adam included; HF and torch read padded rows in random order"
    for case, report in result["results"].items():
        ours = report["systems"]["ours"]
        figure = f"{ours['target_tokens_per_s']:,} target tokens/s, {ours['mfu']:.0%} of 790 TFLOP/s"
        others = [
            "{:.1f} times {} ({:.1f} to {:.1f}; {:.0%} padding)".format(
                one["ours_over_it"][0], name, *one["ours_over_it"][1:], one["padding"]
            )
            for name, one in report["systems"].items()
            if name != "ours"
        ]
        yield row(f"Training on a GPU, {case}", "; ".join([figure, *others]), how)


@section.rows_from("extras-gpu")
def extras(result: Result) -> Iterator[str]:
    bare, with_extras = (result["results"][name] for name in ("bare", "with extras"))
    figure = f"{with_extras['slower_by']['median']:.1%} of {bare['target_tokens_per_s']:,} target tokens/s"
    how = f"`benchmarks/extras.py` on one {result['hardware']['gpu']}, whole runs of `transduce train`, alternating"
    yield row("Cost of clipping, a moving average and logging every 10 steps", figure, how)


@section.rows_from("cpu-peers")
def on_a_cpu(result: Result) -> Iterator[str]:
    how = f"`benchmarks/cpu_peers.py` on {cores(result)}, Multi30k, same model size and tokens, each in its own process, alternating"
    for size, report in result["results"].items():
        shape, ours = result["settings"]["shapes"][size], report["systems"]["ours"]
        others = [
            f"{ratio['median']:.1f} times {PEERS[peer]} ({ratio['least']:.1f} to {ratio['most']:.1f})"
            for peer, ratio in report["ours_over"].items()
        ]
        what = f"Training on a CPU, {shape['layers']}+{shape['layers']} layers, d_model {shape['d_model']}"
        yield row(what, "; ".join([f"{ours['target_tokens_per_s']:,.0f} target tokens/s", *others]), how)


@section.rows_from("rnn-peers")
def recurrent(result: Result) -> Iterator[str]:
    """The recurrent network with attention, compared with those of the peers in the file: their speed, and what they learned."""
    systems = result["results"]
    ours, peers = systems["ours"], [name for name in systems if name != "ours"]

    def ratios(figure: str, peer: str) -> str:
        return mean_and_spread([one[figure] / other[figure] for one, other in zip(ours, systems[peer], strict=True)])

    speeds = [
        f"{ratios('tokens_per_s', peer)} times {PEERS[peer]} per wall-clock second and {ratios('tokens_per_cpu_s', peer)} times per CPU second"
        for peer in peers
    ]
    bleu = "; ".join(
        f"{PEERS.get(name, 'Transduce')} "
        + " and ".join(f"{one['valid_bleu']:.1f} after {one['updates']:,} updates" for one in turns)
        for name, turns in systems.items()
    )
    speed = f"{mean(one['tokens_per_s'] for one in ours):,.0f} target tokens/s"
    learned = f"validation BLEU, greedy search, round by round: {bleu}"
    rounds = f"{len(ours)} rounds of {result['settings']['seconds']:.0f} s, alternating"
    how = f"`{result['command']}` on {cores(result)}, Multi30k, LSTMs with attention, {rounds}; validated on 200 lines"
    yield row("Training a recurrent network on a CPU", "; ".join([speed, *speeds, learned]), how)


@section.rows_from("prepare")
def preparing(result: Result) -> Iterator[str]:
    prepare, ratio = result["results"]["prepare"], result["results"]["prepare_over_sentencepiece"]
    figure = f"{prepare['seconds']:.0f} s, {prepare['peak_resident_mb']} MB; {ratio:.2f} times as long as sentencepiece alone"
    what = f"Preparing {prepare['pairs']:,} pairs (Europarl)"
    yield row(what, figure, f"`benchmarks/prepare.py` on {cores(result)}")
