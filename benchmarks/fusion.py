"""What a language model and a reverse model bring to a translator: plain search, shallow fusion and reranking on one test set.

    python benchmarks/fusion.py                              # Multi30k En-De; three minutes of training on a GPU
    python benchmarks/fusion.py --task europarl              # Europarl De-En, one shard of pairs, English text of two
    python benchmarks/fusion.py --seconds-left 540           # in pieces: again with the same --runs until it is finished
    python benchmarks/fusion.py --scale 0.1 --lines 100 --device cpu --name trial  # to try it out

Trains a translator, one of the opposite direction, and a language model with the vocabulary of the translator, side by side. The weight of the fusion and
the weights of the rerankers are tuned on the validation data. The test set is translated once by each system, and `transduce compare` tests
each against plain search. Every finished stage is kept in `--runs`; training is stopped by SIGTERM in time, and resumes. The exit status is 3 if
something is left to do.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from facts import default_data, write_result

import transduce
from transduce.paper.cells import read_lines

PACKAGES = ["torch", "sacrebleu", "sentencepiece"]
TO_STOP_S = 40.0  # for a run that is stopped, to save and to leave
STAGE_S = 60.0  # no stage after training is begun with less time left


@dataclass(frozen=True)
class Task:
    """Files, languages, and the minutes of training for each model."""

    train: tuple[tuple[str, str], ...]
    valid: tuple[str, str]
    test: tuple[str, str]
    text: tuple[str, ...]  # of the target language, for the language model
    languages: tuple[str, str]
    minutes: float
    settings: tuple[str, ...] = ()


def multi30k(data: Path) -> Task:
    """29,000 pairs; the text also has the German side of Tatoeba."""
    folder = data / "multi30k"
    en_de = [
        (str(folder / f"{name}.en"), str(folder / f"{name}.de")) for name in ("train", "valid", "test_2016_flickr")
    ]
    text = en_de[0][1], *map(str, sorted((data / "tatoeba-de-en").glob("train*.de*")))
    return Task((en_de[0],), en_de[1], en_de[2], text, ("en", "de"), 3.0)


def europarl(data: Path) -> Task:
    """One of the four shards as pairs; the text is the English side of two."""
    folder = data / "europarl-de-en"
    shards = [(str(folder / f"train-{n}.de.xz"), str(folder / f"train-{n}.en.xz")) for n in range(2)]
    valid, test = ((str(folder / f"{name}.de"), str(folder / f"{name}.en")) for name in ("valid", "test"))
    settings = ("data.vocabulary_size=16000", "data.vocabulary_sample=200000")
    return Task(tuple(shards[:1]), valid, test, tuple(en for _, en in shards), ("de", "en"), 4.0, settings)


TASKS = {"multi30k": multi30k, "europarl": europarl}


def main() -> None:
    options = _options()
    bench = Benchmark(options, TASKS[options.task](options.data), options.runs / options.task)
    if not bench.train_all() or not all(bench.stage(name, make) for name, make in bench.stages()):
        print("not finished: run the same command again to resume")
        sys.exit(3)
    bench.report()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(TASKS), default="multi30k")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/fusion"), help="folder for the models and what is finished"
    )
    parser.add_argument("--seconds-left", type=float, default=1e9, help="end within this time; run again to resume")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--beam", type=int, default=5, help="of plain search and fusion")
    parser.add_argument("--n-best", type=int, default=20, help="outputs that are reranked")
    parser.add_argument(
        "--weights", nargs="+", type=float, default=[0.05, 0.1, 0.15, 0.2, 0.3, 0.4], help="of the fusion"
    )
    parser.add_argument("--name", default="", help="of the result file (default: fusion-TASK)")
    trial = parser.add_argument_group("to try it out")
    trial.add_argument("--scale", type=float, default=1.0, help="multiplies the minutes of training")
    trial.add_argument("--set", nargs="+", default=[], metavar="SETTING", help="settings of every run")
    trial.add_argument("--lines", type=int, default=None, help="lines of validation and test data")
    return parser.parse_args()


class Benchmark:
    """The stages, each of which is done once; `state.json` has what is finished."""

    def __init__(self, options: argparse.Namespace, task: Task, folder: Path) -> None:
        self.options, self.task, self.folder = options, task, folder
        self.until = time.perf_counter() + options.seconds_left
        folder.mkdir(parents=True, exist_ok=True)
        self.state_file = folder / "state.json"
        self.state: dict[str, Any] = json.loads(self.state_file.read_text()) if self.state_file.exists() else {}
        self.forward, self.reverse, self.lm = (str(folder / name) for name in ("forward", "reverse", "lm"))

    # --- training --------------------------------------------------------------------------------------------------

    def train_all(self) -> bool:
        """Train the three models side by side; False if time ended before they were finished."""
        task = self.task
        pairs = [word for pair in task.train for word in ("--train", *pair)]
        swapped = [word for pair in task.train for word in ("--train", *pair[::-1])]
        text = ["--text", *task.text, "--valid-text", task.valid[1], "--vocabulary", self.forward]
        commands = [
            (self.forward, [*pairs, "--valid", *task.valid, "--languages", *task.languages], task.settings),
            (self.reverse, [*swapped, "--valid", *task.valid[::-1], "--languages", *task.languages[::-1]], task.settings),
            (self.lm, text, ("data.documents=line",)),
        ]  # fmt: skip
        left = [one for one in commands if f"train {Path(one[0]).name}" not in self.state]
        if not left:
            return True
        until = self.until - TO_STOP_S
        if time.perf_counter() >= until:
            return False
        running = {run: self._start(run, data, settings) for run, data, settings in left}
        ended = [self._finishes(run, process, until) for run, process in running.items()]
        return all(ended)

    def _start(self, run: str, data: list[str], settings: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Begin a training; the language model waits until the translator has its vocabulary."""
        ready = Path(self.forward) / "config.toml"
        while run == self.lm and not ready.exists() and time.perf_counter() < self.until:
            time.sleep(0.5)
        minutes = ["--minutes", str(self.options.scale * self.task.minutes), "--device", self.options.device]
        command = [sys.executable, "-m", "transduce", "train", run, *data, *minutes]
        chosen = [*settings, *self.options.set]
        return subprocess.Popen([*command, *(["--set", *chosen] if chosen else [])])

    def _finishes(self, run: str, running: subprocess.Popen[bytes], until: float) -> bool:
        """Whether a training ends in time; if not, it is stopped so that it can be resumed."""
        try:
            status = running.wait(min(max(0.0, until - time.perf_counter()), 1e6))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGTERM)
            running.wait()
            return False
        if status:
            sys.exit(f"training {run} failed with exit code {status}")
        self._done(f"train {Path(run).name}", {})
        return True

    # --- tuning and testing ----------------------------------------------------------------------------------------

    def stages(self) -> list[tuple[str, Callable[[], Any]]]:
        """What follows training, in order."""
        weights = [(f"weight {w:g}", lambda w=w: self._validated(w)) for w in self.options.weights]
        judges = {"lm": (self.lm, ""), "reverse": ("", self.reverse), "both": (self.lm, self.reverse)}
        tuned = [(f"tune {name}", lambda name=name, by=by: self._tuned(name, *by)) for name, by in judges.items()]
        systems: list[tuple[str, dict[str, Any]]] = [
            ("plain", {}),
            ("fusion", {"fused": True}),
            (f"plain-beam-{self.options.n_best}", {"beam": self.options.n_best}),
            *((f"rerank-{name}", {"rerank": self._file(name)}) for name in judges),
        ]
        tested = [(f"test {name}", lambda name=name, how=how: self._tested(name, **how)) for name, how in systems]
        return [
            ("text", self._text_scores), ("weight 0", lambda: self._validated(0.0)), *weights, *tuned, *tested,
            ("compare", lambda: self._compared([name for name, _ in systems])),
        ]  # fmt: skip

    def stage(self, name: str, make: Callable[[], Any]) -> bool:
        """Do a stage unless it is done; False if there is no time for it."""
        if name in self.state:
            return True
        if time.perf_counter() + STAGE_S > self.until:
            print(f"no time left for: {name}", flush=True)
            return False
        self._done(name, make())
        return True

    def _done(self, name: str, found: Any) -> None:
        self.state[name] = found
        self.state_file.write_text(json.dumps(self.state, indent=1) + "\n")
        print(name, "" if name == "compare" else found, flush=True)

    def _text_scores(self) -> dict[str, float]:
        """The language model on the targets of the validation data."""
        model = transduce.load_language_model(self.lm, device=self.options.device)
        score = model.score("".join(f"{line}\n" for line in self._lines(self.task.valid[1])))
        return {"bits_per_byte": score.bits_per_byte, "perplexity_per_word": score.perplexity_per_word}

    def _validated(self, weight: float) -> float:
        """BLEU of the validation data with this weight."""
        model = self._load(lm=self.lm, lm_weight=weight) if weight else self._load()
        found = model.evaluate(*map(self._lines, self.task.valid), beam=self.options.beam, metrics=["bleu"])
        return found.scores.main.value

    def _tuned(self, name: str, lm: str, reverse: str) -> dict[str, Any]:
        sources, references = map(self._lines, self.task.valid)
        how = {"lm": lm, "reverse": reverse, "n_best": self.options.n_best, "output": self._file(name)}
        tuned = transduce.tune_reranker(self._load(), sources, references, **how, options=self._options())
        return {**asdict(tuned.weights), "before": tuned.before, "after": tuned.after}

    def _tested(self, name: str, fused: bool = False, rerank: str = "", beam: int = 0) -> dict[str, Any]:
        """Translate the test set, and keep the outputs for `compare`."""
        how: dict[str, Any] = {"rerank": rerank} if rerank else {}
        best = self.best_weight()
        if fused and best:
            how = {"lm": self.lm, "lm_weight": best}
        found = self._load(**how).evaluate(
            *map(self._lines, self.task.test), beam=beam or self.options.beam, metrics=["bleu", "chrf"]
        )
        (self.folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in found.outputs), encoding="utf-8")
        return {"scores": found.scores.as_dict(), "sentences_per_second": round(found.sentences_per_second, 1)}

    def _compared(self, systems: list[str]) -> dict[str, Any]:
        """Differences to plain search, with p-values."""
        source, reference = (
            self._written(name, path) for name, path in zip(("source", "reference"), self.task.test, strict=True)
        )
        files = [f"{name}={self.folder / name}.txt" for name in systems]
        found = transduce.compare(
            files,
            source=source,
            references=reference,
            language=self.task.languages[1],
            metrics=["bleu", "chrf"],
            quiet=True,
        )
        kept = {name: value for name, value in found.as_dict().items() if name in ("metrics", "verdicts")}
        return dict(json.loads(json.dumps(kept, default=str)))

    def best_weight(self) -> float:
        """The weight with the best BLEU on the validation data; the smallest of equal ones."""
        return max([0.0, *self.options.weights], key=lambda weight: (self.state[f"weight {weight:g}"], -weight))

    # --- shared ----------------------------------------------------------------------------------------------------

    def _load(self, **how: Any) -> transduce.Translator:
        return transduce.load(self.forward, engine="torch", device=self.options.device, quiet=True, **how)

    def _options(self) -> transduce.LoadOptions:
        return transduce.LoadOptions(engine="torch", device=self.options.device)

    def _file(self, name: str) -> str:
        return str(self.folder / f"rerank-{name}.json")

    def _lines(self, path: str) -> list[str]:
        return read_lines(Path(path))[: self.options.lines]

    def _written(self, name: str, path: str) -> str:
        (self.folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in self._lines(path)), encoding="utf-8")
        return str(self.folder / f"{name}.txt")

    def report(self) -> None:
        """Write the result file, and print it as a table."""
        name = self.options.name or f"fusion-{self.options.task}"
        settings = {key: getattr(self.options, key) for key in ("beam", "n_best", "scale", "lines", "set")}
        path = write_result(
            name, f"python benchmarks/fusion.py --task {self.options.task}", PACKAGES,
            minutes=self.task.minutes * self.options.scale, settings=settings, fusion_weight=self.best_weight(), stages=self.state,
        )  # fmt: skip
        for system, found in self.state.items():
            if system.startswith("test "):
                scores = found["scores"]
                print(f"{system[5:]:16} BLEU {scores['BLEU']['value']:.2f}  chrF {scores['chrF2']['value']:.2f}")
        print(*self.state["compare"]["verdicts"], f"{path}: all figures", sep="\n")


if __name__ == "__main__":
    main()
