"""Translation speed on GPUs and CPUs compared with other programs, and of a student compared with its teacher."""

from collections.abc import Iterator

from .section import Result, Section, cores, row

section = Section("Translation speed")

JOBS = {
    "file, greedy": "a file, greedy search",
    "single, greedy": "one sentence at a time, greedy search",
    "file, beam 4": "a file, beam 4",
    "single, beam 4": "one sentence at a time, beam 4",
}
PEERS = {
    "ct2": "CTranslate2 called directly",
    "ct2, default": "CTranslate2 called directly, patience 1",
    "hf": "HF `generate`",
}


@section.rows_from("translation-gpu")
def on_a_gpu(result: Result) -> Iterator[str]:
    settings = result["settings"]
    how = (
        f"`{result['command']}` on one {result['hardware']['gpu']}, including tokenisation, {settings['lines']:,} lines "
        f"repeated {settings['times']} times, bfloat16; HF: its best batch size, on the first {settings['peer_lines']:,} lines"
    )
    for name, one in result["results"].items():
        least, most = one["least_most"]
        peer = f"; {one['ours_over_hf']:.0f} times HF `generate`" if "ours_over_hf" in one else ""
        figure = (
            f"{one['target_tokens_per_s']:,} target tokens/s ({least:,} to {most:,}){peer}; a single line takes {one['one_line_ms']:.0f} ms; "
            f"{one['same_as_plain_float32']:.1%} of the outputs equal those of plain PyTorch in float32 (plain PyTorch in bfloat16: "
            f"{one['plain_bf16_as_float32']:.1%}); {one['alone_as_in_company']:.1%} are the same when a line is translated alone and in a batch"
        )
        yield row(f"Translating on a GPU, {name}", figure, how)


@section.rows_from("cpu-translation")
def on_a_cpu(result: Result) -> Iterator[str]:
    how = f"`benchmarks/cpu_translation.py` on {cores(result)}, {result['model']}, alternating"
    for job, report in result["results"].items():
        for peer, name in PEERS.items() if "ours_over" in report else ():
            yield row(f"Translating on a CPU, {JOBS[job]}, compared with {name}", compared(report, peer), how)
    cold = sorted(result["results"]["cold start"]["seconds"]["ct2"])
    yield row(
        "`transduce translate` for one sentence, from the start of the command", f"{cold[len(cold) // 2]:.2f} s", how
    )


def compared(report: Result, peer: str) -> str:
    ratio, ours = report["ours_over"][peer], report["systems"]["ours"]
    speed = f"{ours['sentences_per_s']:,.0f} sentences/s, {ours['ms_per_sentence']:.1f} ms each"
    return f"{ratio['median']:.2f} times as fast ({ratio['least']:.2f} to {ratio['most']:.2f}); {speed}"


@section.rows_from("student-cpu")
def students(result: Result) -> Iterator[str]:
    how = f"`benchmarks/student.py` on {cores(result)}, int8, test_2016_flickr, alternating"
    for name, one in result["results"].items():
        model = result["models"][name.partition(",")[0]]
        middle, least, most = one["times_teacher_beam_4"]
        figure = (
            f"BLEU {one['bleu']:.1f}; {one['sentences_per_s']:,.0f} sentences/s, {middle:.1f} times the teacher with beam 4 "
            f"({least:.1f} to {most:.1f}); {model['int8_mb']:.1f} MB"
        )
        yield row(f"Distilled on Multi30k: {name} ({model['layers']} layers)", figure, how)
