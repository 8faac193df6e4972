"""Durations of requests by surface and wire: a histogram in plain numbers for each pair that occurs.

A request lasts from the end of its head to the head of its answer; a request of a known shape, from its admission to
the queue. A WebSocket message lasts until its answer is written, a gRPC call until its status is. A long poll and a
stream of events wait for data on purpose, so they are apart, under the wire `live`.
"""

from __future__ import annotations

from prometheus_client.core import HistogramMetricFamily

from semel.server.ops.metric_table import PlainHistogram

HTTP, LIVE, WEBSOCKET, GRPC = WIRES = ("http", "live", "websocket", "grpc")
"""The values of the label `wire`."""
NAME = "semel_server_request_seconds"
ABOUT = "Time from a request to its answer, by surface and wire"
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class RequestTimes:
    """The histograms of one process. Surfaces and wires are closed sets, so they are few."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], PlainHistogram] = {}

    def of(self, surface: str, wire: str) -> PlainHistogram:
        """The histogram of a surface and a wire; a caller on the write path keeps it."""
        found = self._known.get((surface, wire))
        if found is None:
            found = self._known[surface, wire] = PlainHistogram(NAME, ABOUT, BOUNDS)
        return found

    def family(self) -> HistogramMetricFamily:
        """All of them, for Prometheus."""
        family = HistogramMetricFamily(NAME, ABOUT, labels=("surface", "wire"))
        for labels, histogram in sorted(self._known.items()):
            family.add_metric(labels, histogram.buckets, histogram.sum)
        return family
