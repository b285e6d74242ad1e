"""The settings of a server: addresses, limits and timeouts. Knows no HTTP and no models."""

from dataclasses import dataclass
from ipaddress import ip_address

from transduce.audio.recording import TYPES
from transduce.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """All settings of a server except its models. The name of a limit ends in its unit."""

    # address and access
    host: str = "127.0.0.1"
    port: int = 5000
    allowed_hosts: tuple[str, ...] = ()  # allowed Host headers besides localhost and IP addresses
    keys: str = ""  # the file of API keys; empty: no keys are needed
    open: bool = False  # allow other machines without API keys
    replicas: int = 1  # servers among which a proxy divides the requests; each admits its share of a key's rate

    # limits of a request
    header_bytes: int = 16_384
    header_s: float = 10.0
    body_bytes: int = 1_000_000
    body_s: float = 10.0
    characters: int = 50_000  # of all texts together
    texts: int = 1_000
    inspected_characters: int = 2_000  # of a text whose attention or search is shown
    inspected_tokens: int = 200  # the same in tokens: the response grows with their square
    generated_tokens: int = 4_096  # of all texts that a language model generates for a request

    # limits of a recording
    audio_bytes: int = 25_000_000
    audio_seconds: float = 600.0
    audio_types: tuple[str, ...] = TYPES
    inspected_seconds: float = 60.0  # of a recording whose attention is shown
    upload_s: float = 60.0  # for receiving it
    uploads: int = 16  # recordings at the same time, on their way or in work; further ones are refused

    # scheduling
    batch_lines: int = 16  # 1: no batching
    batch_s: float = 0.15  # expected time of a batch; a single line may take longer
    slow_line_s: float = 0.5  # lines that take longer than this, and much longer than others, leave one core free
    workers: int = 4  # batches at the same time: some compute while others are prepared and read
    queue_requests: int = 128  # requests at the same time, waiting or running; further ones are refused
    longest_wait_s: float = 5.0  # until the first line of a request starts; a request that would wait longer is refused
    request_s: float = 60.0  # for a whole request

    # operation
    connections: int = 4_096
    reload_s: float = 2.0  # interval between checks for new weights
    load_s: float = 300.0  # for loading a model

    def __post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            raise SettingError(f"--port {self.port}: must be from 1 to 65535")
        for option, value, most in (
            ("--batch", self.batch_lines, 10_000),
            ("--queue", self.queue_requests, 100_000),
            ("--characters", self.characters, 100_000_000),
            ("--replicas", self.replicas, 10_000),
            ("--max-tokens", self.generated_tokens, 1_000_000),
            ("--audio-bytes", self.audio_bytes, 1_000_000_000),
            ("--audio-seconds", self.audio_seconds, 36_000),
            ("--uploads", self.uploads, 10_000),
        ):
            if not 1 <= value <= most:
                raise SettingError(f"{option} {value}: must be from 1 to {most:,}")
        if not self.audio_types or set(self.audio_types) - set(TYPES):
            raise SettingError(f"--audio-types {' '.join(self.audio_types)}: choose from {', '.join(TYPES)}")
        if self.is_exposed and not (self.keys or self.open):
            raise SettingError(
                f"--host {self.host}: other machines could use this server; require API keys with --keys FILE "
                "(`transduce key FILE NAME` creates one), or allow everyone with --open"
            )

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach the server."""
        if self.host == "localhost":
            return False
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            raise SettingError(f"--host {self.host}: must be an IP address, such as 127.0.0.1 or 0.0.0.0") from None
