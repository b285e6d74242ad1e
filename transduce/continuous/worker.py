"""The model that decodes, and how work and tensors travel between the host and its device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from transduce.continuous.decoder import EncodedSources, SlotDecoder
from transduce.continuous.sentences import Ids
from transduce.device import Device, captured
from transduce.model import Tokens, Transformer
from transduce.model.tokens import padded_ids

T = TypeVar("T")


@dataclass(frozen=True)
class Worker:
    """A model on a device, and the ids that pad its sources, start its outputs and end them."""

    model: Transformer
    device: Device
    source_pad: int
    start: int
    end: int

    def captured(self, work: Callable[[], T], graph_pool: object = None) -> Callable[[], T]:
        """The work as a CUDA graph, whose result is the same tensors every time; the work itself on other devices."""
        return captured(work, pool=graph_pool) if self.device.kind == "cuda" else work

    def to_device(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to the device without waiting for the copy to finish."""
        if self.device.kind != "cuda":
            return tensor.to(self.device.torch)
        pinned = torch.empty_like(tensor, pin_memory=True)
        pinned.numpy()[:] = tensor.numpy()  # torch would wake all cores for it
        return pinned.to(self.device.torch, non_blocking=True)


class HostCopy:
    """Copies of tensors that travel from the device to the host while the host continues."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        pinned = tensors[0].is_cuda
        self.copies = [
            torch.empty_like(t, device="cpu", pin_memory=pinned).copy_(t, non_blocking=True) for t in tensors
        ]
        self.arrived = torch.cuda.Event() if pinned else None
        if self.arrived:
            self.arrived.record()

    def wait(self) -> list[Tensor]:
        """The copies, once they have arrived."""
        if self.arrived:
            self.arrived.synchronize()
        return self.copies


class SourceEncoder:
    """The encoder for sources of up to a fixed width; it always runs on the same number of rows in the same memory."""

    def __init__(self, worker: Worker, decoder: SlotDecoder, ids: Tensor, memory: Tensor, graph_pool: object) -> None:
        self.worker, self.ids, self.lengths = worker, ids, ids.new_ones(len(ids))
        into = memory[: ids.numel()].view(*ids.shape, *memory.shape[1:])
        self.run = worker.captured(lambda: self._encode(decoder, into), graph_pool)

    def __call__(self, sources: Sequence[Ids]) -> EncodedSources:
        """Encode these sources; overwrites the result of the previous call. Ignore rows beyond the sources."""
        ids = torch.from_numpy(padded_ids(sources, self.ids.shape[1], self.worker.source_pad))
        for mine, theirs in ((self.ids, ids), (self.lengths, torch.tensor(list(map(len, sources))))):
            mine[: len(sources)].copy_(self.worker.to_device(theirs))
        return self.run()

    def _encode(self, decoder: SlotDecoder, into: Tensor) -> EncodedSources:
        return decoder.project_sources(self.worker.model.encode(Tokens.of_lengths(self.ids, self.lengths)), into)
