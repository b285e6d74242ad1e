"""How fast models of the fitted sizes train on a CPU, alternating: the speeds behind the chosen settings.

python benchmarks/cpu_speeds.py --threads 2 --rounds 3
"""

import argparse
import json
import os
import statistics

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from learning_curves import SIZES

from transduce.config import TrainConfig, TransformerConfig
from transduce.device import choose_device
from transduce.training.speed import Sentences, tokens_per_second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    device = choose_device("cpu", threads=options.threads)
    cases = [(size, v, n) for size in SIZES for v, n in ((200, 8), (4000, 12), (4000, 25), (8000, 12))]
    speeds: dict[tuple, list[float]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for size, v, n in cases:
            d_model, heads, layers = SIZES[size]
            model = TransformerConfig(d_model=d_model, d_ff=4 * d_model, num_heads=heads, num_encoder_layers=layers, num_decoder_layers=layers, norm="pre")  # fmt: skip
            speeds[size, v, n].append(tokens_per_second(model, TrainConfig(clip_norm=1.0), Sentences(v, v, n, n), device, options.seconds))  # fmt: skip
    for case, found in speeds.items():
        print(json.dumps({"size": case[0], "vocabulary": case[1], "length": case[2], "tokens_per_second": round(statistics.median(found)), "least": round(min(found)), "most": round(max(found))}))  # fmt: skip


if __name__ == "__main__":
    main()
