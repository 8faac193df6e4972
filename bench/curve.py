"""A chart of a few curves as SVG: x on a logarithmic or a straight axis, y on a straight one from 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from docs import svg

WIDTH, HEIGHT = 760, 400
LEFT, TOP, BOTTOM = 72, 24, 56
COLOURS = tuple(svg.colour(f"series{number}") for number in range(6))
LINES = 5
"""At most, above the axis."""
LABEL_GAP = 15
_STEPS = (1, 2, 2.5, 5, 10)


class Curve(NamedTuple):
    """A line of the chart: its name, and its points."""

    name: str
    points: Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """What the axes say."""

    title: str
    x: str
    y: str
    is_logarithmic: bool = True
    with_values: bool = True
    """Whether the value of each point is written at it."""


class _Grid(NamedTuple):
    chart: Chart
    first: float
    last: float
    most: float
    right: float
    """The end of the axis; behind it is room for the names of the curves."""

    def x(self, value: float) -> float:
        """Where a value stands on the horizontal axis."""
        share = (_scaled(self.chart, value) - self.first) / ((self.last - self.first) or 1.0)
        return round(LEFT + share * (self.right - LEFT), 1)

    def y(self, value: float) -> float:
        """Where a value stands on the vertical axis."""
        return round(HEIGHT - BOTTOM - value / self.most * (HEIGHT - TOP - BOTTOM), 1)


def draw(chart: Chart, curves: Sequence[Curve]) -> str:
    """The whole file."""
    return svg.document(WIDTH, HEIGHT, chart.title, _elements(chart, curves))


def _scaled(chart: Chart, value: float) -> float:
    return math.log10(value) if chart.is_logarithmic else value


def _elements(chart: Chart, curves: Sequence[Curve]) -> Iterator[str]:
    values = sorted({x for curve in curves for x, _ in curve.points})
    most = max(y for curve in curves for _, y in curve.points)
    step = round_up(most / LINES)
    lines = math.ceil(most / step)
    first = values[0] if chart.is_logarithmic else 0.0
    right = WIDTH - 20 - svg.width_of(curve.name for curve in curves)
    grid = _Grid(chart, _scaled(chart, first), _scaled(chart, values[-1]), step * lines, right)
    for number in range(lines + 1):
        y = grid.y(number * step)
        yield f'<line x1="{LEFT}" y1="{y}" x2="{right:g}" y2="{y}" stroke="{svg.colour("line")}"/>'
        yield svg.text(LEFT - 8, y + 4, f"{number * step:,g}", "end", "quiet")
    if not chart.is_logarithmic:
        across = round_up(values[-1] / LINES)
        values = [number * across for number in range(LINES + 1) if number * across <= values[-1]]
    for x in values:
        place = f'x="{grid.x(x)}" y="{HEIGHT - BOTTOM + 20}"'
        yield f'<text {place} text-anchor="middle" fill="{svg.colour("quiet")}">{x:,.0f}</text>'
    middle = (LEFT + right) / 2
    yield f'<text x="{middle:g}" y="{HEIGHT - 12}" text-anchor="middle" fill="{svg.colour("quiet")}">{chart.x}</text>'
    yield f'<text x="4" y="{TOP - 10}" fill="{svg.colour("quiet")}">{chart.y}</text>'
    taken: list[float] = []
    for curve, colour in zip(curves, COLOURS, strict=False):
        yield from _line(curve, colour, grid, taken)


def _line(curve: Curve, colour: str, grid: _Grid, taken: list[float]) -> Iterator[str]:
    places = [(grid.x(x), grid.y(y)) for x, y in curve.points]
    drawn = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for (x, y), (_, value) in zip(places, curve.points, strict=True):
        yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
        if grid.chart.with_values:
            yield f'<text x="{x}" y="{y - 9}" text-anchor="middle" fill="{colour}">{value:,.0f}</text>'
    x, y = places[-1]
    away = LABEL_GAP if taken and y > min(taken, key=lambda other: abs(y - other)) else -LABEL_GAP
    while any(abs(y - other) < LABEL_GAP for other in taken):  # names do not lie on one another, and keep their order
        y += away
    taken.append(y)
    yield f'<text x="{x + 10:g}" y="{y + 4:g}" fill="{colour}">{curve.name}</text>'


def round_up(least: float) -> float:
    """A round number of at least this size."""
    scale = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(step * scale for step in _STEPS if step * scale >= least)
