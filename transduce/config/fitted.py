"""Placeholder."""


class Corpus: ...


class Fitted: ...


def fit() -> None: ...
