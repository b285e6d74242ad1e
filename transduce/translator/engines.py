"""Which engine serves a request: PyTorch always can; CTranslate2 is faster on CPUs and cannot express everything.

Each is loaded when it is first needed, so that nobody waits for the other, least of all for importing torch.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol

from transduce.checkpoint import read_about
from transduce.config import ModelConfig
from transduce.cores import thread_refusal
from transduce.errors import MissingExtra, RunError, SettingError
from transduce.text import EOS, Vocabularies
from transduce.translator.engine import Engine, SearchRequest
from transduce.translator.folder import ModelFolder, open_folder, shortlist_digest

if TYPE_CHECKING:
    from transduce.device import Device
    from transduce.model import Model
    from transduce.translator.ct2_engine import Ct2Engine
    from transduce.translator.torch_engine import TorchEngine

Say = Callable[[str], None]


def say_to_stderr(text: str) -> None:
    print(f"transduce: {text}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a model is to be loaded."""

    weights: str = "auto"  # or best, last, averaged
    engine: Literal["auto", "torch", "ct2"] = "auto"
    device: str = "auto"  # or cpu, cuda
    threads: int = 0  # CPU threads; 0: one per core
    quantization: Literal["int8", "bfloat16", "float32"] = "int8"  # of the ct2 engine
    shortlist: bool = False  # whether the ct2 engine considers only tokens that `transduce shortlist` listed
    ensemble: tuple[str, ...] = ()  # folders of models that translate together with this one
    say: Say = say_to_stderr

    def __post_init__(self) -> None:
        if refused := thread_refusal(self.threads):
            raise SettingError(refused)
        if self.shortlist and (self.engine == "torch" or self.device == "cuda"):
            raise SettingError("a shortlist is for the ct2 engine: leave out --shortlist, or --engine torch")
        if self.engine == "ct2" and self.device == "cuda":
            raise SettingError("engine ct2 runs on CPUs: use device cpu, or engine torch")


Loading = LoadOptions  # its earlier name


class Engines(Protocol):
    """What a translator asks for an engine."""

    @property
    def torch(self) -> "TorchEngine":
        """The engine whose inside can be looked at."""
        ...

    @property
    def digest(self) -> str:
        """Of what is loaded: whoever has another model has another."""
        ...

    def searching(self, request: SearchRequest) -> Engine:
        """The engine for this request."""
        ...

    def concurrent(self, request: SearchRequest) -> bool:
        """Whether several threads may search so at once; loads nothing."""
        ...

    def scoring(self) -> Engine:
        """The engine for given pairs."""
        ...


@dataclass(frozen=True)
class OneEngine:
    """A model that is in memory already, as in training."""

    torch: "TorchEngine"

    @property
    def digest(self) -> str:
        return ""  # it may change with every step

    def searching(self, request: SearchRequest) -> Engine:
        return self.torch

    def concurrent(self, request: SearchRequest) -> bool:
        return self.torch.concurrent

    def scoring(self) -> Engine:
        return self.torch


def torch_engine(
    model: "Model", device: "Device", vocabularies: Vocabularies, others: Sequence["Model"] = ()
) -> "TorchEngine":
    """PyTorch's engine for this device: sentences in slots where kernels serve, batches elsewhere."""
    from transduce.model import Transformer
    from transduce.translator.slot_engine import SlotEngine
    from transduce.translator.torch_engine import TorchEngine

    ids = vocabularies.source.pad, vocabularies.target.pad, EOS
    if device.kind == "cuda" and device.bf16 and isinstance(model, Transformer):
        return SlotEngine(model, device, *ids, others)
    return TorchEngine(model, device, *ids, others)


