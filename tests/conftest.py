"""What several test files share."""

import os
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public corpora, or a skip that says what is missing."""
    folder = Path(os.environ.get("TRANSDUCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: set TRANSDUCE_DATA to the folder of corpora")
    return folder


# Without a GPU the kernels run in Triton's interpreter. It reads the source of functions, so nothing may wrap them.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Every shape written in the model's annotations is checked whenever tests run.
MODEL = Path(__file__).parents[1] / "transduce" / "model"
install_import_hook([f"transduce.model.{path.stem}" for path in MODEL.glob("[a-z]*.py")], "beartype.beartype")
