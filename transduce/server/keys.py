"""API keys: a file of their hashes, and how often each may be used.

A key is 256 random bits, so its plain SHA-256 gives nothing away: there is no dictionary of keys to try. Knows no HTTP.
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
from transduce.server.refusals import TooOften, Unwelcome


@dataclass(frozen=True)
class Key:
    """What the file says of a key: everything but the key."""

    name: str
    sha256: str
    requests_per_minute: int


def add_key(path: Path, name: str, requests_per_minute: int = 600) -> str:
    """A new key, whose hash is added to the file; nobody can say it again."""
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        raise SettingError(f"{name!r}: a key's name is of letters, digits, dots and dashes")
    if not 1 <= requests_per_minute <= 1_000_000:
        raise SettingError(f"--requests-per-minute {requests_per_minute}: must be from 1 to 1,000,000")
    if path.exists() and name in [key.name for key in read_keys(path)]:
        raise SettingError(f"{path}: has a key named {name}; remove its line to make a new one")
    secret = f"transduce_{secrets.token_urlsafe(32)}"
    line = json.dumps(asdict(Key(name, _hash(secret), requests_per_minute)))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return secret


def read_keys(path: Path) -> list[Key]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the keys cannot be read ({error})") from None
    return [_read(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read(path: Path, number: int, line: str) -> Key:
    try:
        key = Key(**json.loads(line))
        if re.fullmatch(r"[0-9a-f]{64}", key.sha256) and key.requests_per_minute >= 1:
            return key
    except (ValueError, TypeError):
        pass
    raise DataError(f"{path}:{number}: not a key: `transduce key {path} NAME` writes such lines")


class Bucket:
    """Room for a minute's requests, refilled as time passes."""

    def __init__(self, requests_per_minute: int) -> None:
        self.capacity = self.left = float(requests_per_minute)
        self.filled = time.monotonic()

    def take(self) -> float:
        """Take one; the seconds until there is one again, where there is none."""
        now = time.monotonic()
        self.left = min(self.capacity, self.left + (now - self.filled) * self.capacity / 60)
        self.filled = now
        if self.left < 1:
            return (1 - self.left) * 60 / self.capacity
        self.left -= 1
        return 0


class Keyring:
    """Who may come in, and how often."""

    def __init__(self, keys: list[Key]) -> None:
        self._buckets = [(key, Bucket(key.requests_per_minute)) for key in keys]

    @staticmethod
    def read(path: str) -> "Keyring":
        keys = read_keys(Path(path)) if path else []
        if path and not keys:
            raise DataError(f"{path}: no keys there: `transduce key {path} NAME` makes one")
        return Keyring(keys)

    @property
    def is_needed(self) -> bool:
        return bool(self._buckets)

    def admit(self, presented: str) -> None:
        """Refuse without a known key, and more often than it allows."""
        if not self.is_needed:
            return
        found = _hash(presented)
        # Every key is compared, each in constant time: how long it takes says nothing of how near a guess was.
        matching = [bucket for key, bucket in self._buckets if hmac.compare_digest(key.sha256, found)]
        if not matching:
            raise Unwelcome(
                "this server needs an API key: send it as `Authorization: Bearer KEY`, X-API-Key, or api_key"
            )
        if wait_s := matching[0].take():
            raise TooOften("more requests than this key allows in a minute", retry_after_s=wait_s)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
