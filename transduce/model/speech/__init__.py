"""Speech recognition: frames of sound through two convolutions into the layers of a Transformer, with CTC in addition to its decoder."""

from transduce.model.speech.speech_model import SpeechModel

__all__ = ["SpeechModel"]
