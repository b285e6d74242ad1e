"""Translations inside other engines: a callable for Ray Data's `map_batches`, and a generator for Spark's `mapInPandas`.

The model is loaded where the rows are: the object carries only its arguments to other processes. What the engines promise
about the order of rows and about repeated work is theirs; `docs/how-to/translating-corpora.md` says what that is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transduce.cores import tune_idle_threads
from transduce.errors import DataError
from transduce.translator import LoadOptions, SearchRequest, Translator


class TableTranslator:
    """Adds a column of translations to batches of a table.

    Args:
        run: The run folder of the model, which every worker must see under this path.
        column: The column to translate. A missing value is translated as an empty string.
        into: The column to add.
        beam: Beam size; by default the setting of the model.
        request: All search settings at once.
        options: How to load the model.

    Example:
        >>> dataset.map_batches(
        ...     transduce.TableTranslator,
        ...     fn_constructor_args=("runs/en-de", "text"),
        ...     concurrency=2,
        ... )
        >>> frame.mapInPandas(transduce.TableTranslator("runs/en-de", "text").frames, "text string, translation string")
    """

    def __init__(
        self,
        run: str,
        column: str,
        into: str = "translation",
        *,
        beam: int | None = None,
        request: SearchRequest | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        self.run, self.column, self.into = str(run), column, into
        self.beam, self.request, self.options = beam, request, options
        self._translator: Translator | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_translator": None}

    def __call__(self, batch: Any) -> Any:
        """A batch with the translations: a dictionary of arrays, a pandas frame or an Arrow table, as it was given."""
        if isinstance(batch, Mapping):
            import numpy

            return {**batch, self.into: numpy.array(self._translate(batch, list(batch)), dtype=object)}
        if hasattr(batch, "append_column"):
            texts = self._translate(batch, batch.column_names)
            import pyarrow

            return batch.append_column(self.into, pyarrow.array(texts, pyarrow.string()))
        return batch.assign(**{self.into: self._translate(batch, list(batch.columns))})

    def frames(self, frames: Iterable[Any]) -> Iterator[Any]:
        """Each pandas frame with its translations: the function that Spark's `mapInPandas` takes."""
        for frame in frames:
            yield self(frame)

    def _translate(self, batch: Any, names: list[str]) -> list[str]:
        if self.column not in names:
            raise DataError(f"no column '{self.column}' to translate; the columns are {', '.join(map(str, names))}")
        if self.into in names:
            raise DataError(f"the table already has a column '{self.into}': choose another name with `into`")
        column = batch[self.column]
        values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
        return self._loaded().translate([_text(value) for value in values], self.request, beam=self.beam)

    def _loaded(self) -> Translator:
        if self._translator is None:
            tune_idle_threads()
            self._translator = Translator.load(self.run, self.options or LoadOptions())
        return self._translator


def _text(value: Any) -> str:
    """A value of the column as text; None, NaN and the NA of pandas are missing values."""
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ == "NAType" or value != value:
        return ""
    raise DataError(f"the column to translate holds {type(value).__name__} values, not text")
