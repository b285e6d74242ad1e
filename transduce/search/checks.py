"""Bounds of the search parameters, the same for every engine. Does not import torch."""

import math

from transduce.errors import SettingError

MOST_TOKENS = 10_000_000  # the largest vocabulary that the settings allow


def check_beam(beam: int, n_best: int) -> None:
    if beam < 1:
        raise SettingError(f"beam = {beam}: must be at least 1")
    if not 1 <= n_best <= beam:
        raise SettingError(f"n_best = {n_best}: must be at least 1 and at most beam = {beam}")


def check_sampling(num_samples: int, temperature: float, top_k: int, top_p: float) -> None:
    if num_samples < 1:
        raise SettingError(f"num_samples = {num_samples}: must be at least 1")
    if not 0 < temperature < math.inf:
        raise SettingError(f"temperature = {temperature}: must be above 0 (for the most probable token, do not sample)")
    if top_k < 0:
        raise SettingError(f"top_k = {top_k}: must not be negative (0 keeps all tokens)")
    if top_k > MOST_TOKENS:
        raise SettingError(f"top_k = {top_k}: must be at most {MOST_TOKENS:,} (0 keeps all tokens)")
    if not 0 < top_p <= 1:
        raise SettingError(f"top_p = {top_p}: must be above 0 and at most 1 (1 keeps all tokens)")
