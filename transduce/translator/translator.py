"""The translator: lines of text in, translations out, in order, with any engine.

It turns lines into ids, and chooses the engine that searches. `TranslationBuilder` turns what the search found into text.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transduce.config import Config, ModelConfig, language_tag
from transduce.data.feature_symbols import FeatureEncoder
from transduce.errors import DataError, SettingError
from transduce.search import Hypothesis
from transduce.text import Vocabularies
from transduce.translator.alignment import Pairs, word_pairs
from transduce.translator.engine import UNBOUNDED, Engine, SearchBlock, Searched, SearchRequest, unwatched
from transduce.translator.engines import Engines, FolderEngines, LoadOptions, OneEngine, torch_engine
from transduce.translator.folder import open_folder
from transduce.translator.forms import LearnedLine, LineForms
from transduce.translator.inputs import InputLines, LineBlock, check_lines, check_prefixes, cut
from transduce.translator.outputs import Attention, Scored, Translation
from transduce.translator.translation_builder import TranslationBuilder
from transduce.translator.word_search import check_takes_words

if TYPE_CHECKING:
    from transduce.audio.utterances import Features
    from transduce.device import Device
    from transduce.model import Model
    from transduce.translator.evaluation import Evaluation
    from transduce.translator.split import SplitTranslation

NO_TAGS = "this model translates into one language, and its sources have no language tags (data.tags)"
LONGEST_SOURCE = 1_024  # tokens; longer lines are cut, and their translations say so


class Translator:
    """A trained model that translates strings. `transduce.load` returns one.

    Example:
        >>> translator = transduce.load("runs/en-de")
        >>> translator.translate(["a sentence"], beam=4)
        ['ein Satz']
    """

    def __init__(self, engines: Engines, vocabularies: Vocabularies, config: Config) -> None:
        self.engines, self.vocabularies, self.config = engines, vocabularies, config
        self.forms = LineForms(config.data, vocabularies.source.language_tags)
        self.sources = FeatureEncoder.of(config.data, vocabularies.source)
        self.reads_speech = config.data.task == "speech"  # sources are recordings, written as text
        self.longest_source = UNBOUNDED if self.reads_speech else longest_source(config.model)
        self._on_searched: Searched = unwatched

    @staticmethod
    def load(folder: str | Path, options: LoadOptions | None = None) -> "Translator":
        """The translator of a run folder. An engine is loaded when it is first needed, or by `ready`."""
        opened, options = open_folder(folder), options or LoadOptions()
        if opened.config.data.task == "text":
            raise SettingError(
                f"{folder}: a language model does not translate: use `transduce generate` or `transduce score --text`"
            )
        if options.ngram:
            check_takes_words(opened)
        engines = FolderEngines(opened, options, longest_source(opened.config.model))
        translator = Translator(engines, opened.vocabularies, opened.config)
        return translator.to(options.to) if options.to else translator

    @staticmethod
    def around(model: "Model", vocabularies: Vocabularies, config: Config, device: "Device") -> "Translator":
        """The translator of a model in memory."""
        return Translator(OneEngine(torch_engine(model, device, vocabularies)), vocabularies, config)

    @property
    def model(self) -> "Model":
        """The PyTorch model."""
        return self.engines.torch.model

    @property
    def device(self) -> "Device":
        """The device of the PyTorch model."""
        return self.engines.torch.device

    @property
    def digest(self) -> str:
        """A hash of weights, settings and vocabularies that identifies the model."""
        return self.engines.digest

    @property
    def _builder(self) -> TranslationBuilder:
        return TranslationBuilder(
            self.vocabularies, self.sources, self.engines, self.longest_source, not self.reads_speech
        )

    def unknown_in(self, text: str, ids: list[int]) -> int:
        """How many characters or symbols of a source are not in the vocabulary."""
        return self._builder.unknown(text, ids)

    @property
    def reads_features(self) -> bool:
        """Whether the training data had a column of features, so that sources are `word<TAB>FEATURES`."""
        columns = self.config.data.layout
        return columns is not None and bool(columns.features)

    @property
    def outputs_unknown(self) -> bool:
        """Whether an output can contain `<unk>`. A model that spells unknown words in bytes never writes it."""
        data = self.config.data
        return not (data.unknown == "bytes" and data.target_units in ("bpe", "unigram"))

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that the model translates into, where its sources have language tags; otherwise none."""
        return tuple(tag[2:-2] for tag in self.forms.tags)

    def to(self, language: str) -> "Translator":
        """The same model, translating into one of its target languages.

        Example:
            >>> transduce.load("runs/multilingual").to("de").translate(["a sentence"])
            ['ein Satz']
        """
        if language not in self.target_languages:
            known = (
                f"this model translates into {', '.join(self.target_languages)}" if self.target_languages else NO_TAGS
            )
            raise SettingError(f"target language '{language}': {known}")
        other = copy.copy(self)
        other.forms = replace(self.forms, tag=language_tag(language))
        data = self.config.data
        languages = (data.languages[0], language) if data.languages else ()  # metrics depend on the target language
        other.config = replace(self.config, data=replace(data, languages=languages))
        return other

    def ready(self, request: SearchRequest | None = None) -> "Translator":
        """Load the engine for this request now, so that errors appear before any input is read."""
        self.engines.searching(request or self.request())
        return self

    def request(self, **changes: float | bool | str | None) -> SearchRequest:
        """The search settings of this model, with changes; None keeps a setting."""
        return SearchRequest.of(self.config.search).but(**changes)

    def translate(
        self,
        lines: Sequence[str],
        request: SearchRequest | None = None,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        split: bool = False,
    ) -> list[str]:
        """The best translation of each line.

        Args:
            lines: Sentences, one per string. An empty line gives an empty translation.
            request: All search settings at once; by default those that the model was trained with.
            beam: Beam size; 1 is greedy search.
            alpha: Strength of the length penalty, from 0 to 10.
            split: Split each line into sentences first, and keep the text between them.

        Example:
            >>> transduce.load("runs/en-de").translate(["a sentence"], beam=4)
            ['ein Satz']
        """
        wanted = (request or self.request()).but(beam=beam, alpha=alpha, log_probs="none", n_best=1, constrained=False)
        if split:
            return [line.text for line in self.stream_split(check_lines(lines), wanted)]
        if wanted.replace_unknown:
            return [translation.text for translation in self.stream(check_lines(lines), wanted)]
        blocks = self._searched(InputLines.of(check_lines(lines)), wanted)
        return [text for block, found in blocks for text in self._builder.best_texts(block, found)]

    def n_best(
        self, lines: Sequence[str], n: int, *, beam: int | None = None, alpha: float | None = None
    ) -> list[Translation]:
        """The `n` best translations of each line, with tokens and scores. The beam is at least `n` wide.

        Example:
            >>> [found] = transduce.load("runs/en-de").n_best(["a sentence"], 4)
            >>> [(output.text, output.score) for output in found.outputs]
        """
        return list(self.stream(check_lines(lines), self.request(beam=beam, alpha=alpha, n_best=n)))

    def sample(
        self,
        lines: Sequence[str],
        n: int = 1,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
    ) -> list[Translation]:
        """Sample `n` translations of each line from the model.

        Args:
            lines: Sentences, one per string.
            n: Samples per line.
            temperature: Below 1, probable tokens become more probable; above 1, less.
            top_k: Sample from the `top_k` most probable tokens; 0 means all.
            top_p: Sample from the most probable tokens whose probabilities sum to `top_p`.
            seed: Another seed gives other samples.

        Example:
            >>> transduce.load("runs/en-de").sample(["a sentence"], 3, top_p=0.9)[0].outputs
        """
        request = self.request(sampling=True, n_best=n, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return list(self.stream(check_lines(lines), request))

    def stream(
        self,
        lines: Iterable[str],
        request: SearchRequest | None = None,
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[str]] | None = None,
        paused: Callable[[], bool] | None = None,
        at_most: Iterable[int] | None = None,
    ) -> Iterator[Translation]:
        """Translate an iterable of any length; only a few blocks of lines are in memory at a time.

        Args:
            lines: Sentences, one per string.
            request: Search settings; by default those that the model was trained with.
            prefixes: For each line, the beginning that its outputs must have.
            terms: For each line, the phrases that its outputs must contain.
            paused: Returns whether no further line has arrived yet; the lines so far are then translated at once.
            at_most: For each line, the maximum number of tokens of its outputs.

        Yields:
            A translation for every line, in order.
        """
        wanted = (request or self.request()).but(constrained=terms is not None)
        for block, found in self._searched(InputLines.of(lines, prefixes, terms, paused, at_most), wanted):
            yield from self._builder.translations(block, found, wanted)

    @contextmanager
    def watched(self, on_searched: Searched) -> Iterator[None]:
        """Inside this context, `on_searched` is called with the number of lines of each batch that is done, in any order."""
        self._on_searched = on_searched
        try:
            yield
        finally:
            self._on_searched = unwatched

    def transcribe(self, utterances: Sequence["Features"], request: SearchRequest | None = None) -> list[Translation]:
        """The texts of utterances that are in memory, given as the features of `transduce.audio.utterances`."""
        wanted = request or self.request()
        engine = self.engines.searching(wanted)
        sources: Sequence[Any] = utterances
        block = SearchBlock(sources, [()] * len(sources))
        lines = [LearnedLine("", "")] * len(sources)
        line_block = LineBlock(lines, sources, list(range(len(lines))), wanted.limits(block, engine.longest))
        [found] = engine.stream([block], wanted)
        return list(self._builder.translations(line_block, found, wanted))

    def stream_split(
        self,
        lines: Iterable[str],
        request: SearchRequest | None = None,
        paused: Callable[[], bool] | None = None,
    ) -> "Iterator[SplitTranslation]":
        """Translate lines of several sentences; each result has the text of a line and the translations of its sentences.

        Args:
            lines: Texts of any number of sentences, one line per string.
            request: Search settings; by default those that the model was trained with.
            paused: Returns whether no further line has arrived yet; the lines so far are then translated at once.
        """
        from transduce.translator.split import stream_split

        return stream_split(self, lines, request or self.request(), paused)

    def evaluate(
        self,
        sources: Sequence[str],
        *references: Sequence[str],
        request: SearchRequest | None = None,
        beam: int | None = None,
        alpha: float | None = None,
        metrics: Sequence[str] = (),
        merge: Literal["auto", "separate", "merged"] = "auto",
    ) -> "Evaluation":
        """Translate sources and score the translations against references.

        Args:
            sources: Source sentences.
            *references: One or more lists of references, each aligned with the sources.
            request: All search settings at once; by default those that the model was trained with.
            beam: Beam size; 1 is greedy search.
            alpha: Strength of the length penalty.
            metrics: Names as in `transduce evaluate --metrics`; by default the metrics of the task.
            merge: Whether equal sources become one source with several references, as in a dictionary.

        Returns:
            Scores with their signatures, the translations, and the speed.

        Example:
            >>> transduce.load("runs/en-de").evaluate(["a sentence"], ["ein Satz"]).scores
        """
        from transduce.translator.evaluation import TestSet, evaluate, merges_references

        merged = merges_references(self.config, check_lines(sources), merge)
        test = TestSet.of(sources, *map(check_lines, references), merged=merged)
        return evaluate(self, test, (request or self.request()).but(beam=beam, alpha=alpha), metrics)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each target given its source.

        Example:
            >>> transduce.load("runs/en-de").score(["a sentence"], ["ein Satz"])
            [-0.71]
        """
        return [scored.log_probability for scored in self.score_tokens(sources, targets)]

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
        """The log-probability of each token of each target; sequences too long for the model are cut and say so."""
        if len(check_lines(sources)) != len(check_lines(targets)):
            raise DataError(f"{len(sources)} sources but {len(targets)} targets: give one target for each source")
        lines, texts = self.forms.learned_pairs(sources, targets)
        encoded = self._encoded([line.text for line in lines])
        given = self.vocabularies.target.encode(texts)
        engine = self.engines.scoring()
        scored = engine.score([self._cut(ids) for ids in encoded], [self._cut(ids) for ids in given])
        over = [max(0, max(len(s), len(t)) - self.longest_source) for s, t in zip(encoded, given, strict=True)]
        return [Scored(tokens, cut) for tokens, cut in zip(scored, over, strict=True)]

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Pairs]:
        """Word alignments of given pairs, as (source word, target word) counted from 0; none where a side is empty.

        Example:
            >>> transduce.load("runs/en-de").align(["a sentence"], ["ein Satz"])
            [[(0, 0), (1, 1)]]
        """
        lines, masked = self.forms.learned_pairs(check_lines(sources), check_lines(targets))
        encoded = [self._cut(ids) for ids in self.sources.encode([line.text for line in lines])]
        given = [self._cut(ids) for ids in self.vocabularies.target.encode(masked)]
        full = [n for n, (ids, target) in enumerate(zip(encoded, given, strict=True)) if min(len(ids), len(target)) > 1]
        alignments = self.engines.torch.align([encoded[n] for n in full], [given[n] for n in full])
        found: list[Pairs] = [[] for _ in lines]
        for n, alignment in zip(full, alignments, strict=True):
            pieces = self.vocabularies.target.pieces(given[n][:-1])
            pairs = word_pairs(self.vocabularies.source.written(lines[n].text), pieces, alignment)
            found[n] = lines[n].aligned(pairs, masked[n])
        return found

    def source_ids(self, text: str) -> list[int]:
        """The ids of a line as the model takes them: cut if it is too long, `</s>` last."""
        if self.reads_speech:
            raise SettingError("this model takes recordings, which have no tokens: use a model that translates text")
        return self._cut(self.sources.encode([self.forms.learned([text])[0].text])[0])

    def attention(self, source: str, target: str | None = None, *, picture: str | Path = "") -> Attention:
        """The attention weights of every head in every layer for a sentence pair, or for a recording and its transcript.

        Args:
            source: The source sentence, or the path of a recording.
            target: The target sentence; by default the model's own translation or transcript.
            picture: Also draw the weights to this .png, .pdf or .svg file.

        Example:
            >>> seen = transduce.load("runs/en-de").attention("a sentence", picture="attention.png")
            >>> seen.maps.cross  # one tensor for each layer: [1, heads, target, source]
        """
        from transduce.translator.picture import check_picture_path, draw_attention

        if picture:
            check_picture_path(picture)
        text = self.translate([source])[0] if target is None else target
        attention = self._attention(source, text)
        if picture:
            draw_attention(attention, picture)
        return attention

    def listening(self, utterance: "Features", text: str) -> Attention:
        """The attention weights for an utterance in memory and its text; `source` of the result is empty."""
        return self._watched(utterance, [], text)

    def _attention(self, source: str, text: str) -> Attention:
        if self.reads_speech:
            from transduce.translator.word_times import POSITION_SECONDS

            seen = self.listening(self._encoded([source])[0], text)
            times = [f"{number * POSITION_SECONDS:.2f}" for number in range(seen.maps.cross[0].shape[-1])]
            return replace(seen, source=times, in_time=True)
        ids = self.source_ids(source)
        return self._watched(ids, self.vocabularies.source.pieces(ids), text)

    def _watched(self, source: Any, names: list[str], text: str) -> Attention:
        import torch

        from transduce.model import Tokens, collate, watch

        given = [self.vocabularies.target.pad, *self.vocabularies.target.encode([text])[0][:-1]]
        device = self.device.torch
        with torch.inference_mode(), watch(self.model.eval()) as maps:
            memory = self.model.encode(collate([source], self.vocabularies.source.pad).to(device))
            self.model.decode(Tokens.padded([given], self.vocabularies.target.pad).to(device), memory)
        return Attention(names, self.vocabularies.target.pieces(given), maps, text)

    def _searched(
        self, inputs: InputLines, request: SearchRequest
    ) -> Iterator[tuple[LineBlock, list[list[Hypothesis]]]]:
        """The hypotheses found for every block of lines."""
        taken: deque[LineBlock] = deque()
        engine = self.engines.searching(request)
        for found in engine.stream(self._blocks(inputs, taken, engine, request), request):
            yield taken.popleft(), found

    def _blocks(
        self, inputs: InputLines, taken: deque[LineBlock], engine: Engine, request: SearchRequest
    ) -> Iterator[SearchBlock]:
        """Blocks of ids to search; their lines are appended to `taken`."""
        first = 1  # the number of the next line
        while (block := inputs.next_lines())[0]:
            lines, paused = self.forms.learned(block[0]), block[1]
            texts = [line.text for line in lines]
            ids = self._encoded(texts, engine.spares_cores)
            begins = self.forms.masked_like(lines, inputs.next_prefixes(len(texts)))
            prefixes = [row[:-1] for row in self.vocabularies.target.encode(begins)]
            terms = self.forms.terms_masked_like(lines, inputs.next_terms(len(texts)))
            phrases = [[row[:-1] for row in self.vocabularies.target.encode(t)] for t in terms]
            searched = [n for n, text in enumerate(texts) if text.strip()]
            cut, at_most = [self._cut(row) for row in ids], inputs.next_limits(len(texts))
            block_of = SearchBlock(cut, prefixes or [()] * len(ids), phrases, at_most, paused, self._on_searched)
            searching = block_of.only(searched)
            limits = request.limits(searching, engine.longest)
            check_prefixes([first + n for n in searched], searching.prefixes, limits)
            taken.append(LineBlock(lines, ids, searched, limits))
            first += len(lines)
            yield searching
        inputs.check_exhausted()

    def _encoded(self, texts: Sequence[str], every_core: bool = False) -> Sequence[Any]:
        """Sources as the model takes them: ids, or the features of the recordings that the texts name."""
        if not self.reads_speech:
            return self.sources.encode(texts, every_core)
        from transduce.audio.soundfiles import AudioError
        from transduce.audio.utterances import features_of_source

        try:
            return [features_of_source(text, self.config.data.trim_quiet) for text in texts]
        except AudioError as error:
            if error.reason != "missing":
                raise
            raise DataError(
                f"{error}: this model transcribes, so each line of its input names a recording; for one file use `transduce transcribe`"
            ) from None

    def _cut(self, ids: list[int]) -> list[int]:
        return cut(ids, self.longest_source)


def longest_source(config: ModelConfig) -> int:
    """The maximum number of tokens of a line that are translated."""
    return min(config.longest_source or LONGEST_SOURCE, LONGEST_SOURCE)


def longest_target(config: ModelConfig) -> int:
    """The maximum number of tokens of a target whose loss is measured."""
    return min(config.longest_target or LONGEST_SOURCE, LONGEST_SOURCE)
