"""A model folder as objects: configuration, vocabularies, weights. Needs nothing outside the folder."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transduce import __version__
from transduce.checkpoint import RunFolder, Tensors, read_about, read_shapes, read_tensors, write_text
from transduce.config import FAMILIES, Config, Layers, ModelConfig, build, from_toml, to_toml, without_removed
from transduce.errors import DamagedFile, RunError, SettingError
from transduce.files import read_plain
from transduce.text import Vocabularies, Vocabulary

if TYPE_CHECKING:
    from torch import nn

    from transduce.model import Model

Shapes = Mapping[str, Sequence[int]]
LARGEST_CONFIG = 10_000_000  # bytes
SEAL = "# sha256 of the lines below: "


@dataclass(frozen=True)
class ModelFolder:
    """The settings and vocabularies of a model folder; the weights are read on demand."""

    folder: RunFolder
    config: Config
    vocabularies: Vocabularies

    def weights(self, which: str = "auto") -> Path:
        """The file of these weights, after checking its version and vocabularies; `auto` is the better validated of two."""
        path = self.folder.weights(better_weights(self.folder) if which == "auto" else which)
        if not path.exists():
            missing = "weights: neither best.safetensors nor last.safetensors" if which == "auto" else path.name
            raise RunError(f"{self.folder.path}: the folder has no {missing}{self._what_to_do(which)}")
        with self._advice_for(path):
            check_version(path)
        self._check_vocabularies(path)
        return path

    @contextmanager
    def _advice_for(self, path: Path) -> Iterator[None]:
        """Damaged weights are refused with what to do."""
        try:
            yield
        except DamagedFile as error:
            others = [name for name in ("best", "last", "averaged") if self.folder.weights(name) != path]
            usable = [f", or use --weights {name}" for name in others if self.folder.weights(name).exists()]
            raise DamagedFile(f"{error}: restore the file from a copy{usable[0] if usable else ''}") from None

    def _what_to_do(self, which: str) -> str:
        """Of a run that was stopped before its first checkpoint, which command trains it."""
        trains = which == "auto" and self.folder.data.exists()
        return f"; `transduce train {self.folder.path}` trains it" if trains else ""

    def model(self, which: str = "auto") -> "Model":
        """The model with these weights, ready to translate."""
        from transduce.model import uninitialised_model

        path = self.weights(which)
        with self._advice_for(path):
            check_shapes(self.shapes(), read_shapes(path), str(path))  # before memory is asked for
            model = uninitialised_model(self.config.model, self.vocabularies.source.size, self.vocabularies.target.size)
            load_weights(model, read_tensors(path), str(path))
        return model.eval()

    def shapes(self) -> Shapes:
        """The name and shape of every tensor that a model with these settings has."""
        return parameter_shapes(self.config.model, self.vocabularies)

    def _check_vocabularies(self, path: Path) -> None:
        """Refuse weights that were trained with other vocabularies: ids would mean other tokens."""
        about = read_about(path)
        for side, vocabulary in (("source", self.vocabularies.source), ("target", self.vocabularies.target)):
            if about.get(f"{side}_vocabulary", vocabulary.digest) != vocabulary.digest:
                file = self.folder.vocabulary("joint" if self.config.data.joint else side)
                raise DamagedFile(
                    f"{file}: modified, incomplete or not the vocabulary that {path.name} was trained with"
                )


def open_folder(path: str | Path) -> ModelFolder:
    """Open a model folder: read its settings and vocabularies."""
    folder = RunFolder(Path(path))
    if not folder.config.is_file():
        raise RunError(f"{path}: {_what_it_is(folder.path)}")
    config = read_config(folder)
    return ModelFolder(folder, config, read_vocabularies(folder, config))


def _what_it_is(path: Path) -> str:
    """What a path is that is not a model folder, and what to do."""
    train = f"`transduce train {path} ...` creates one"
    if path.is_file():
        return "a file, not a model folder" + (
            f"; did you mean {path.parent}?" if RunFolder(path.parent).config.is_file() else ""
        )
    if not path.is_dir():
        return f"no such folder; {train}"
    if kind := _kind_of_hf(path):
        return f"a Hugging Face folder ({kind}); `transduce import {path} RUN` converts Marian models"
    nothing = "not a model folder (it has no config.toml)"
    if len(inside := list(path.glob("*/config.toml"))) == 1:
        return f"{nothing}; did you mean {inside[0].parent}?"
    return nothing if any(path.iterdir()) else f"{nothing}; {train}"


def _kind_of_hf(path: Path) -> str:
    """The model type of a Hugging Face folder; empty for any other folder."""
    try:
        found = json.loads(read_plain(path / "config.json", LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(found.get("model_type", "")) if isinstance(found, dict) else ""


def write_config(folder: RunFolder, config: Config) -> None:
    """Write the settings of a run, below a comment with their hash."""
    text = to_toml(config)
    write_text(folder.config, f"{SEAL}{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def _unsealed(text: str, path: Path) -> str:
    """The settings without the comment, which the first versions did not write and people who edit the file delete."""
    first, _, rest = text.partition("\n")
    if not re.fullmatch(f"{re.escape(SEAL)}[0-9a-f]{{64}}", first):
        return text
    if first != SEAL + hashlib.sha256(rest.encode()).hexdigest():
        raise DamagedFile(
            f"{path}: modified or incomplete (its hash does not match); if you edited it on purpose, delete its first line"
        )
    return rest


def read_config(folder: RunFolder) -> Config:
    """The settings of a run, without features that were removed since; an altered file is refused."""
    layers = read_layers(folder)
    if isinstance(family := layers["model"].get("family", ""), str) and family not in {"", *FAMILIES}:
        raise SettingError(
            f"{folder.config}: model.family = {family}: this family is not part of Transduce: run the file that registers it "
            "(`python FILE.py`) instead of `transduce`"
        )
    try:
        return build(without_removed(layers))
    except SettingError as error:
        raise SettingError(f"{folder.config}: {error}") from None


def read_layers(folder: RunFolder) -> Layers:
    """The settings of a run as they are written in its `config.toml`; a modified or incomplete file is refused."""
    try:
        text = read_plain(folder.config, LARGEST_CONFIG).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(f"{folder.config}: cannot be read ({getattr(error, 'strerror', error)})") from None
    layers = from_toml(_unsealed(text, folder.config), str(folder.config))
    if missing := [name for name in ("model", "data", "train", "search") if name not in layers]:
        raise DamagedFile(f"{folder.config}: incomplete: it has no {', '.join(f'[{name}]' for name in missing)}")
    return layers


def write_shortlist(folder: RunFolder, text: str) -> None:
    """Write the shortlist, and its hash to a separate file, because CTranslate2 reads the shortlist itself."""
    write_text(folder.shortlist, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_text(folder.shortlist_hash, f"{digest}  {folder.shortlist.name}\n")


def shortlist_digest(folder: RunFolder) -> str:
    """The hash of the shortlist of a model, or an empty string without one; a shortlist that was changed is refused."""
    if not folder.shortlist.exists():
        return ""
    digest = hashlib.sha256(read_plain(folder.shortlist)).hexdigest()
    if folder.shortlist_hash.exists() and not read_plain(folder.shortlist_hash).startswith(digest.encode()):
        raise DamagedFile(
            f"{folder.shortlist}: modified or incomplete (it does not match {folder.shortlist_hash.name}); "
            f"`transduce shortlist {folder.path}` creates it again"
        )
    return digest


def read_vocabularies(folder: RunFolder, config: Config) -> Vocabularies:
    """The vocabularies of a folder, those that its weights were trained with."""
    source, target = _known_digests(folder)
    if config.data.joint:
        joint = Vocabulary.load(folder.vocabulary("joint"), source)
        return Vocabularies(joint, joint)
    return Vocabularies(
        Vocabulary.load(folder.vocabulary("source"), source), Vocabulary.load(folder.vocabulary("target"), target)
    )


def _known_digests(folder: RunFolder) -> tuple[str, str]:
    """The hashes of the vocabularies that the weights of a folder record; empty if they cannot be read."""
    for which in ("best", "last", "averaged"):
        if folder.weights(which).exists():
            try:
                about = read_about(folder.weights(which))
            except RunError:
                continue  # reported when these weights are loaded
            return about.get("source_vocabulary", ""), about.get("target_vocabulary", "")
    return "", ""


def better_weights(folder: RunFolder) -> str:
    """`averaged` if it validated better than `best`, else `best`; `last` before the first validation."""
    if not folder.weights("best").exists():
        return "last"
    if not folder.weights("averaged").exists():
        return "best"
    best, averaged = read_about(folder.weights("best")), read_about(folder.weights("averaged"))
    return "averaged" if _rank(averaged) >= _rank(best) else "best"


def check_version(path: Path) -> None:
    """Refuse weights of a later version, whose meaning this version cannot know."""
    written = read_about(path).get("transduce", __version__)
    if _numbers(written)[:2] > _numbers(__version__)[:2]:
        raise RunError(
            f"{path}: written by transduce {written}, but this is {__version__}: install version {written} or later"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _rank(about: dict[str, str]) -> float:
    """Higher is better, whatever the metric."""
    return float(about.get("rank", "-inf"))


def parameter_shapes(config: ModelConfig, vocabularies: Vocabularies) -> Shapes:
    """The name and shape of every parameter of a model; none of them is allocated."""
    from transduce import model

    return model.parameter_shapes(config, vocabularies.source.size, vocabularies.target.size)


def check_shapes(expected: Shapes, found: Shapes, where: str) -> None:
    """Refuse parameters that do not fit the model, by name."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise RunError(f"{where}: has no {name}, which this model needs")
        if name not in expected:
            raise RunError(f"{where}: has {name}, which this model does not have")
        if list(expected[name]) != list(found[name]):
            raise RunError(
                f"{where}: {name} has shape {list(found[name])}, but this model needs {list(expected[name])}"
            )


def load_weights(model: "nn.Module", tensors: Tensors, where: str) -> None:
    """Copy tensors into the parameters and buffers of the same name; what does not fit is refused by name."""
    import torch

    from transduce.model import stored_tensors

    own = stored_tensors(model)
    check_shapes({n: t.shape for n, t in own.items()}, {n: t.shape for n, t in tensors.items()}, where)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
