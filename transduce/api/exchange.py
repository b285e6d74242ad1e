"""Other toolkits, and other programs: export, import, serve."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from transduce.api.options import Weights, reporter
from transduce.audio.recording import TYPES
from transduce.cores import tune_idle_threads
from transduce.errors import MissingExtra
from transduce.files import check_new
from transduce.translator import LoadOptions, open_folder

if TYPE_CHECKING:
    from transduce.exchange import ImportSummary, Verified, VerifiedText


def export(
    run: str | Path,
    folder: str | Path,
    to: Literal["hf", "ct2", "onnx"],
    *,
    weights: Weights = "auto",
    sample: str | Path = "",
    threads: int = 0,
    quiet: bool = False,
) -> "Verified | VerifiedText":
    """Export a model for Hugging Face transformers, CTranslate2 or onnxruntime.

    The export is kept only if the other runtime gives the same logits and translations on sample sentences, or, for a
    language model, the same logits and continuations on sample texts.

    Args:
        run: A run folder.
        folder: The folder to create.
        to: "hf", "ct2" or "onnx"; each needs the extra of its name, as in `pip install "transduce[hf]"`.
        weights: Which weights of the run.
        sample: A file of source lines, or of text, to compare on; by default the validation data of the run.
        threads: CPU threads; 0 means one for each core.
        quiet: Print no messages to stderr.

    Returns:
        What was compared, and how far the runtimes differed.

    Example:
        >>> transduce.export("runs/en-de", "exported", "hf").summary()
    """
    tune_idle_threads()
    open_folder(run)  # mistakes in the names of folders are refused before torch is imported
    check_new(Path(folder))
    from transduce.exchange import export_model

    return export_model(run, folder, to, weights=weights, sample=str(sample), threads=threads, say=reporter(quiet))


def import_model(source: str | Path, run: str | Path) -> "ImportSummary":
    """Convert a Marian model, in Hugging Face's or in Marian's own format, to a run folder.

    Example:
        >>> transduce.import_model("opus-mt-en-de", "runs/opus-en-de").notes
    """
    tune_idle_threads()
    from transduce.exchange import import_model as write_imported

    return write_imported(source, run)


def serve(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 5000,
    allowed_hosts: Sequence[str] = (),
    keys: str | Path = "",
    open: bool = False,
    replicas: int = 1,
    batch_lines: int = 16,
    queue_requests: int = 128,
    characters: int = 50_000,
    generated_tokens: int = 4_096,
    audio_bytes: int = 25_000_000,
    audio_seconds: float = 600.0,
    audio_types: Sequence[str] = TYPES,
    uploads: int = 16,
    options: LoadOptions | None = None,
) -> NoReturn:
    """Serve models over HTTP until SIGTERM or Ctrl-C, then end the process. Needs the extra `transduce[serve]`.

    Args:
        models: Run folders, or `SOURCE-TARGET=FOLDER` as in "en-de=runs/mine". Language models and speech models: `NAME=FOLDER`.
        host: The address to listen on.
        port: The port to listen on.
        allowed_hosts: Host names under which clients reach the server, besides localhost and IP addresses.
        keys: A file of API keys; only requests with a key are then answered.
        open: Accept requests from other machines without keys.
        replicas: How many servers a proxy divides the requests among; each admits its share of a key's rate.
        batch_lines: The maximum number of lines in a batch.
        queue_requests: The maximum number of requests at a time; further ones are refused.
        characters: The maximum number of characters in the texts of a request.
        generated_tokens: The maximum number of tokens that a language model generates for a request.
        audio_bytes: The maximum size of a recording.
        audio_seconds: The maximum length of a recording.
        audio_types: The accepted types of recordings, of "wav", "flac", "ogg" and "mp3".
        uploads: The maximum number of recordings in memory at a time; further ones are refused.
        options: How to load the models.

    Example:
        >>> transduce.serve(["runs/en-de"], port=8080)
    """
    _require("fastapi", "granian", "prometheus_client", extra="serve")
    tune_idle_threads()
    from transduce.server.running import serve as run_server
    from transduce.server.settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        allowed_hosts=tuple(allowed_hosts),
        keys=str(keys),
        open=open,
        replicas=replicas,
        batch_lines=batch_lines,
        queue_requests=queue_requests,
        characters=characters,
        generated_tokens=generated_tokens,
        audio_bytes=audio_bytes,
        audio_seconds=audio_seconds,
        audio_types=tuple(audio_types),
        uploads=uploads,
    )
    run_server(models, settings, options or LoadOptions())


def _require(*packages: str, extra: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, extra)
