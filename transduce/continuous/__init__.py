"""Continuous batching: the fast decoder for GPUs, in which a finished sentence hands its slot to the next one.

A batch of fixed sentences is as slow as its longest one, and Python launches the small kernels of a step more slowly than
a GPU runs them. Here every sentence occupies a *slot* of a pool. A step runs over all slots, each at its own position; a
slot whose sentence is finished takes the next one, which may come from the next block of lines. All memory is allocated
once, so the steps are captured as CUDA graphs and replayed (docs/decisions/0011-sentences-in-slots.md).

Three threads work on one stream. Each hands blocks of sentences to the next through a queue of two::

    thread 1: input                  thread 2: device                       caller's thread: output
    prefetch(blocks)                 prefetch(ContinuousBatcher.decode)     reads ContinuousBatcher.stream
    ------------------------         -----------------------------------    ---------------------------
    reads and tokenises lines,  -->  Scheduler: longest sentences first     detokenises hypotheses,
    computes length limits           SlotPool.run:                     -->  writes lines
                                       encode -> enter slots
                                       step, step, check -> release slots
                                       copy outputs to the host
                                          |              ^
                                          | CUDA graphs  | finished slots, one check later
                                          v              |
                                     =========== GPU ===========

Thread 2 is the only one that launches work on the GPU. It never waits for the input while it has sentences, and it waits
for the GPU only when it reads the answer to a check, while the steps after that check are under way.

Who owns what::

    SlotEngine (translator)    the model; decides whether a request goes through slots or through the plain engine
      ContinuousBatcher        a copy of the weights (Worker), updated whenever a stream begins; the idle pools;
        |                      a lock for both, because several streams may run at once
        SlotPool               slots of one size, taken by one stream at a time; never shared while in use
          SlotDecoder          the caches: keys and values of sources and outputs, and the table of beams
          SlotGreedySearch     the state of the search: tokens, scores, positions, finished hypotheses
          or SlotBeamSearch
          captured graphs      one step; starting a group of sentences; one finder per n-best
          SourceEncoder        one per width of source, each with its captured graph
      one stream
        Scheduler              sentences that wait, and blocks that are not complete
        SlotTable              which sentence is in which slot, as far as the host knows

Capturing graphs is serialised for the whole process by `transduce.device.CAPTURING`. On a CPU nothing is captured and the
rest is the same code, which is how most tests run it.

Every translated line creates a few Python lists. A program that translates large files on a GPU gains up to a fifth by
raising the first threshold of Python's garbage collector, as the command line does: `gc.set_threshold(50_000, 10, 10)`.
"""

from transduce.continuous.batcher import ContinuousBatcher, decoding_memory
from transduce.continuous.decoder import SlotDecoder, understands
from transduce.continuous.sentences import BeamOptions, SentenceBlock

__all__ = ["BeamOptions", "ContinuousBatcher", "SentenceBlock", "SlotDecoder", "decoding_memory", "understands"]
