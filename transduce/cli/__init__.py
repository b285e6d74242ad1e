"""The command line: a thin layer over the Python API. Help answers without importing torch."""

from transduce.cli.main import main

__all__ = ["main"]
