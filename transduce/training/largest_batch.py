"""The largest batch of a run is computed before its first step: a lack of memory shows now and not in an hour."""

from transduce.errors import TrainingError
from transduce.training.layout import BatchLayout
from transduce.training.update import Update


class OutOfMemory(TrainingError):
    """The largest batch does not fit into the memory of the device."""


def try_largest_batch(update: Update, layout: BatchLayout) -> None:
    """Compute the gradients of the largest batch, and forget them. On a GPU this compiles kernels."""
    try:
        update.add(layout.largest_work()[0], tokens=1)
    except (MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower():
            raise
        positions = layout.positions_of(layout.largest)
        raise OutOfMemory(
            f"out of memory: the largest batch has {positions:,} positions. Start a new run with "
            f"train.positions_per_microbatch below {positions}, or with a lower data.max_length (these settings cannot "
            "change when a run is resumed)"
        ) from None
    finally:
        update.forget()
    update.measured()
