"""Keys: made, kept, checked, and how often each may ask."""

from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import Client, client, make_service, refused, run, service, symbols

from transduce.errors import DataError, SettingError
from transduce.server.keys import add_key
from transduce.server.refusals import TooManyRequests
from transduce.server.settings import ServerSettings


def test_keys(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    secret = add_key(path, "one", 2)
    other = add_key(path, "other", 2)
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    client = Client(make_service([run], keys=str(path)))
    body = {"q": "a", "source": "en", "target": "de"}
    assert "API key" in refused(client.post("/translate", body), 403)  # LibreTranslate's status
    assert "API key" in refused(client.post("/translate", {**body, "api_key": secret + "x"}), 403)
    assert client.post("/translate", {**body, "api_key": secret}).status_code == 200
    assert client.post("/translate", data={**body, "api_key": secret}).status_code == 200
    late = client.post("/translate", {**body, "api_key": secret})
    assert "requests per minute" in refused(late, 429)
    assert 1 <= int(late.headers["retry-after"]) <= 30
    assert client.get("/v1/models", headers={"authorization": f"Bearer {other}"}).status_code == 200
    assert client.get("/metrics", headers={"x-api-key": other}).status_code == 200
    refused(client.get("/metrics"), 401)
    refused(client.get("/v1/models", headers={"authorization": "Bearer ключ".encode()}), 401)
    assert client.get("/frontend/settings").json()["keyRequired"]
    assert client.get("/health/live").status_code == 200


def test_a_rate_fills_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.server import keys

    clock = 0.0
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock)
    bucket = keys.Bucket(60)
    assert [bucket.take() for _ in range(60)] == [0] * 60
    assert bucket.take() == 1
    clock = 1.5
    assert (bucket.take(), bucket.take()) == (0, 0.5)


def test_replicas_divide_the_rate_of_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from transduce.server import keys

    clock = 0.0
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock)
    path = tmp_path / "keys.jsonl"
    secret = add_key(path, "one", 120)
    replicas = [keys.Keyring.read(str(path), replicas=4) for _ in range(4)]

    def admitted(ring: keys.Keyring, requests: int) -> int:
        count = 0
        for _ in range(requests):
            with suppress(TooManyRequests):
                ring.admit(secret)
                count += 1
        return count

    assert [admitted(ring, 200) for ring in replicas] == [30] * 4
    clock = 30.0
    assert [admitted(ring, 200) for ring in replicas] == [15] * 4


def test_a_rate_below_the_number_of_replicas_is_still_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.server import keys

    clock = 0.0
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock)
    bucket = keys.Bucket(2 / 4)
    assert (bucket.take(), bucket.take()) == (0, 120)
    clock = 120.0
    assert bucket.take() == 0


def test_the_number_of_replicas_is_checked() -> None:
    with pytest.raises(SettingError, match=r"--replicas 0: must be from 1 to 10,000"):
        ServerSettings(replicas=0)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"name": "a"}', '{"name": "a", "sha256": "short", "requests_per_minute": 1}']
)
def test_keys_that_cannot_be_read(line: str, tmp_path: Path) -> None:
    from transduce.server.keys import Keyring

    path = tmp_path / "keys.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(DataError, match=r"keys\.jsonl:2: not a valid key; create keys with `transduce key"):
        Keyring.read(str(path))
    path.write_text("")
    with pytest.raises(DataError, match="contains no keys; create one with"):
        Keyring.read(str(path))
    with pytest.raises(DataError, match="cannot read the API keys"):
        Keyring.read(str(tmp_path / "none"))


def test_keys_that_cannot_be_made(tmp_path: Path) -> None:
    add_key(tmp_path / "keys", "web")
    for name, rate, reason in [
        ("web", 1, "already a key named web"),
        ("a b", 1, "letters"),
        ("x", 0, "must be from 1 to 1,000,000"),
    ]:
        with pytest.raises(SettingError, match=reason):
            add_key(tmp_path / "keys", name, rate)


def test_what_is_wrong_with_a_body_is_said(client: Client) -> None:
    broken = client("POST", "/v1/translate", content=b'{"text": broken', headers={"Content-Type": "application/json"})
    assert refused(broken, 400) == "the body is not valid JSON: error at character 9"
    assert refused(client.post("/v1/translate", {"txt": "the cat"}), 400) == "unknown field txt; did you mean text?"
