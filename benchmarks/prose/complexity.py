"""What docs/complexity.md says about benchmarks/results/complexity-cpu.json and complexity-gpu.json."""

from collections.abc import Iterator
from math import log2

from pages.complexity import at_constant, in_d, in_n
from report.section import read

from transduce.paper.complexity import AT_EACH_END, ends
from transduce.paper.layers import HEAD, KERNEL, KINDS, NEIGHBOURS, attention_operations

from .statements import Statement, given, number, says

CPU, GPU = read("complexity-cpu"), read("complexity-gpu")
OTHERS = ("convolutional", "restricted", "self-attention")  # than the recurrent layer
Times = dict[int, float]  # milliseconds by size


def statements() -> Iterator[Statement]:
    yield from layers()
    yield from on_a_cpu()
    yield from in_rows_of_every_length()
    yield from hidden_asymptotics()


def layers() -> Iterator[Statement]:
    yield says(f"scaled dot-product attention, heads of {HEAD}")
    yield says(f"a convolution with kernel k = {KERNEL}")
    yield says(f"self-attention to r = {NEIGHBOURS} neighbours on each side")
    yield given("An exponent of 2 in n means")
    lengths, widths = (sorted({row[size] for row in CPU["grid"]}) for size in ("n", "d"))
    yield says(
        f"the {number(AT_EACH_END)} smallest and to the {number(AT_EACH_END)} largest of the {len(lengths)} lengths ({lengths[0]} to {lengths[-1]:,}) or of the "
        f"{len(widths)} widths ({widths[0]} to {widths[-1]:,}). Of the widths, {number(2 * AT_EACH_END - len(widths))} belong to both"
    )
    sizes = {(row["layer"], row["n"], row["d"]): row["counted"] for row in CPU["operations"]}
    yield says(
        "cheaper at these lengths than the recurrent layer, the only other one that connects all positions",
        all(
            sizes["self-attention", n, CPU["d_shown"]] < sizes["recurrent", n, CPU["d_shown"]]
            for n in (16, 64, 128, 256)
        ),
    )
    counted = all(attention_operations(n, d) == 8 * n * d**2 + 4 * n**2 * d for n in (16, 100) for d in (64, 128))
    yield says("Their 8 n d² operations are more than the 4 n² d of attention as long as n is below 2 d", counted)
    yield given("its exponent in n reaches 2 only far beyond n = d")
    yield given("a layer for every (k - 1) / 2 positions")


def on_a_cpu() -> Iterator[Statement]:
    in_length = {kind.name: ends(in_n(CPU, kind.name))[1] for kind in KINDS}
    in_width = {kind.name: ends(in_d(CPU, kind.name))[1] for kind in KINDS}
    others = [in_length[name] for name in ("recurrent", "convolutional", "restricted")]
    yield says(
        f"grows with n to the power {min(others):.2f} to {max(others):.2f}, slightly faster than linearly, "
        f"and that of self-attention with n to the power {in_length['self-attention']:.2f}",
        max(others) < 1.2,
    )
    yield says(
        "Recurrent and convolutional layers come close to the square in d",
        all(1.8 < in_width[name] < 2.2 for name in ("recurrent", "convolutional")),
    )
    yield says(
        "The others stay between 1 and 2", all(1 < in_width[name] < 1.7 for name in ("self-attention", "restricted"))
    )
    yield from attention_and_recurrence_on_a_cpu()