class FolderEngines:
    """The engines of a model folder."""

    def __init__(self, folder: ModelFolder, loading: LoadOptions, longest_source: int) -> None:
        self.folder, self.loading, self.longest_source = folder, loading, longest_source
        self._said: set[str] = set()
        self._process = 0  # that loaded an engine; 0: none is loaded yet
        if (loading.engine == "ct2" or loading.shortlist) and not _is_installed():
            raise MissingExtra("ctranslate2", "ct2")
        if loading.shortlist and not folder.folder.shortlist.exists():
            raise RunError(f"{folder.folder.shortlist}: not there; `transduce shortlist {folder.folder.path}` makes it")

    @property
    def digest(self) -> str:
        of_weights = read_about(self.folder.weights(self.loading.weights)).get("sha256", "")
        both, loading = self.folder.vocabularies, self.loading
        quantization = loading.quantization if self._may_be_ct2() and loading.engine != "torch" else ""
        others = [str(read_about(open_folder(o).weights(loading.weights)).get("sha256", o)) for o in loading.ensemble]
        if loading.shortlist:
            others.append(shortlist_digest(self.folder.folder))
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
        """Refuse a process that was forked after an engine was loaded: its threads are not there, and it would wait forever."""
        if self._process not in (0, os.getpid()):
            raise RunError(
                f"{self.folder.folder.path}: this model was loaded before the process was forked, and its threads stayed behind: "
                'load it in the new process, start processes by multiprocessing.get_context("spawn"), or use threads'
            )
        self._process = os.getpid()

    @cached_property
    def _torch(self) -> "TorchEngine":
        from transduce.device import choose_device

        device = choose_device(self.loading.device, "auto", self.loading.threads)
        others = [self._other(path).model(self.loading.weights) for path in self.loading.ensemble]
        return torch_engine(self.folder.model(self.loading.weights), device, self.folder.vocabularies, others)

    def _other(self, path: str) -> ModelFolder:
        other = open_folder(path)
        for side in ("source", "target"):
            if getattr(other.vocabularies, side).digest != getattr(self.folder.vocabularies, side).digest:
                raise RunError(
                    f"{path}: another {side} vocabulary than {self.folder.folder.path}: no ensemble of these"
                )
        return other

    @cached_property
    def _ct2(self) -> "Ct2Engine":
        from transduce.translator.ct2_engine import Ct2Engine, check_runs
        from transduce.translator.ct2_model import open_model

        quantization, threads = self.loading.quantization, self.loading.threads
        check_runs(quantization)
        model = open_model(self.folder, self.loading.weights, quantization, self.loading.say)
        config, both = self.folder.config.transformer, self.folder.vocabularies
        return Ct2Engine(model, config, both, quantization, threads, self.loading.shortlist)

    def searching(self, request: SearchRequest) -> Engine:
        """CTranslate2 wherever it can serve, unless asked otherwise; why it cannot is said once."""
        if self.loading.engine == "torch" or not self._may_be_ct2():
            return self.torch
        reason = self._reason_against(request)
        if not reason:
            return self.ct2
        if self.loading.engine == "ct2" or self.loading.shortlist:
            raise SettingError(f"engine ct2: {reason}: use engine torch{' and no shortlist' * self.loading.shortlist}")
        if reason not in self._said:
            self._said.add(reason)
            self.loading.say(f"translating by the torch engine, not by ct2: {reason}")
        return self.torch

    def concurrent(self, request: SearchRequest) -> bool:
        """Whether several threads may search so at once: CTranslate2's workers may be asked by any."""
        return self.loading.engine != "torch" and self._may_be_ct2() and not self._reason_against(request)

    def scoring(self) -> Engine:
        """PyTorch unless asked otherwise: its figures are those of the weights as they are."""
        return self.searching(SearchRequest(beam=1, max_extra=0)) if self.loading.engine == "ct2" else self.torch

    def _may_be_ct2(self) -> bool:
        """Whether it is there and there is no GPU that would be faster."""
        if self.loading.engine == "ct2" or self.loading.shortlist:
            return True
        if self.loading.device == "cuda" or not _is_installed():
            return False
        import ctranslate2

        return self.loading.device == "cpu" or ctranslate2.get_cuda_device_count() == 0

    def _reason_against(self, request: SearchRequest) -> str:
        from transduce.translator import ct2_engine, ct2_spec

        if self.loading.ensemble:
            return "it takes one model, not an ensemble"
        config = self.folder.config.model
        if not isinstance(config, ModelConfig):
            return f"model.family = {config.family}: it runs Transformers only"
        # A model's own limit holds for every engine.
        longest = 0 if config.longest_target else self.longest_source + request.max_extra
        return ct2_spec.refusal(config) or ct2_engine.refusal(request, longest)


def _is_installed() -> bool:
    return find_spec("ctranslate2") is not None
