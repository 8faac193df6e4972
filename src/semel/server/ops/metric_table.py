"""Counters and gauges as rows of a table, with their names in both forms of `/metrics`.

The meter counts events under a name. A row gives the name of that count in JSON, where it is the count of the last
minute, and as a Prometheus counter, where it is the count since the start. Labels come from closed sets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString


class Count(NamedTuple):
    """A counter: the number of events of one kind."""

    name: str
    """The name in the meter."""
    json: tuple[str, ...]
    """The names in JSON, for the last minute."""
    series: str
    """The name in Prometheus, without the final `_total`."""
    label: tuple[str, str] | None = None
    less: str = ""
    """Another name in the meter whose count is included in this one and has its own sample."""


class PlainHistogram:
    """A histogram in plain numbers, for values that are observed in the write path: a third of the time."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._about = about
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The number of values in each bucket; the last has those above every bound."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @property
    def buckets(self) -> list[tuple[str, int]]:
        """The upper bound of each bucket, and the number of values up to it."""
        return list(zip([*map(floatToGoString, self.bounds), "+Inf"], accumulate(self.counts), strict=True))

    def family(self) -> HistogramMetricFamily:
        """The histogram for Prometheus."""
        return HistogramMetricFamily(self._name, self._about, buckets=self.buckets, sum_value=self.sum)


class Gauge(NamedTuple):
    """A gauge: a value read at the time of the request."""

    name: str
    json: tuple[str, ...]
    series: str


def named(
    counts: Sequence[Count],
    gauges: Sequence[Gauge],
    last_minute: Callable[[str], int],
    values: Mapping[str, float] | None,
) -> dict[str, float | None]:
    """The names and values for JSON; a gauge is null if the store could not be read."""
    found: dict[str, float | None] = {}
    for count in counts:
        found.update((name, last_minute(count.name)) for name in count.json)
    for gauge in gauges:
        value = None if values is None else values.get(gauge.name, 0)
        found.update((name, value) for name in gauge.json)
    return found


def families(
    counts: Sequence[Count],
    gauges: Sequence[Gauge],
    about: Mapping[str, str],
    totals: Mapping[str, int],
    values: Mapping[str, float] | None,
) -> Iterator[Metric]:
    """The series for Prometheus; gauges are left out if the store could not be read."""
    counters: dict[str, CounterMetricFamily] = {}
    for count in counts:
        labels = (count.label[0],) if count.label else None
        family = counters.get(count.series)
        if family is None:
            family = counters[count.series] = CounterMetricFamily(count.series, about[count.series], labels=labels)
        value = totals.get(count.name, 0) - totals.get(count.less, 0)
        family.add_metric((count.label[1],) if count.label else (), value)
    yield from counters.values()
    for gauge in gauges if values is not None else ():
        yield GaugeMetricFamily(gauge.series, about[gauge.series], (values or {}).get(gauge.name, 0))


def counted(name: str, about: str, count: int) -> CounterMetricFamily:
    """One counter."""
    family = CounterMetricFamily(name, about)
    family.add_metric((), count)
    return family


def labelled(name: str, about: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    """One counter with a sample for each value of its label."""
    family = CounterMetricFamily(name, about, labels=(label,))
    for value, count in sorted(counts.items()):
        family.add_metric((value,), count)
    return family
