"""What several test files share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook
from threads import THREADS


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public corpora, or a skip that says what is missing."""
    folder = Path(os.environ.get("TRANSDUCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: set TRANSDUCE_DATA to the folder of corpora")
    return folder


@pytest.fixture
def few_threads() -> Iterator[None]:
    """For models so small that they gain nothing from a second thread, and wait for it on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


# Without a GPU the kernels run in Triton's interpreter. It reads the source of functions, so nothing may wrap them.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Every shape written in the model's annotations is checked whenever tests run.
MODEL = Path(__file__).parents[1] / "transduce" / "model"
install_import_hook([f"transduce.model.{path.stem}" for path in MODEL.glob("[a-z]*.py")], "beartype.beartype")
