"""Run an exported Hugging Face folder with transformers, as its users will, to verify it."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import MissingExtra
from transduce.exchange.verification import Answer, Ids
from transduce.model import Tokens


def require() -> None:
    """Raise an error that names the missing package, before anything is computed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtra("transformers", "hf") from None


class HfRuntime:
    """An exported folder: its model and tokenizer."""

    def __init__(self, folder: Path, classes: int) -> None:
        with quietly() as transformers:
            self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.pad, self.classes = self.model.config.pad_token_id, classes

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        return [self.tokenizer(line)["input_ids"] for line in lines]

    @torch.inference_mode()
    def logits(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Tensor]:
        source = Tokens.padded(sources, self.pad)
        target = Tokens.padded([[self.pad, *ids[:-1]] for ids in targets], self.pad)
        found = self.model(
            input_ids=source.ids,
            attention_mask=source.real.long(),
            decoder_input_ids=target.ids,
            decoder_attention_mask=target.real.long(),
        ).logits
        assert bool((found[..., self.classes :] == -torch.inf).all()), (
            "ids that are not classes of our model must have -inf"
        )
        return [row[: len(ids), : self.classes] for row, ids in zip(found, targets, strict=True)]

    @torch.inference_mode()
    def search(self, lines: Sequence[str], limit: int, beam: int, alpha: float) -> list[Answer]:
        wide: dict[str, Any] = {"length_penalty": alpha, "early_stopping": "never"}
        settings = wide if beam > 1 else {"length_penalty": 1.0, "early_stopping": False}
        batch = self.tokenizer(list(lines), return_tensors="pt", padding=True)
        with quietly():
            found = self.model.generate(
                **batch, num_beams=beam, max_length=None, max_new_tokens=limit, do_sample=False, **settings
            )
        texts = self.tokenizer.batch_decode(found, skip_special_tokens=True)
        return [Answer(text, self._tokens(row)) for text, row in zip(texts, found.tolist(), strict=True)]

    def _tokens(self, row: list[int]) -> list[int]:
        """The tokens between the initial `<pad>` and `</s>`."""
        end = self.model.config.eos_token_id
        return row[1 : row.index(end) if end in row else None]


@contextmanager
def quietly() -> Iterator[Any]:
    """Import transformers, and hide its progress bars and warnings."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
