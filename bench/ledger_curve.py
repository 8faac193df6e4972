"""A picture of how a cost grows, as SVG: keys on a logarithmic axis, microseconds on a straight one.

On such a grid a cost that grows with the logarithm is a straight line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 176, 24, 56
COLOURS = ("#0b6bcb", "#b3540a", "#2f7d32", "#7b3fa0")
LINES = 5
_STEPS = (1, 2, 2.5, 5, 10)


class Curve(NamedTuple):
    """A line of the picture: its name, and its points as keys and microseconds."""

    name: str
    points: Sequence[tuple[int, float]]


def draw(curves: Sequence[Curve]) -> str:
    """The picture."""
    return "\n".join(_elements(curves)) + "\n"


class _Grid(NamedTuple):
    first: float
    last: float
    most: float

    def x(self, keys: int) -> float:
        """Where a number of keys stands."""
        share = (math.log10(keys) - self.first) / ((self.last - self.first) or 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, cost: float) -> float:
        """Where a cost stands."""
        return round(HEIGHT - BOTTOM - cost / self.most * (HEIGHT - TOP - BOTTOM), 1)


def _elements(curves: Sequence[Curve]) -> Iterator[str]:
    sizes = sorted({keys for curve in curves for keys, _ in curve.points})
    step = _step(max(cost for curve in curves for _, cost in curve.points) / LINES)
    grid = _Grid(math.log10(sizes[0]), math.log10(sizes[-1]), step * LINES)
    size, font = f'viewBox="0 0 {WIDTH} {HEIGHT}"', 'font-family="sans-serif" font-size="13"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    yield "<title>Processor time of a transaction with one operation, by keys in the state</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    for number in range(LINES + 1):
        y = grid.y(number * step)
        yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#d9d9d9"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444444">{number * step:g}</text>'
    for keys in sizes:
        yield f'<text x="{grid.x(keys)}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#444444">{keys:,}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle" fill="#444444">keys in the state</text>'
    yield f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="middle" fill="#444444">CPU µs</text>'
    for curve, colour in zip(curves, COLOURS, strict=False):
        yield from _line(curve, colour, grid)
    yield "</svg>"


def _line(curve: Curve, colour: str, grid: _Grid) -> Iterator[str]:
    places = [(grid.x(keys), grid.y(cost)) for keys, cost in curve.points]
    drawn = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for (x, y), (_, cost) in zip(places, curve.points, strict=True):
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'
        yield f'<text x="{x}" y="{y - 9}" text-anchor="middle" fill="{colour}">{cost:.0f}</text>'
    x, y = places[-1]
    yield f'<text x="{x + 14}" y="{y + 4}" fill="{colour}">{curve.name}</text>'


def _step(least: float) -> float:
    """A round number of at least this size."""
    scale = 10.0 ** math.floor(math.log10(least))
    return next(step * scale for step in _STEPS if step * scale >= least)
