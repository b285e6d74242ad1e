"""Model folders that tests make: random weights whose outputs end, over small vocabularies of real words."""

import dataclasses
import random
from pathlib import Path

import torch

from transduce.checkpoint import RunFolder, write_bytes, write_tensors, write_text
from transduce.config import Config, DataConfig, DecoderConfig, SearchConfig, SpeechConfig, TransformerConfig
from transduce.model import Decoder, Model, Transformer
from transduce.model.speech import SpeechModel
from transduce.text import EOS, Vocabularies, Vocabulary, train_vocabulary
from transduce.translator import write_config
from transduce.translator.folder import SEAL

WORDS = (
    "the cat sat on a mat while seven small dogs ran under old bridges in winter rain and nobody knew why "
    "they had come so far from home only to look at water moving slowly past stones"
).split()
GERMAN = "der Hund läuft über die grüne Wiese und niemand weiß warum es so spät noch regnet am Fluß".split()
SHAPE = TransformerConfig(
    d_model=64, d_ff=96, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0, output_bias=True
)


def lines(count: int, seed: int = 1, words: list[str] = WORDS) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(count)]


def vocabularies(joint: bool, units: str = "bpe") -> Vocabularies:
    if joint:
        one = train_vocabulary([*lines(200), *lines(200, words=GERMAN)], units=units, size=400)  # type: ignore[arg-type]
        return Vocabularies(one, one)
    return Vocabularies(
        train_vocabulary(lines(200), units=units, size=380),  # type: ignore[arg-type]
        train_vocabulary(lines(200, words=GERMAN), units=units, size=350),  # type: ignore[arg-type]
    )


def ends_its_sentences(config: TransformerConfig, source_size: int, target_size: int) -> Transformer:
    """A random model of peaked distributions whose `</s>` grows likely with the position.

    A random model rambles to the limit. So one feature is left to the position alone, a slow sine that no sub-layer
    writes to, and only `</s>` looks at it.
    """
    torch.manual_seed(1)
    model = Transformer(config, source_size, target_size).eval()
    last_norm = model.decoder_norm if config.norm == "pre" else model.decoder[-1].feed_forward_residual.norm
    sine = 20  # sin(position / 18), which rises up to the 28th place
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            if name.endswith(("output.weight", "output.bias", "outer.weight", "outer.bias", "norm.bias")):
                parameter[sine] = 0
            if name.endswith("positions.table"):
                parameter[:, sine] = (torch.arange(len(parameter)) / 18).sin()
        last_norm.weight.mul_(2 * torch.randn(config.d_model).sign())
        last_norm.weight[sine] = 8
        for table in (model.source_embedding, model.target_embedding, model.output_embedding):
            table.weight[:, sine] = 0
        model.output_embedding.weight[EOS, sine] = 30
        if model.output_bias is not None:
            model.output_bias[EOS] -= 5
    return model


def write_folder(
    path: Path,
    model: TransformerConfig = SHAPE,
    *,
    joint: bool = True,
    search: SearchConfig | None = None,
    **data: object,
) -> Path:
    """A model folder as training leaves it, with a random model in it."""
    both = vocabularies(joint)
    return write_model(path, ends_its_sentences(model, both.source.size, both.target.size), both, search, **data)


def write_model(
    path: Path, model: Model, both: Vocabularies, search: SearchConfig | None = None, **data: object
) -> Path:
    folder = RunFolder(path)
    path.mkdir(parents=True)
    joint = both.source is both.target
    settings = DataConfig(joint=joint, source_units="bpe", target_units="bpe", languages=("en", "de"))
    settings = dataclasses.replace(settings, **data)  # type: ignore[arg-type]
    config = Config(model=model.config, data=settings, search=search or SearchConfig(length_penalty="power", alpha=1.0))
    for side, vocabulary in [("joint", both.source)] if joint else [("source", both.source), ("target", both.target)]:
        write_bytes(folder.vocabulary(side), vocabulary.model)
    write_tensors(folder.weights("best"), dict(model.named_parameters()))
    write_text(folder.card, "# a model: en -> de\n")
    write_config(folder, config)
    return path


def write_language_model(path: Path, vocabulary: Vocabulary, context: int = 64, **data: object) -> Path:
    """The folder of a random language model whose distributions are peaked."""
    torch.manual_seed(3)
    shape = DecoderConfig(
        family="decoder", context=context, d_model=32, d_ff=48, num_heads=2, num_decoder_layers=1, dropout=0.0
    )
    model = Decoder(shape, vocabulary.size, vocabulary.size)
    with torch.no_grad():
        model.output_embedding.weight.mul_(2)
    both = Vocabularies(vocabulary, vocabulary)
    return write_model(path, model, both, **({"task": "text", "documents": "line"} | data))  # type: ignore[arg-type]


def edit_config(run: Path, before: str, after: str) -> None:
    """A setting changed by hand, without the hash in the first line, as people are told to."""
    config = RunFolder(run).config
    text = config.read_text()
    text = text.partition("\n")[2] if text.startswith(SEAL) else text
    assert before in text
    config.write_text(text.replace(before, after))


def write_character_model(path: Path, **data: object) -> Path:
    """The folder of a small random language model over characters."""
    torch.manual_seed(2)
    one = train_vocabulary(lines(200), units="char", size=40, normalization="identity")
    shape = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_decoder_layers": 1, "context": 32}
    model = Decoder(DecoderConfig(family="decoder", dropout=0.0, **shape), one.size, one.size)  # type: ignore[arg-type]
    settings = {"task": "text", "source_units": "char", "target_units": "char", "languages": (), **data}
    return write_model(path, model, Vocabularies(one, one), **settings)


def write_speech_model(path: Path, of_data: dict[str, float] | None = None, **settings: float) -> Path:
    """The folder of a small random speech model; `settings` are those of the model."""
    torch.manual_seed(3)
    one = train_vocabulary(lines(200), units="char", size=40)
    shape = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    config = SpeechConfig(family="speech", dropout=0.0, convolution=3, **shape, **settings)  # type: ignore[arg-type]
    model = SpeechModel(config, one.size, one.size)
    data = {"task": "speech", "source_units": "char", "target_units": "char", "languages": ()}
    return write_model(
        path, model, Vocabularies(one, one), SearchConfig(beam=2, max_extra=5), **data, **(of_data or {})
    )
