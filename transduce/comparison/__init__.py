"""Comparing systems: is the difference real, where do they differ, and which sentences show it?

An edge: only the API imports it. It knows translators, metrics and sacreBLEU's tests; nothing knows it.
"""

from transduce.comparison.comparing import Compared, compare
from transduce.comparison.request import CompareRequest
from transduce.comparison.result import Comparison
from transduce.comparison.systems import Search

__all__ = ["CompareRequest", "Compared", "Comparison", "Search", "compare"]
