"""The PyTorch engine for GPUs: continuous batching for beam search, the plain engine for everything else."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from transduce.continuous import BeamOptions, ContinuousBatcher, SentenceBlock, understands
from transduce.device import Device
from transduce.model import Model, Transformer
from transduce.search import Hypothesis, length_penalty
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.torch_engine import Fusion, TorchEngine


class SlotEngine(TorchEngine):
    """Finds what `TorchEngine` finds, and passes requests and models that slots do not support on to it."""

    spares_cores: ClassVar = True
    # Alignments are computed from finished outputs, so slots have nothing to do with them.
    SUPPORTED: ClassVar = frozenset(
        {"beam", "n_best", "alpha", "length_penalty", "max_extra", "log_probs", "aligned", "replace_unknown"}
    )

    def __init__(
        self,
        model: Transformer,
        device: Device,
        source_pad: int,
        target_pad: int,
        end: int,
        others: Sequence[Model] = (),
        fusion: Fusion | None = None,
    ) -> None:
        super().__init__(model, device, source_pad, target_pad, end, others, fusion)
        self.batcher = ContinuousBatcher(model, device, source_pad, target_pad, end)

    def stream(self, blocks: Iterable[SearchBlock], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        """The hypotheses of each block in turn; blocks are tokenised and detokenised while others are decoded."""
        if not self._serves(request):
            yield from super().stream(
                blocks, request
            )  # in this thread: the caller may watch the attention of this model
            return
        penalty = length_penalty(request.length_penalty, request.alpha)
        options = BeamOptions(request.beam, request.n_best, penalty, log_probs=request.log_probs != "none")
        taken: deque[SearchBlock] = deque()
        for found in self.batcher.stream(self._with_limits(_noted(blocks, taken), request), options):
            taken.popleft().searched(len(found))
            yield found

    def _with_limits(self, blocks: Iterable[SearchBlock], request: SearchRequest) -> Iterator[SentenceBlock]:
        for block in blocks:
            yield SentenceBlock(block.sources, block.prefixes, request.limits(block, self.longest))

    def _serves(self, request: SearchRequest) -> bool:
        single_model = len(self.ensemble.models) == 1 and self.fusion is None
        return single_model and not request.refusal(self.SUPPORTED) and understands(self.model.config)


def _noted(blocks: Iterable[SearchBlock], taken: deque[SearchBlock]) -> Iterator[SearchBlock]:
    """The blocks; each is appended to `taken`."""
    for block in blocks:
        taken.append(block)
        yield block
