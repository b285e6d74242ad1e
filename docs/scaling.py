"""Writes the tables of docs/scaling.md with the functions that `transduce plan --gpus` uses.

python docs/scaling.py            rewrites the tables between their marks
"""

from pathlib import Path

from transduce.training.scaling import Cluster, cheap_from, reference_cost

PAGE = Path(__file__).parent / "scaling.md"
PARAMETERS = {"base": 63.1e6, "big": 214.3e6}
TOKENS = (25_600, 102_400)  # target tokens per GPU and step
CLUSTERS = (Cluster(8), Cluster(8, 8))
# What, GPUs, published speed-up, published share of linear, and the clusters to compare with: from the first to the second.
PUBLISHED = [
    ("NVIDIA's Transformer big (DeepLearningExamples)", "8 A100", "6.72", "84%", Cluster(1), Cluster(8)),
    ("the same", "16 V100", "12.96", "81%", Cluster(1), Cluster(8, 2)),
    ("torchtitan, Llama", "from 8 to 128 H100", "", "97%", Cluster(8), Cluster(8, 16)),
]


def predictions() -> str:
    lines = [
        "| model, tokens per GPU | machines x GPUs | computing | communication | sent within the machine | over the network | "
        "share of communication | speed-up | of linear | below 10% from |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, parameters in PARAMETERS.items():
        for tokens in TOKENS:
            for cluster in CLUSTERS:
                step = reference_cost(cluster, parameters, tokens)
                lines.append(
                    f"| {name}, {tokens:,} | {cluster.nodes} x {cluster.gpus} | {1000 * step.compute_seconds:.1f} ms | "
                    f"{1000 * step.exchange_seconds:.1f} ms | {step.bytes_within / 1e9:.2f} GB | "
                    f"{step.bytes_across / 1e9:.2f} GB | {step.communication:.0%} | {step.speed_up:.1f} | "
                    f"{step.speed_up / cluster.processes:.0%} | {round(cheap_from(step, tokens), -2):,} |"
                )
    return "\n".join(lines)


def published() -> str:
    lines = ["| what | GPUs | speed-up | of linear | predicted for ours |", "| --- | --- | --- | --- | --- |"]
    for what, gpus, speed_up, linear, fewer, more in PUBLISHED:
        few, many = (reference_cost(one, PARAMETERS["big"], TOKENS[0]) for one in (fewer, more))
        share = many.speed_up / few.speed_up * fewer.processes / more.processes
        lines.append(f"| {what} | {gpus} | {speed_up} | {linear} | {share:.0%} |")
    return "\n".join(lines)


TABLES = {
    ("<!-- tables: python docs/scaling.py -->", "<!-- end of tables -->"): predictions,
    ("<!-- published: python docs/scaling.py -->", "<!-- end of published -->"): published,
}


def replaced(text: str) -> str:
    """The page with up-to-date tables between the marks."""
    for (begin, end), table in TABLES.items():
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{table()}\n\n{end}{after}"
    return text


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
