"""The server under load, overload and attack."""

from collections.abc import Iterator

from .section import Result, Section, cores, row

section = Section("Server")


@section.rows_from("serve-load")
def load(result: Result) -> Iterator[str]:
    how = f"`benchmarks/serve_load.py` on {cores(result)}, including the clients, one sentence per request"
    for clients in ("1", "8", "64"):
        shown = [f"{name} {speed(found[clients])}" for name, found in result["load"].items()]
        yield row(f"Server, {clients} client{'s' if clients != '1' else ''}", "; ".join(shown), how)
    overload = result["overload"]
    figure = (
        f"answers {overload['goodput_of_peak']:.0%} of its peak rate; refuses the other requests within {overload['refused_p99_ms']:.0f} ms (p99); "
        f"normal latency {overload['recovery_s']:.1f} s after the overload ends"
    )
    yield row(f"Server at {overload['times_peak']:.0f} times its peak", figure, how)


def speed(found: Result) -> str:
    return (
        f"{found['requests_per_s']:.0f}/s, p50 {found['p50_ms']:.0f} ms, p99 {found['p99_ms']:.0f} ms, "
        f"{found['server_cpu_ms']:.1f} ms of CPU time per request"
    )


@section.rows_from("serve-attack")
def attack(result: Result) -> Iterator[str]:
    fuzz, slow, stops, left = (result[part] for part in ("fuzz", "slow", "stops", "cancellations"))
    figure = (
        f"{fuzz['requests']:,} fuzzed requests, {fuzz['wrong_5xx']} answered with a 5xx status other than 503, memory {fuzz['memory_growth_mb']:+.0f} MB; "
        f"{slow['closed']} of {slow['connections']} slow connections closed; "
        f"{left['hung_up']:,} clients disconnected, {left['left_waiting']:.0f} of their requests stayed in the queue; "
        f"{stops['stops']} stops, {stops['lost']} of {stops['answered'] + stops['lost']} requests lost"
    )
    yield row("Server under attack", figure, f"`benchmarks/serve_attack.py` on {cores(result)}")


@section.rows_from("serve-attack-models")
def attack_on_models(result: Result) -> Iterator[str]:
    how = f"`benchmarks/serve_attack_models.py` on {cores(result)}, beside other work"
    for name, what in (("uploads", "damaged recordings and forms"), ("generate", "fuzzed prompts")):
        found = result[name]
        figure = (
            f"{found['requests']:,} requests, {found['wrong_5xx']} answered with a 5xx status other than 503, "
            f"{found['dropped']} connections dropped, memory {found['memory_growth_mb']:+.0f} MB; {found['left']:,} clients disconnected, "
            f"{found['left_waiting']:.0f} of their requests stayed in the queue; slowest answer {found['slowest_s']:.0f} s"
        )
        yield row(f"Server under attack, {what}", figure, how)
