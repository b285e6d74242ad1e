"""The metrics for Prometheus. Labels are routes, models and outcomes, all known in advance; no label is a client's text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LINES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "transduce_requests_total", "Responses by route and status", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "transduce_request_seconds",
            "Time from the headers of a request to its response",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batch_lines = Histogram("transduce_batch_lines", "Lines per batch", buckets=LINES, registry=self.registry)
        self.batch_seconds = Histogram(
            "transduce_batch_seconds", "Time per batch", buckets=SECONDS, registry=self.registry
        )
        self.waiting = Gauge(
            "transduce_waiting_requests", "Requests with lines that wait for a batch", registry=self.registry
        )
        self.abandoned = Counter(
            "transduce_abandoned_total", "Requests whose client disconnected", registry=self.registry
        )
        self.characters = Counter(
            "transduce_characters_total", "Characters received", ["model"], registry=self.registry
        )
        self.generated_tokens = Counter(
            "transduce_generated_tokens_total",
            "Tokens that language models generated",
            ["model"],
            registry=self.registry,
        )
        self.audio_seconds = Counter(
            "transduce_audio_seconds_total", "Seconds of recordings received", ["model"], registry=self.registry
        )
        self.reloads = Counter(
            "transduce_reloads_total", "Reloads of weights by outcome", ["model", "outcome"], registry=self.registry
        )

    def page(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
