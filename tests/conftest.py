"""What several test files share."""

import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public corpora, or a skip that says what is missing."""
    folder = Path(os.environ.get("TRANSDUCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: set TRANSDUCE_DATA to the folder of corpora")
    return folder


# Every shape written in the model's annotations is checked whenever tests run.
install_import_hook("transduce.model", "beartype.beartype")
