"""A line of a JSONL file as a dictionary. Knows nothing of what the keys mean."""

import json
from typing import Any

from transduce.errors import DataError


def json_object(line: str, where: str) -> dict[str, Any]:
    """The object of a line; `where` is its file and number, for the error."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({str(error)[:60]}): each line must be one object") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object: each line must be one object")
    return record
