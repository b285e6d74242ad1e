"""API keys: a file of their hashes, and how many requests per minute each key allows. Knows no HTTP.

A key is 256 random bits. Its plain SHA-256 is safe to store, because there is no dictionary of likely keys to try.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from transduce.errors import DataError, SettingError
from transduce.server.refusals import TooManyRequests, Unauthorized


@dataclass(frozen=True)
class Key:
    """What the file stores about a key: everything except the key itself."""

    name: str
    sha256: str
    requests_per_minute: int


def add_key(path: Path, name: str, requests_per_minute: int = 600) -> str:
    """Create a key and add its hash to the file; the key itself cannot be recovered from the file."""
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        raise SettingError(f"{name!r}: the name of a key must be 1 to 64 letters, digits, dots, dashes or underscores")
    if not 1 <= requests_per_minute <= 1_000_000:
        raise SettingError(f"--requests-per-minute {requests_per_minute}: must be from 1 to 1,000,000")
    if path.exists() and name in [key.name for key in read_keys(path)]:
        raise SettingError(f"{path}: there is already a key named {name}; delete its line to replace it")
    secret = f"transduce_{secrets.token_urlsafe(32)}"
    line = json.dumps(asdict(Key(name, _hash(secret), requests_per_minute)))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return secret


def read_keys(path: Path) -> list[Key]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the API keys ({error})") from None
    return [_read(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read(path: Path, number: int, line: str) -> Key:
    try:
        key = Key(**json.loads(line))
        if re.fullmatch(r"[0-9a-f]{64}", key.sha256) and key.requests_per_minute >= 1:
            return key
    except (ValueError, TypeError):
        pass
    raise DataError(f"{path}:{number}: not a valid key; create keys with `transduce key {path} NAME`")


class Bucket:
    """A token bucket: it holds the requests of one minute, at least one, and is refilled continuously."""

    def __init__(self, requests_per_minute: float) -> None:
        self.requests_per_s = requests_per_minute / 60
        self.capacity = self.left = max(1.0, requests_per_minute)
        self.filled = time.monotonic()

    def take(self) -> float:
        """Take one request and return 0; if the bucket is empty, return the seconds until the next one."""
        now = time.monotonic()
        self.left = min(self.capacity, self.left + (now - self.filled) * self.requests_per_s)
        self.filled = now
        if self.left < 1:
            return (1 - self.left) / self.requests_per_s
        self.left -= 1
        return 0


class Keyring:
    """The keys of a server, one of several `replicas` that admit equal shares of a key's rate.

    Call `admit` in the event loop only: buckets have no locks.
    """

    def __init__(self, keys: list[Key], replicas: int = 1) -> None:
        self._buckets = [(key, Bucket(key.requests_per_minute / replicas)) for key in keys]

    @staticmethod
    def read(path: str, replicas: int = 1) -> "Keyring":
        keys = read_keys(Path(path)) if path else []
        if path and not keys:
            raise DataError(f"{path}: contains no keys; create one with `transduce key {path} NAME`")
        return Keyring(keys, replicas)

    @property
    def is_needed(self) -> bool:
        return bool(self._buckets)

    def admit(self, presented: str) -> None:
        """Refuse a request whose key is unknown or has used up its rate; a server without keys admits every request."""
        if self.is_needed and (wait_s := self._bucket(presented).take()):
            raise TooManyRequests("this API key has used up its requests per minute", retry_after_s=wait_s)

    def check_known(self, presented: str) -> None:
        """Refuse a request whose key is unknown; it does not count as a request of the key."""
        if self.is_needed:
            self._bucket(presented)

    def _bucket(self, presented: str) -> Bucket:
        found = _hash(presented)
        # Compare with every key, each in constant time: the duration says nothing about how close a guess was.
        matching = [bucket for key, bucket in self._buckets if hmac.compare_digest(key.sha256, found)]
        if not matching:
            raise Unauthorized(
                "this server needs an API key: send it as `Authorization: Bearer KEY`, X-API-Key, or api_key"
            )
        return matching[0]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
