"""What a server takes in, and how much of it: one page of limits. Knows no HTTP and no models."""

from dataclasses import dataclass
from ipaddress import ip_address

from transduce.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a server but its models; every limit names its unit."""

    # where, and for whom
    host: str = "127.0.0.1"
    port: int = 5000
    allowed_hosts: tuple[str, ...] = ()  # names it is reached by, besides localhost and addresses
    keys: str = ""  # the file of API keys; none: anybody who reaches it
    open: bool = False  # exposed without keys, and meant so

    # how much a request may bring
    header_bytes: int = 16_384
    header_s: float = 10.0
    body_bytes: int = 1_000_000
    body_s: float = 10.0
    characters: int = 50_000  # of all texts of a request
    texts: int = 1_000
    inspected_characters: int = 2_000  # of a text whose attention or search is looked into
    inspected_tokens: int = 200  # likewise: what is shown grows with their square

    # how work is shared
    batch_lines: int = 16  # 1: no batching
    batch_s: float = 0.15  # of the machine's time for a batch, as far as is known; a single line may take longer
    slow_line_s: float = 0.5  # lines that take longer, and much longer than others, leave a core to these
    workers: int = 4  # batches under way: some compute while others are sent and taken in
    queue_requests: int = 128  # inside at once, waiting or being computed; what comes then is refused
    longest_wait_s: float = 5.0  # before its first line has a turn; what would wait longer is refused
    request_s: float = 60.0  # for all of a request

    # how it lives
    connections: int = 4_096
    reload_s: float = 2.0  # how often folders are looked at for new weights
    load_s: float = 300.0  # for loading a model

    def __post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            raise SettingError(f"--port {self.port}: a port is a number from 1 to 65535")
        for option, value, most in (
            ("--batch", self.batch_lines, 10_000),
            ("--queue", self.queue_requests, 100_000),
            ("--characters", self.characters, 100_000_000),
        ):
            if not 1 <= value <= most:
                raise SettingError(f"{option} {value}: must be from 1 to {most:,}")
        if self.is_exposed and not (self.keys or self.open):
            raise SettingError(
                f"--host {self.host}: others could reach it: give --keys FILE (`transduce key FILE NAME` makes one), "
                "or say --open"
            )

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach it."""
        if self.host == "localhost":
            return False
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            raise SettingError(f"--host {self.host}: give an address, such as 127.0.0.1 or 0.0.0.0") from None
