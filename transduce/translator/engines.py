"""Chooses the engine for a request: PyTorch serves every request; CTranslate2 is faster on CPUs but does not serve all.

An engine is loaded when it is first needed, so that translating with CTranslate2 does not import torch.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol

from transduce.checkpoint import read_about
from transduce.config import TransformerConfig
from transduce.cores import thread_refusal
from transduce.errors import MissingExtra, RunError, SettingError
from transduce.text import EOS, Vocabularies
from transduce.translator.engine import Engine, SearchRequest
from transduce.translator.folder import ModelFolder, open_folder, shortlist_digest
from transduce.translator.word_search import Words, WordWeights, words_digest

if TYPE_CHECKING:
    from transduce.device import Device
    from transduce.model import Model
    from transduce.translator.ct2_engine import Ct2Engine
    from transduce.translator.ctc_engine import CtcEngine
    from transduce.translator.torch_engine import Fusion, TorchEngine

Say = Callable[[str], None]
LM_WEIGHT = 0.2
MOST_LM_WEIGHT = 10


def say_to_stderr(text: str) -> None:
    print(f"transduce: {text}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How to load a model: for which target language, which weights, which engine, on which device."""

    to: str = ""  # target language, for models that translate into several
    weights: str = "auto"  # or best, last, averaged
    engine: Literal["auto", "torch", "ct2"] = "auto"
    device: str = "auto"  # or cpu, cuda
    threads: int = 0  # CPU threads; 0: one per core
    quantization: Literal["int8", "bfloat16", "float32"] = "int8"  # for the ct2 engine
    shortlist: bool = False  # whether the ct2 engine considers only the tokens in the shortlist of the model
    ensemble: tuple[str, ...] = ()  # run folders of further models of an ensemble
    ngram: "bool | WordWeights" = (
        False  # whether a speech model uses its n-gram model; weights replace those of the run
    )
    lm: str = ""  # run folder of a language model that takes part in every search (shallow fusion)
    lm_weight: float = LM_WEIGHT  # of its log-probabilities; the translator's have weight 1
    say: Say = say_to_stderr  # called with each message

    def __post_init__(self) -> None:
        if refused := thread_refusal(self.threads):
            raise SettingError(refused)
        if self.shortlist and (self.engine == "torch" or self.device == "cuda"):
            raise SettingError(
                "a shortlist needs the ct2 engine on a CPU: leave out --shortlist, or choose --engine ct2 --device cpu"
            )
        if not 0 <= self.lm_weight <= MOST_LM_WEIGHT:
            raise SettingError(f"lm_weight = {self.lm_weight}: must be at least 0 and at most {MOST_LM_WEIGHT}")
        if self.engine == "ct2" and self.device == "cuda":
            raise SettingError("the ct2 engine runs on CPUs only: use device cpu, or engine torch")
        if self.ngram and self.lm:
            raise SettingError("--ngram and --lm cannot be combined: leave out one of them")
        if self.ngram and (self.engine == "ct2" or self.shortlist):
            raise SettingError("an n-gram model needs the torch engine: leave out --engine ct2 and --shortlist")


class Engines(Protocol):
    """The engines of a translator."""

    @property
    def torch(self) -> "TorchEngine":
        """The PyTorch engine, whose attention can be inspected."""
        ...

    @property
    def digest(self) -> str:
        """A hash that identifies the model."""
        ...

    def searching(self, request: SearchRequest) -> Engine:
        """The engine for this request."""
        ...

    def concurrent(self, request: SearchRequest) -> bool:
        """Whether several threads may search with this request at once. Loads nothing."""
        ...

    def scoring(self) -> Engine:
        """The engine that scores given pairs."""
        ...


@dataclass(frozen=True)
class OneEngine:
    """The engine of a model that is already in memory, as during training."""

    torch: "TorchEngine"

    @property
    def digest(self) -> str:
        return ""  # the weights may change with every step

    def searching(self, request: SearchRequest) -> Engine:
        return self.torch

    def concurrent(self, request: SearchRequest) -> bool:
        return self.torch.concurrent

    def scoring(self) -> Engine:
        return self.torch


