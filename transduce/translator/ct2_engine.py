"""The CTranslate2 engine: searches and scores ids on CPUs, in int8 by default. Does not import torch.

A block is searched in batches of similar length, one core for each batch. Several batches are in flight at a time, so
that the next block is read and tokenised while this one is searched.

CTranslate2 differs from our search in three ways: it has one length limit for each call instead of one for each line, it
cuts an output off at the limit instead of ending it with `</s>`, and it ignores the log-probability of a prefix. Lines
where this matters are searched again by themselves, or scored again.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar

import ctranslate2

from transduce.config import TransformerConfig
from transduce.cores import available_cores
from transduce.errors import SettingError
from transduce.search import Hypothesis, Penalty, length_penalty
from transduce.text import EOS, Vocabularies
from transduce.translator.ct2_model import Ct2Model, Quantization, not_loaded
from transduce.translator.ct2_spec import POSITIONS, longest_output
from transduce.translator.engine import Ids, SearchBlock, SearchRequest

# CTranslate2 ends a search when `patience * beam` outputs are complete; our search ends when no better output is possible.
# In float32 the patience is high enough to find the same outputs. Quantized weights change a few outputs anyway, so there
# it is the lowest that does not reduce quality: 1, CTranslate2's default, reduced it more than quantization (docs/log.md).
PATIENCE: dict[str, dict[str, float]] = {"best": {"float32": 4, "rounded": 1.5}, "lists": {"float32": 16, "rounded": 2}}
# Settings of a request; `refusal` looks at the kind of length penalty.
SUPPORTED = frozenset(
    {
        *("beam", "n_best", "alpha", "length_penalty", "max_extra", "allow_unknown", "log_probs"),
        *("sampling", "temperature", "top_k", "top_p", "seed"),
    }
)
IMPOSSIBLE = -1e9  # CTranslate2 gives outputs that must not be chosen a log-probability below this


def refusal(request: SearchRequest, longest: int) -> str:
    """Why CTranslate2 cannot serve this request for outputs of up to `longest` tokens; empty if it can."""
    if request.constrained:
        return "it does not support terms that must occur"
    if request.aligned or request.replace_unknown:
        return "alignments need attention weights, which it does not return"
    if setting := request.refusal(SUPPORTED):
        return f"it does not support {setting}"
    beam_ranks = request.beam > 1 and not request.sampling
    if beam_ranks and request.length_penalty == "paper" and request.alpha != 0:
        return 'it supports the length penalty n^alpha only, not length_penalty = "paper"'
    if longest > POSITIONS:
        return f"max_extra = {request.max_extra} is too large: its outputs have at most {POSITIONS} tokens"
    return ""


@dataclass
class Ct2Output:
    """An output of CTranslate2."""

    tokens: list[int]  # without `</s>`
    ended: bool  # with `</s>`; otherwise it was broken off at the limit
    score: float = math.nan  # its log-probability / n^alpha


@dataclass
class Job:
    """A block being searched."""

    block: SearchBlock
    limits: list[int]  # the maximum number of tokens of the outputs of each line, including `</s>`
    workers: Any
    found: list[list[Ct2Output]]
    power: float = 0  # scores are divided by n^power
    waiting: int = 0  # batches that are not finished


@dataclass(frozen=True)
class Ct2Batch:
    """Lines of a job, and their future results."""

    job: Job
    numbers: list[int]
    results: list[Any] = field(repr=False)


class Ct2Engine:
    """A CTranslate2 model on the CPU's cores."""

    concurrent: ClassVar = True
    spares_cores: ClassVar = False
    BATCH_POSITIONS = 512  # of the sources that a core searches at once, each counted once per beam
    WIDE = 1_024  # d_model from which several threads for one sentence pay off
    AHEAD = 4  # batches in flight for each core: enough to keep all cores busy, few enough to stop soon

    def __init__(
        self,
        model: Ct2Model,
        config: TransformerConfig,
        vocabularies: Vocabularies,
        quantization: Quantization = "int8",
        threads: int = 0,
        shortlist: bool = False,
    ) -> None:
        check_runs(quantization)
        self.model, self.config, self.quantization, self.shortlist = model, config, quantization, shortlist
        self.longest = longest_output(config)
        self.rounding = "float32" if quantization == "float32" else "rounded"
        self.threads = threads or available_cores()
        self.source_names = vocabularies.source.pieces(range(vocabularies.source.pad))
        self.target_names = vocabularies.target.pieces(range(vocabularies.target.pad))
        self.target_ids = {name: number for number, name in enumerate(self.target_names)}

    # --- searching -----------------------------------------------------------------------------------------------

    def stream(self, blocks: Iterable[SearchBlock], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        """For each block, the hypotheses for each of its sources, best first; the next block is read meanwhile."""
        jobs: deque[Job] = deque()
        in_flight: deque[Ct2Batch] = deque()
        for number, block in enumerate(blocks):
            job = self._job(block, request.drawing(number))
            jobs.append(job)
            batches = list(self._batches(job, request))
            job.waiting = len(batches)
            for numbers in batches:
                if len(in_flight) >= self.AHEAD * self.threads:
                    self._finish_batch(in_flight.popleft())
                    yield from self._complete(jobs, request)
                in_flight.append(self._launch(job, numbers, request))
            while block.paused and in_flight:
                self._finish_batch(in_flight.popleft())
            yield from self._complete(jobs, request)  # a block of empty lines has no batches
        while in_flight:
            self._finish_batch(in_flight.popleft())
            yield from self._complete(jobs, request)

    def _complete(self, jobs: deque[Job], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        while jobs and jobs[0].waiting == 0:
            yield self._finish(jobs.popleft(), request)

    def _job(self, block: SearchBlock, request: SearchRequest) -> Job:
        limits = request.limits(block, self.longest)
        if request.sampling:
            workers = self._seeded(request.seed)
        else:
            workers = self._one if len(block.sources) == 1 else self._many
        return Job(block, limits, workers, [[] for _ in limits], _power(request))

    def _batches(self, job: Job, request: SearchRequest) -> Iterator[list[int]]:
        """Indices of lines of similar length, longest first; lines with a prefix are separate from the others."""
        lengths = [len(source) for source in job.block.sources]
        order = sorted(range(len(lengths)), key=lambda n: (not job.block.prefixes[n], -lengths[n]))
        for _, group in groupby(order, key=lambda n: not job.block.prefixes[n]):
            numbers = list(group)
            share = math.ceil(len(numbers) / self.threads)  # even a few lines are spread over all cores
            begin = 0
            while begin < len(numbers):
                rows = max(1, min(share, self.BATCH_POSITIONS // (lengths[numbers[begin]] * request.width)))
                yield numbers[begin : begin + rows]
                begin += rows

    def _launch(self, job: Job, numbers: list[int], request: SearchRequest) -> Ct2Batch:
        longest = max(job.limits[n] for n in numbers)
        forced = bool(job.block.prefixes[numbers[0]])
        options = self._options(request, longest, self._most(request) if forced else request.n_best)
        return Ct2Batch(job, numbers, self._translate(job, numbers, asynchronous=True, **options))

    def _finish_batch(self, batch: Ct2Batch) -> None:
        self._collect(batch)
        batch.job.waiting -= 1
        batch.job.block.searched(len(batch.numbers))

    def _collect(self, batch: Ct2Batch) -> None:
        for number, result in zip(batch.numbers, batch.results, strict=True):
            batch.job.found[number] = self._read(result.result(), batch.job.power)

    def _finish(self, job: Job, request: SearchRequest) -> list[list[Hypothesis]]:
        if request.sampling or request.beam == 1:
            self._cut(job)
        else:
            self._search_again(job, request)
        return self._hypotheses(job, request)

    def _cut(self, job: Job) -> None:
        """Cut outputs at the limit of their own line; without a beam, what follows does not affect what precedes."""
        for found, limit in zip(job.found, job.limits, strict=True):
            for one in found:
                if len(one.tokens) >= limit:
                    one.tokens, one.ended = one.tokens[: limit - 1], False

    def _search_again(self, job: Job, request: SearchRequest) -> None:
        """Search lines whose outputs exceed their limit again, each with its own limit, which can change the whole beam."""
        over = [
            n
            for n, (found, limit) in enumerate(zip(job.found, job.limits, strict=True))
            if any(not one.ended or len(one.tokens) >= limit for one in found)
        ]
        asked: list[Ct2Batch] = []
        for (limit, _), group in groupby(
            sorted(over, key=lambda n: self._alike(job, n)), key=lambda n: self._alike(job, n)
        ):
            numbers = list(group)
            options = self._options(request, limit, self._most(request)) | {"max_batch_size": self.BATCH_POSITIONS}
            results = self._translate(job, numbers, batch_type="tokens", asynchronous=True, **options)
            asked.append(Ct2Batch(job, numbers, results))
        for batch in asked:
            self._collect(batch)
        for number in over:
            if job.limits[number] == 1:
                job.found[number] = [Ct2Output([], ended=False)]

    def _alike(self, job: Job, number: int) -> tuple[int, bool]:
        return job.limits[number], bool(job.block.prefixes[number])

    def _most(self, request: SearchRequest) -> int:
        """The number of outputs to request when we rank them ourselves: all that CTranslate2 completes.

        CTranslate2 ignores the log-probability of a prefix, and that of `</s>` in an output that is broken off at the length
        limit. In its ranking, outputs broken off at the limit would displace better ones that ended before it.
        """
        if request.sampling or request.beam == 1:
            return request.n_best
        return round(request.beam * PATIENCE["lists"][self.rounding])

    def _options(self, request: SearchRequest, limit: int, outputs: int) -> dict[str, Any]:
        """CTranslate2's options for this many outputs of up to `limit` tokens, including `</s>`."""
        if request.sampling:
            # With top_k = 1 CTranslate2 searches greedily and returns a single output.
            how: dict[str, Any] = {
                "beam_size": 1,
                "num_hypotheses": 1 if request.top_k == 1 else request.n_best,
                "sampling_topk": min(request.top_k, len(self.target_names)),
                "sampling_topp": request.top_p,
                "sampling_temperature": request.temperature,
            }
        else:
            how = {
                "beam_size": request.beam,
                "num_hypotheses": outputs,
                "length_penalty": _power(request),
                "patience": PATIENCE["best" if outputs == 1 else "lists"][self.rounding],
                "return_scores": request.beam > 1 or request.log_probs != "none",
            }
        lengths = {"max_decoding_length": max(1, limit - 1), "min_decoding_length": 0, "max_input_length": 0}
        # It excludes `<unk>` before the softmax, we after it: log-probabilities differ by the share of `<unk>`.
        which = {"disable_unk": not request.allow_unknown, "use_vmap": self.shortlist}
        return {"return_end_token": True, **which, **lengths, **how}

    def _translate(self, job: Job, numbers: list[int], **options: Any) -> list[Any]:
        sources = [list(map(self.source_names.__getitem__, job.block.sources[n])) for n in numbers]
        prefixes = [list(map(self.target_names.__getitem__, job.block.prefixes[n])) for n in numbers]
        return job.workers.translate_batch(sources, prefixes if any(prefixes) else None, **options)

    def _read(self, result: Any, power: float) -> list[Ct2Output]:
        scores = result.scores or [math.nan] * len(result.hypotheses)
        return [
            self._output(names, score)
            for names, score in zip(result.hypotheses, scores, strict=True)
            if not score * len(names) ** power < IMPOSSIBLE
        ]

    def _output(self, names: list[str], score: float) -> Ct2Output:
        tokens = list(map(self.target_ids.__getitem__, names))
        ended = bool(tokens) and tokens[-1] == EOS
        return Ct2Output(tokens[:-1] if ended else tokens, ended, score)

    # --- figures -------------------------------------------------------------------------------------------------

    def _hypotheses(self, job: Job, request: SearchRequest) -> list[list[Hypothesis]]:
        """The outputs of each line, best first, with the log-probabilities that the request needs."""
        again = [n for n, found in enumerate(job.found) if self._must_score(job, n, found, request)]
        pairs = [(n, one) for n in again for one in job.found[n]]
        targets = [[*one.tokens, EOS] for _, one in pairs]
        scored = self._score(job.workers, [job.block.sources[n] for n, _ in pairs], targets)
        values = {id(one): log_probs for (_, one), log_probs in zip(pairs, scored, strict=True)}
        power, penalty = _power(request), length_penalty(request.length_penalty, request.alpha)
        return [
            self._ranked([_hypothesis(one, values.get(id(one)), power, penalty) for one in found], request)
            for found in job.found
        ]

    def _must_score(self, job: Job, number: int, found: list[Ct2Output], request: SearchRequest) -> bool:
        """Whether the outputs must be scored again because CTranslate2's own scores are not enough."""
        if request.log_probs == "none" and (request.sampling or request.beam == 1):
            return False
        forced, broken_off = bool(job.block.prefixes[number]), not all(one.ended for one in found)
        return request.log_probs == "tokens" or request.sampling or forced or broken_off

    def _ranked(self, found: list[Hypothesis], request: SearchRequest) -> list[Hypothesis]:
        if request.sampling:
            return found * (request.n_best if request.top_k == 1 else 1)
        if len(found) == 1:
            return found
        unique = {tuple(one.tokens): one for one in found}
        return sorted(unique.values(), key=lambda one: -one.score)[: request.n_best]

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of each token of each given target, `</s>` last."""
        return self._score(self._one if len(sources) == 1 else self._many, sources, targets)

    def _score(self, workers: Any, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        if not sources:
            return []
        results = workers.score_batch(
            [[self.source_names[i] for i in source] for source in sources],
            [[self.target_names[i] for i in target[:-1]] for target in targets],
            max_batch_size=self.BATCH_POSITIONS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    # --- workers -------------------------------------------------------------------------------------------------

    @cached_property
    def _one(self) -> Any:
        """The worker for a single sentence: all cores share its work if the model is large enough."""
        return self._load(1, self.threads) if self.config.d_model >= self.WIDE else self._many

    @cached_property
    def _many(self) -> Any:
        """One worker for each core: the highest throughput."""
        return self._load(self.threads, 1)

    def _seeded(self, seed: int) -> Any:
        """A new worker that samples with this seed; its thread takes the seed when it first samples."""
        ctranslate2.set_random_seed(seed % 2**32)
        return self._load(1, self.threads)

    def _load(self, workers: int, threads: int) -> Any:
        try:
            return ctranslate2.Translator(
                str(self.model.path),
                device="cpu",
                compute_type=self.quantization,
                inter_threads=workers,
                intra_threads=threads,
                max_queued_batches=-1,
            )
        except (RuntimeError, ValueError, IndexError) as error:  # what it raises for damaged files
            raise not_loaded(self.model, error) from None


def check_runs(quantization: Quantization) -> None:
    """Refuse a quantization that this CPU does not support: CTranslate2 would silently use another."""
    able = ctranslate2.get_supported_compute_types("cpu")
    if quantization not in able:
        raise SettingError(
            f"quantization = {quantization}: not supported by CTranslate2 on this CPU; use int8 or float32"
        )


def _power(request: SearchRequest) -> float:
    """CTranslate2's alpha. At 0 it would stop at the first complete output, before there are n of them."""
    return request.alpha if request.alpha or request.n_best == 1 else 1e-9


def _hypothesis(one: Ct2Output, log_probs: list[float] | None, power: float, penalty: Penalty) -> Hypothesis:
    """An output with our score; CTranslate2's score is the log-probability / n^power."""
    length = float(len(one.tokens) + 1)
    total = one.score * length**power if log_probs is None else sum(log_probs)
    return Hypothesis(one.tokens, total / penalty(length), total, log_probs or [])
