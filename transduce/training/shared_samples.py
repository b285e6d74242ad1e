"""Sampled segmentations that several processes share: process 0 samples once per epoch, and the others read its file.

sentencepiece draws other random numbers in every process, even from the same seed, so they cannot all sample for themselves.
Knows stores and the meeting of the processes, but no batches and no training.
"""

from pathlib import Path

from transduce.data import Store, cache
from transduce.text import Vocabularies
from transduce.training.rendezvous import Meeting, OwnError


class SharedSamples(Store):
    """The training pairs of one of several processes, in the segmentations that process 0 sampled."""

    def __init__(self, path: Path, meeting: Meeting) -> None:
        super().__init__(path)
        self.meeting = meeting

    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> Store:
        topic = f"sampled for epoch {epoch}"
        if self.meeting.launch.number == 0:
            sampled = super().resampled(vocabularies, rate, seed, epoch)
            self.meeting.tell(topic, [sampled.path.name, cache.manifest(sampled.path)])
            return sampled
        name, manifest = self.meeting.hear(topic, f"process 0 to sample segmentations for epoch {epoch + 1}")
        path = self.path.parent / name
        if cache.manifest(path) != manifest:
            raise OwnError(
                f"{path}: missing, or not what process 0 sampled (data.subword_sampling): set data.cache to a folder that all "
                "machines share"
            )
        return Store(path)