def attention_and_recurrence_on_a_cpu() -> Iterator[Statement]:
    d, longest = CPU["d_shown"], max(row["n"] for row in CPU["grid"])
    attention, recurrent = (milliseconds(in_n(CPU, name)) for name in ("self-attention", "recurrent"))
    last = max(n for n in attention if attention[n] < recurrent[n])
    yield says(
        f"with d = {d}, self-attention is the faster one up to n = {last} ({attention[last]:.1f} and {recurrent[last]:.1f} ms), and the slower one "
        f"from n = {2 * last} on ({attention[2 * last]:.1f} and {recurrent[2 * last]:.1f} ms)",
        all((attention[n] < recurrent[n]) == (n <= last) for n in attention),
    )
    widest = {row["layer"]: row["seconds"] for row in CPU["grid"] if (row["n"], row["d"]) == (longest, 1_024)}
    yield says(
        f"At n = {longest:,} it takes {attention[longest] / recurrent[longest]:.0f} times as long with d = {d}, and "
        f"{widest['self-attention'] / widest['recurrent']:.1f} times as long with d = 1,024, the width of the column *slowest*"
    )
    in_rows = milliseconds(at_constant(CPU, "recurrent"))
    positions, shortest = CPU["constant"][0]["n"] * CPU["constant"][0]["batch"], min(in_rows)
    yield says(
        f"With {positions:,} positions in rows of up to 1,024, the recurrent layer takes about the same time",
        max(in_rows[n] for n in in_rows if n <= 1024) < 1.2 * in_rows[shortest],
    )
    yield says(
        f"Even a single row of {longest:,} takes less than twice as long as {positions // shortest:,} rows of {shortest}",
        longest == positions and in_rows[longest] < 2 * in_rows[shortest],
    )


def milliseconds(points: list[tuple[float, float]]) -> Times:
    return {int(size): 1e3 * seconds for size, seconds in points}


def in_rows_of_every_length() -> Iterator[Statement]:
    times = {kind.name: milliseconds(at_constant(GPU, kind.name)) for kind in KINDS}
    first, last = GPU["constant"][0]["n"], max(times["recurrent"])
    positions = GPU["constant"][0]["n"] * GPU["constant"][0]["batch"]
    yield says(
        f"With {positions:,} positions, the convolution takes {span(times['convolutional'])} ms and restricted attention "
        f"{span(times['restricted'])} ms, whether these positions are {positions // first:,} rows of {first} or {positions // last} rows of {last:,}"
    )
    recurrent, attention = times["recurrent"], times["self-attention"]
    yield says(
        f"The recurrent layer takes {recurrent[first]:.0f} ms for the short rows and {recurrent[last]:.0f} ms for the long ones"
    )
    yield says(
        f"The time of self-attention grows too, from {attention[128]:.0f} ms in rows of 128 to {attention[last]:.0f} ms in rows of {last:,}"
    )
    yield says(
        f"It takes less time than the recurrent layer in rows of every length, and in rows of {last:,} positions still less than half",
        all(attention[n] < recurrent[n] for n in attention) and attention[last] < recurrent[last] / 2,
    )


def span(times: Times) -> str:
    least, most = f"{min(times.values()):.0f}", f"{max(times.values()):.0f}"
    return least if least == most else f"{least} to {most}"


def hidden_asymptotics() -> Iterator[Statement]:
    by_length = {kind.name: milliseconds(in_n(GPU, kind.name)) for kind in KINDS}
    by_width = {kind.name: milliseconds(in_d(GPU, kind.name)) for kind in KINDS}
    rows, d, n = GPU["grid"][0]["batch"], GPU["d_shown"], GPU["n_shown"]
    yield says(
        f"With {rows} rows and d = {d}, all layers but the recurrent one take hardly longer for 1,024 positions than for 16",
        all(by_length[name][1_024] < 1.25 * by_length[name][16] for name in OTHERS)
        and by_length["recurrent"][1_024] > 5 * by_length["recurrent"][16],
    )
    attention = by_length["self-attention"]
    yield says(
        f"Over the {number(AT_EACH_END)} largest lengths, the exponent of self-attention in n is {ends(in_n(GPU, 'self-attention'))[1]:.2f}. "
        f"From 8,192 to 16,384 alone, it is {log2(attention[16_384] / attention[8_192]):.1f}"
    )
    longer = {name: times[1_024] / times[64] for name, times in by_width.items()}
    most = max(longer[name] for name in OTHERS)
    yield says(
        f"At n = {n}, sixteen times the width takes at most {most:.1f} times as long, except in the recurrent layer ({longer['recurrent']:.1f} times)"
    )
