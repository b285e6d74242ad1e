"""Export to CTranslate2: a folder that it loads without our code, and a runner to verify it.

Weights are written in float32; users choose the precision when they load the model (`compute_type="int8"`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.errors import MissingExtra, SettingError
from transduce.exchange.cards import write_card
from transduce.exchange.verification import Answer, Ids
from transduce.model import Transformer
from transduce.text import EOS, Vocabulary
from transduce.translator import ModelFolder
from transduce.translator.ct2_spec import make_spec, refusal

# CTranslate2 stops a beam search earlier than ours, which stops when nothing can become better. With this patience both find the
# same outputs; 4 is enough for a trained model.
PATIENCE = 16

USE = """
```python
import ctranslate2, sentencepiece

source = sentencepiece.SentencePieceProcessor("source.spm")
target = sentencepiece.SentencePieceProcessor("target.spm")
translator = ctranslate2.Translator(".", compute_type="int8")
found = translator.translate_batch([source.encode("...", out_type=str)], beam_size=4)
print(target.decode(found[0].hypotheses[0]))
```

CTranslate2 adds `</s>` to the source itself (`add_source_eos` in config.json): give it the pieces alone.
"""


def require() -> None:
    """Raise an error that names the missing package, before anything is computed."""
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        raise MissingExtra("ctranslate2", "ct2") from None


def refuse(opened: ModelFolder) -> None:
    reason = refusal(opened.config.transformer)
    if reason:
        raise SettingError(f"CTranslate2: {reason}")


def write(opened: ModelFolder, model: Transformer, folder: Path) -> None:
    """Write the model, its vocabularies, and the sentencepiece models that split text into tokens."""
    arrays = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    spec = make_spec(arrays, opened.config.transformer, opened.vocabularies)
    spec.config.add_source_eos = True  # so that users only pass the pieces of a sentence
    spec.optimize(quantization="float32")
    spec.save(str(folder))
    (folder / "source.spm").write_bytes(opened.vocabularies.source.model)
    (folder / "target.spm").write_bytes(opened.vocabularies.target.model)
    write_card(opened, folder, USE)


class Ct2Runtime:
    """An exported folder: its model and vocabularies."""

    def __init__(self, folder: Path, allow_unknown: bool) -> None:
        import ctranslate2

        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type="float32", inter_threads=1, intra_threads=torch.get_num_threads()
        )
        self.source, self.target = Vocabulary.load(folder / "source.spm"), Vocabulary.load(folder / "target.spm")
        self.named = {name: number for number, name in enumerate(self.target.pieces(range(self.target.pad)))}
        self.allow_unknown = allow_unknown

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        return self.source.encode(lines)

    def logits(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Tensor]:
        """The logits of each target, which is given to CTranslate2 as a prefix without its `</s>`."""
        found = [self._forced(source, target) for source, target in zip(sources, targets, strict=True)]
        return [torch.from_numpy(np.stack(rows)) for rows in found]

    def _forced(self, source: Ids, target: Ids) -> list[Any]:
        prefix = self.target.pieces(target[:-1])
        result = self._translate([source], [prefix] if prefix else None, limit=len(target), return_logits_vocab=True)
        return [np.asarray(row) for row in result[0].logits[0][: len(target)]]

    def search(self, lines: Sequence[str], limit: int, beam: int, alpha: float) -> list[Answer]:
        results = self._translate(
            self.ids(lines),
            limit=limit,
            beam_size=beam,
            length_penalty=alpha,
            patience=PATIENCE,
            disable_unk=not self.allow_unknown,
        )
        tokens = [[self.named[name] for name in result.hypotheses[0] if self.named[name] != EOS] for result in results]
        return [Answer(*pair) for pair in zip(self.target.decode(tokens), tokens, strict=True)]

    def _translate(
        self, sources: Sequence[Ids], prefixes: list[list[str]] | None = None, *, limit: int, **options: Any
    ) -> list[Any]:
        given = [self.source.pieces(ids[:-1]) for ids in sources]  # CTranslate2 adds `</s>`
        lengths = {"max_decoding_length": limit, "min_decoding_length": 0, "max_input_length": 0}
        return list(
            self.translator.translate_batch(
                given, prefixes, **({"beam_size": 1, "return_end_token": True} | lengths | options)
            )
        )
