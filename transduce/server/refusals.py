"""Refusals: why a request gets no result, as a status code, a one-line reason, and when to retry.

Refusal                     400   the request is invalid
├── Unauthorized            401   the API key is missing or wrong
├── Forbidden               403   the Host or Origin header is not allowed
├── NotFound                404   there is no such model or language pair
├── RequestTimeout          408   the body did not arrive in time
├── PayloadTooLarge         413   the request is larger than the server accepts
├── UnsupportedType         415   the recording is of a type that the server does not accept
├── TooManyRequests         429   the API key has used up its rate
└── Overloaded              503   the server has more work than it can do in time

ClientDisconnected                the client is gone, so there is nobody to answer

This module knows nothing about HTTP except the status codes.
"""

import math


class Refusal(Exception):
    """The reason why a request is refused."""

    status = 400

    def __init__(self, reason: str, retry_after_s: float = 0) -> None:
        super().__init__(reason)
        self.retry_after_s = math.ceil(retry_after_s)


class Unauthorized(Refusal):
    status = 401


class Forbidden(Refusal):
    status = 403


class NotFound(Refusal):
    status = 404


class RequestTimeout(Refusal):
    status = 408


class PayloadTooLarge(Refusal):
    status = 413


class UnsupportedType(Refusal):
    status = 415


class TooManyRequests(Refusal):
    status = 429


class Overloaded(Refusal):
    status = 503


class ClientDisconnected(Exception):
    """The client closed the connection before the response was ready."""
