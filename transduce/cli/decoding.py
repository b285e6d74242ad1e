"""How the outputs of a test set were decoded, which their scores depend on: the search, the engine and the weights."""

from dataclasses import dataclass
from pathlib import Path

from transduce.checkpoint import read_about
from transduce.cli.arguments import Options, search_request
from transduce.translator import Translator, better_weights, open_folder


@dataclass(frozen=True)
class Decoding:
    """The search, the engine and the weights of an evaluation."""

    beam: int
    alpha: float  # strength of the length penalty
    length_penalty: str
    engine: str
    precision: str  # of matrix products
    device: str
    weights: str  # best, last or averaged
    step: int | None  # of the weights; None if their file does not say
    ensemble: tuple[str, ...] = ()  # run folders of further models
    rerank: str = ""  # the file with the weights of the reranker

    @staticmethod
    def of(translator: Translator, options: Options) -> "Decoding":
        """How these options decode with this translator, whose engine is loaded."""
        request = search_request(translator, options)
        folder = open_folder(options.run).folder
        weights = better_weights(folder) if options.weights == "auto" else options.weights
        step = read_about(folder.weights(weights)).get("step", "")
        engine, precision, device = _engine(translator, options)
        return Decoding(
            beam=request.beam,
            alpha=request.alpha,
            length_penalty=request.length_penalty,
            engine=engine,
            precision=precision,
            device=device,
            weights=weights,
            step=int(step) if step.isdigit() else None,
            ensemble=tuple(getattr(options, "ensemble", None) or ()),
            rerank=getattr(options, "rerank", "") or "",
        )

    def __str__(self) -> str:
        of = f" (step {self.step:,})" if self.step is not None else ""
        parts = [
            f"beam {self.beam}",
            f"length penalty {self.alpha:g} ({self.length_penalty})",
            f"engine {self.engine} {self.precision} on {self.device}",
            f"weights {self.weights}{of}",
            f"ensemble with {', '.join(self.ensemble)}" if self.ensemble else "",
            f"reranked by {Path(self.rerank).name}" if self.rerank else "",
        ]
        return ", ".join(filter(None, parts))


def _engine(translator: Translator, options: Options) -> tuple[str, str, str]:
    """The name of the engine, its precision, and its device."""
    engine = translator.engines.searching(search_request(translator, options).but(log_probs="none"))
    if quantization := getattr(engine, "quantization", ""):
        return "ct2", quantization, "cpu"
    device = translator.device
    return "torch", "bfloat16" if device.bf16 else "float32", device.kind
