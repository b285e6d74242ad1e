"""The weights of a reranker, and the small JSON file that holds them with the models they belong to."""

import json
import math
import os
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from transduce.errors import DamagedFile, DataError
from transduce.files import read_plain, write_result

VERSION = 1
LARGEST_FILE = 1_000_000  # bytes


@dataclass(frozen=True)
class Weights:
    """What each feature of an output counts; the score of an output is the sum of weight times feature."""

    direct: float = 1.0  # the score of the search
    lm: float = 0.0  # log p of the output by the language model, divided by the length penalty
    reverse: float = 0.0  # log p of the source given the output, divided by the length penalty
    length: float = 0.0  # tokens of the output

    @property
    def values(self) -> tuple[float, ...]:
        return astuple(self)


@dataclass(frozen=True, kw_only=True)
class RerankFile:
    """Everything that reranking needs to know: the weights, the models, and the lists that the weights were tuned on."""

    weights: Weights
    lm: str = ""  # run folder, absolute; empty for none
    reverse: str = ""
    n_best: int = 10
    alpha: float = 1.0
    length_penalty: str = "power"
    metric: str = ""  # on the validation data, with its signature
    before: float = 0.0  # its value without reranking
    after: float = 0.0

    @property
    def weighted_models(self) -> dict[str, str]:
        """The models whose weights are not 0, by what they are for."""
        return {name: getattr(self, name) for name in MODELS if getattr(self, name) and getattr(self.weights, name)}

    def write(self, path: str | Path) -> None:
        """Write the file; folders of models are written relative to it, so that they can be moved together."""
        folder = os.path.dirname(os.path.abspath(path))
        found = asdict(self) | {name: _relative(getattr(self, name), folder) for name in ("lm", "reverse")}
        write_result(path, json.dumps({"version": VERSION} | found, indent=1) + "\n")

    @staticmethod
    def read(path: str | Path) -> "RerankFile":
        """The content of a file; anything else is refused."""
        try:
            found = json.loads(read_plain(Path(path), LARGEST_FILE))
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read ({error.strerror}); `transduce rerank` writes such a file"
            ) from None
        except (ValueError, RecursionError):
            raise _not_ours(path) from None
        try:
            parsed = _parsed(found, os.path.dirname(os.path.abspath(path)))
        except (TypeError, KeyError, ValueError, AttributeError):
            raise _not_ours(path) from None
        for name, folder in parsed.weighted_models.items():
            if not os.path.isdir(folder):
                raise DataError(
                    f"{path}: its {MODELS[name]} {folder} does not exist: move it back there, or write a new file with "
                    "`transduce rerank`"
                )
        return parsed


def _parsed(found: dict[str, Any], folder: str) -> RerankFile:
    if found.pop("version") != VERSION:
        raise ValueError
    weights = Weights(**{name: float(value) for name, value in found.pop("weights").items()})
    models = {name: os.path.normpath(os.path.join(folder, found[name])) if found[name] else "" for name in MODELS}
    parsed = RerankFile(**(found | models), weights=weights)
    if not all(map(math.isfinite, weights.values)) or parsed.n_best < 1:
        raise ValueError
    return parsed


MODELS = {"lm": "language model", "reverse": "reverse model"}


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) if path else ""


def _not_ours(path: str | Path) -> DamagedFile:
    return DamagedFile(f"{path}: not a file of weights for reranking, or damaged: `transduce rerank` writes a new one")
