"""`transduce settings`: what can be set. Imports nothing heavy, so that it answers at once."""

import argparse
import json
import shutil

from transduce.config.listing import as_dict, explained, find, listed, markdown
from transduce.config.models import FAMILIES
from transduce.config.settings import all_settings


def settings(options: argparse.Namespace) -> int:
    """Print all settings, those of a section, or everything about one."""
    if options.markdown:
        print(markdown(), end="")
        return 0
    found = find(options.name) if options.name else list(all_settings())
    if options.json:
        print(json.dumps([as_dict(one) for one in found], ensure_ascii=False))
        return 0
    family = options.name if options.name in FAMILIES else "transformer"
    width = shutil.get_terminal_size((120, 0)).columns
    lines = listed(found, width, family) if len(found) > 1 else explained(found[0])
    for line in lines:
        print(line)
    return 0
