"""Why a request is not answered: a status, one line for whoever sent it, and when to come again.

Refusal                     400: what was asked cannot be done, and why
├── Unknown         404     there is no such model or pair of languages
├── Unwelcome       403     no key, a wrong key, or a request that a foreign page made
├── TooMuch         413     larger than this server takes
├── TooSlow         408     the body did not come in time
├── TooOften        429     more requests than the key allows
└── Overloaded      503     more work than can be done in time

Abandoned                   the client went away; there is nobody to answer

Knows nothing of HTTP but the numbers.
"""

import math


class Refusal(Exception):
    """What is said instead of an answer."""

    status = 400

    def __init__(self, why: str, retry_after_s: float = 0) -> None:
        super().__init__(why)
        self.retry_after_s = math.ceil(retry_after_s)


class Unknown(Refusal):
    status = 404


class Unwelcome(Refusal):
    status = 403


class TooMuch(Refusal):
    status = 413


class TooSlow(Refusal):
    status = 408


class TooOften(Refusal):
    status = 429


class Overloaded(Refusal):
    status = 503


class Abandoned(Exception):
    """The client went away."""
