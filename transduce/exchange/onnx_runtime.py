"""Run the two ONNX graphs with onnxruntime under our search; also an example for other programs.

It reads everything from manifest.json and does not need the original model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.errors import DamagedFile, MissingExtra
from transduce.exchange.verification import Answer, Ids, answers
from transduce.model import Tokens
from transduce.search import PowerPenalty
from transduce.search.beam import beam_search
from transduce.text import Vocabulary

Arrays = list[Any]  # numpy arrays, each [R, H, positions, E]


def require() -> None:
    """Raise an error that names the missing package, before anything is computed."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, "onnx") from None


@dataclass
class OnnxState:
    """Translations in progress: the keys and values of the source, and of the target so far."""

    keep: Any
    source: Arrays
    past: Arrays

    def select(self, rows: Tensor) -> "OnnxState":
        index = rows.numpy()
        return OnnxState(self.keep[index], [one[index] for one in self.source], [one[index] for one in self.past])


class OnnxRuntime:
    """An exported folder: its graphs and vocabularies."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        try:
            self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DamagedFile(f"{folder / 'manifest.json'}: cannot be read ({error})") from None
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = torch.get_num_threads()
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / self.manifest[name]["file"], settings)
            for name in ("encoder", "decoder")
        )
        files = self.manifest["vocabularies"]
        self.source, self.target = Vocabulary.load(folder / files["source"]), Vocabulary.load(folder / files["target"])

    def begin(self, sources: Sequence[Ids]) -> OnnxState:
        """The state before the first target token."""
        tokens = Tokens.padded(sources, self.manifest["ids"]["source_pad"])
        keep = tokens.segment.numpy()
        source = self.encoder.run(None, {"ids": tokens.ids.numpy(), "keep": keep})
        cache = self.manifest["cache"]
        widths = [cache["key_width"], cache["value_width"]] * cache["layers"]
        past = [np.zeros((len(sources), cache["heads"], 0, width), np.float32) for width in widths]
        return OnnxState(keep, source, past)

    def step(self, tokens: Tensor, state: OnnxState) -> Tensor:
        """Logits of the next token of each row."""
        given = [tokens.numpy(), state.keep, *state.source, *state.past]
        logits, *state.past = self.decoder.run(None, dict(zip(self.manifest["decoder"]["inputs"], given, strict=True)))
        return torch.from_numpy(logits)

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        return self.source.encode(lines)

    def logits(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Tensor]:
        """Computed step by step; rows that have ended are fed further `</s>`, whose logits are dropped."""
        state = self.begin(sources)
        start, end = self.manifest["ids"]["start"], self.manifest["ids"]["end"]
        fed = Tokens.padded([[start, *ids[:-1]] for ids in targets], end).ids
        found = torch.stack([self.step(column.contiguous(), state) for column in fed.T], dim=1)
        return [row[: len(ids)] for row, ids in zip(found, targets, strict=True)]

    def search(self, lines: Sequence[str], limit: int, beam: int, alpha: float) -> list[Answer]:
        ids = self.manifest["ids"]
        never = () if self.manifest["search"]["allow_unknown"] else (ids["unknown"],)
        found = beam_search(
            self.step, self.begin(self.ids(lines)), start=ids["start"], end=ids["end"], limits=torch.full((len(lines),), limit),
            beam=beam, penalty=PowerPenalty(alpha), never=never,
        )  # fmt: skip
        return answers(found, self.target)
