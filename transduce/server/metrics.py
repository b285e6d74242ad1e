"""What the server counts for Prometheus. Labels are routes, models and reasons, all known beforehand: never a client's words."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LINES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "transduce_requests_total", "Answers by route and status", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "transduce_request_seconds", "From headers to answer", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.batch_lines = Histogram(
            "transduce_batch_lines", "Lines computed together", buckets=LINES, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "transduce_batch_seconds", "How long a batch took", buckets=SECONDS, registry=self.registry
        )
        self.waiting = Gauge("transduce_waiting_requests", "Requests with lines not yet begun", registry=self.registry)
        self.abandoned = Counter("transduce_abandoned_total", "Requests whose client went away", registry=self.registry)
        self.characters = Counter(
            "transduce_characters_total", "Characters taken in", ["model"], registry=self.registry
        )
        self.reloads = Counter(
            "transduce_reloads_total", "New weights by outcome", ["model", "outcome"], registry=self.registry
        )

    def page(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)
