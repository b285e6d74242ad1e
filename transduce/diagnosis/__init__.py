"""The examination of a corpus before training: what is wrong with it, where, and what to do about it."""

from transduce.diagnosis.analysis import Analysis, Block, Context, Place, Side
from transduce.diagnosis.findings import Example, Finding, Report

__all__ = ["Analysis", "Block", "Context", "Example", "Finding", "Place", "Report", "Side"]