def torch_engine(
    model: "Model",
    device: "Device",
    vocabularies: Vocabularies,
    others: Sequence["Model"] = (),
    fusion: "Fusion | None" = None,
) -> "TorchEngine":
    """The PyTorch engine for this device: slots on GPUs with bfloat16, batches elsewhere."""
    from transduce.model import Transformer
    from transduce.translator.slot_engine import SlotEngine
    from transduce.translator.torch_engine import TorchEngine

    ids = vocabularies.source.pad, vocabularies.target.pad, EOS
    if device.kind == "cuda" and device.bf16 and isinstance(model, Transformer):
        return SlotEngine(model, device, *ids, others, fusion)
    return TorchEngine(model, device, *ids, others, fusion)


class FolderEngines:
    """The engines of a model folder."""

    def __init__(self, folder: ModelFolder, options: LoadOptions, longest_source: int) -> None:
        self.folder, self.options, self.longest_source = folder, options, longest_source
        self._said: set[str] = set()
        self._process = 0  # the process that loaded an engine; 0 before any is loaded
        if (options.engine == "ct2" or options.shortlist) and not _has_ctranslate2():
            raise MissingExtra("ctranslate2", "ct2")
        if options.shortlist and not folder.folder.shortlist.exists():
            raise RunError(
                f"{folder.folder.shortlist}: no such file; `transduce shortlist {folder.folder.path}` creates it"
            )

    @property
    def digest(self) -> str:
        of_weights = read_about(self.folder.weights(self.options.weights)).get("sha256", "")
        both, options = self.folder.vocabularies, self.options
        quantization = options.quantization if self._may_be_ct2() and options.engine != "torch" else ""
        others = [str(read_about(open_folder(o).weights(options.weights)).get("sha256", o)) for o in options.ensemble]
        if options.shortlist:
            others.append(shortlist_digest(self.folder.folder))
        if options.ngram:
            others += [words_digest(self.folder.folder), str(options.ngram)]
        if options.lm:
            others += [read_about(open_folder(options.lm).weights()).get("sha256", options.lm), str(options.lm_weight)]
        return " ".join([of_weights, both.source.digest, both.target.digest, quantization, *others])

    @property
    def torch(self) -> "TorchEngine":
        self._check_process()
        return self._torch

    @property
    def ct2(self) -> "Ct2Engine":
        self._check_process()
        return self._ct2

    def _check_process(self) -> None:
        """Refuse to run in a process that was forked after an engine was loaded: without its threads it would wait forever."""
        if self._process not in (0, os.getpid()):
            raise RunError(
                f"{self.folder.folder.path}: this model was loaded before the process was forked, and its threads do not exist in "
                'the new process: load the model there, start processes with multiprocessing.get_context("spawn"), or use threads'
            )
        self._process = os.getpid()

    @cached_property
    def _torch(self) -> "TorchEngine":
        from transduce.device import choose_device

        device = choose_device(self.options.device, "auto", self.options.threads)
        others = [self._other(path).model(self.options.weights) for path in self.options.ensemble]
        model, both = self.folder.model(self.options.weights), self.folder.vocabularies
        return torch_engine(model, device, both, others, self._fusion() if self.options.lm else None)

    def _fusion(self) -> "Fusion":
        """The language model, which must predict the tokens that the translator writes."""
        from transduce.translator.language_model import open_language_model, sliding_decoder
        from transduce.translator.torch_engine import Fusion

        opened = open_language_model(self.options.lm)
        target, own = self.folder.vocabularies.target, opened.vocabularies.target
        if own.digest != target.digest:
            raise RunError(
                f"{self.options.lm}: its vocabulary is not the target vocabulary of {self.folder.folder.path}: train a language "
                f"model with `transduce train LM --text FILE --vocabulary {self.folder.folder.path}`"
            )
        return Fusion(sliding_decoder(opened), self.options.lm_weight)

    @cached_property
    def _with_words(self) -> "CtcEngine":
        from transduce.translator.ctc_engine import CtcEngine

        run, given = self.folder.folder, self.options.ngram
        weights = given if isinstance(given, WordWeights) else WordWeights.read(run)
        return CtcEngine(self.torch, Words.read(run, self.folder.vocabularies.target), weights)

    def _other(self, path: str) -> ModelFolder:
        other = open_folder(path)
        does, of_first = other.config.data.what_it_does, self.folder.config.data.what_it_does
        if does != of_first:
            raise RunError(
                f"{path}: this model {does}, and {self.folder.folder.path} {of_first}; the models of an ensemble must be of one kind"
            )
        for side in ("source", "target"):
            if getattr(other.vocabularies, side).digest != getattr(self.folder.vocabularies, side).digest:
                raise RunError(
                    f"{path}: its {side} vocabulary differs from that of {self.folder.folder.path}; "
                    "the models of an ensemble must share their vocabularies"
                )
        return other

    @cached_property
    def _ct2(self) -> "Ct2Engine":
        from transduce.translator.ct2_engine import Ct2Engine, check_runs
        from transduce.translator.ct2_model import open_model

        quantization, threads = self.options.quantization, self.options.threads
        check_runs(quantization)
        model = open_model(self.folder, self.options.weights, quantization, self.options.say)
        config, both = self.folder.config.transformer, self.folder.vocabularies
        return Ct2Engine(model, config, both, quantization, threads, self.options.shortlist)

    def searching(self, request: SearchRequest) -> Engine:
        """CTranslate2 if it can serve the request, else PyTorch; the reason for PyTorch is reported once."""
        if self.options.ngram:
            return self._with_words
        if self.options.engine == "torch" or not self._may_be_ct2():
            if self.options.lm and self.options.engine == "auto":
                self._say_once("using the plain torch engine: only it can search with a language model (--lm)")
            return self.torch
        reason = self._reason_against(request)
        if not reason:
            return self.ct2
        if self.options.engine == "ct2" or self.options.shortlist:
            raise SettingError(
                f"the ct2 engine cannot serve this: {reason}; use engine torch{' without a shortlist' * self.options.shortlist}"
            )
        self._say_once(f"using the torch engine instead of ct2: {reason}")
        return self.torch

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self.options.say(message)

    def concurrent(self, request: SearchRequest) -> bool:
        """Whether several threads may search with this request at once: only with CTranslate2."""
        options = self.options
        never = options.engine == "torch" or bool(options.ngram) or not self._may_be_ct2()
        return not never and not self._reason_against(request)

    def scoring(self) -> Engine:
        """PyTorch unless ct2 was chosen: it scores with the weights as they were trained, without quantization."""
        return self.searching(SearchRequest(beam=1, max_extra=0)) if self.options.engine == "ct2" else self.torch

    def _may_be_ct2(self) -> bool:
        """Whether CTranslate2 was requested; or is installed, supports the family, and there is no GPU, which would be faster."""
        if self.options.engine == "ct2" or self.options.shortlist:
            return True
        known = isinstance(self.folder.config.model, TransformerConfig)
        if self.options.device == "cuda" or not known or not _has_ctranslate2():
            return False
        import ctranslate2

        return self.options.device == "cpu" or ctranslate2.get_cuda_device_count() == 0

    def _reason_against(self, request: SearchRequest) -> str:
        from transduce.translator import ct2_engine, ct2_spec

        if self.options.ensemble:
            return "it does not support ensembles"
        if self.options.lm:
            return "it cannot search with a language model (--lm)"
        config = self.folder.config.model
        if not isinstance(config, TransformerConfig):
            return f"model.family = {config.family}: it runs Transformers only"
        # A model's own limit holds for every engine.
        longest = 0 if config.longest_target else request.output_limit(self.longest_source)
        return ct2_spec.refusal(config) or ct2_engine.refusal(request, longest)


def _has_ctranslate2() -> bool:
    return find_spec("ctranslate2") is not None
