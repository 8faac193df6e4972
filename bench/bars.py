"""Bars for a few figures of a few candidates as SVG, the longest for the highest figure of its group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from docs import svg

WIDTH, BAR, GAP, GROUP = 760.0, 20.0, 6.0, 40.0
LEFT, RIGHT = 210.0, 110.0


class Bars(NamedTuple):
    """One group of bars that share a scale: its heading, and the figure of each candidate."""

    heading: str
    figures: Sequence[tuple[str, float]]


def draw_bars(title: str, unit: str, groups: Sequence[Bars]) -> str:
    """The whole file; Semel has the first colour."""
    height = sum(GROUP + len(group.figures) * (BAR + GAP) for group in groups) + 10
    return svg.document(WIDTH, height, title, _groups(unit, groups))


def _groups(unit: str, groups: Sequence[Bars]) -> Iterator[str]:
    y = 0.0
    for group in groups:
        yield svg.text(12, y + 24, f"{group.heading}, {unit}", "start", "ink", ' font-weight="600"')
        y += GROUP - 4
        most = max(figure for _, figure in group.figures)
        for name, figure in group.figures:
            colour = "series0" if name.startswith("Semel") else "series5"
            length = figure / most * (WIDTH - LEFT - RIGHT)
            yield svg.text(LEFT - 10, y + BAR / 2 + 4.5, name, "end", "ink")
            place = f'x="{LEFT:g}" y="{y:g}" width="{length:.1f}" height="{BAR:g}"'
            yield f'<rect {place} rx="2" fill="{svg.colour(colour)}"/>'
            yield svg.text(LEFT + length + 8, y + BAR / 2 + 4.5, f"{figure:,.0f}", "start", "quiet")
            y += BAR + GAP
        y += 4
