"""Counters and gauges as rows of a table, with their names in both forms of `/metrics`.

What happens is counted in the meter under a name; a row says what that name is called in JSON, where it means the last
minute, and as a Prometheus counter, where it means everything since the start. Labels come from closed sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class Count(NamedTuple):
    """Something that happens."""

    name: str
    """In the meter."""
    json: tuple[str, ...]
    """Its names in JSON, for the last minute."""
    series: str
    """Its name for Prometheus, without the final `_total`."""
    label: tuple[str, str] | None = None
    less: str = ""
    """Another name of the meter whose count is part of this one's, and has a sample of its own."""


class Gauge(NamedTuple):
    """Something that is."""

    name: str
    json: tuple[str, ...]
    series: str


def named(
    counts: Sequence[Count],
    gauges: Sequence[Gauge],
    last_minute: Callable[[str], int],
    values: Mapping[str, float] | None,
) -> dict[str, float | None]:
    """The names and values for JSON; a gauge is null when the store could not be asked."""
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
    """The series for Prometheus; gauges are left out when the store could not be asked."""
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
