"""Draws a flowchart or a state diagram that was placed in layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise as pairs

from docs import svg
from docs.site.graph_layout import Cell, Layout, Route, placed
from docs.site.graph_text import Graph, parsed

WIDEST = 820.0
"""Pixels that a page has room for, about; a drawing that is wider grows downwards instead, if that is narrower."""


def drawn(source: str, title: str) -> str:
    """A diagram in the language of Mermaid, as SVG."""
    return drawing(parsed(source), title)


def drawing(graph: Graph, title: str) -> str:
    """A graph as SVG."""
    across, down = placed(graph, is_vertical=False), placed(graph, is_vertical=True)
    layout = down if graph.is_upwards or across.size[0] > max(WIDEST, down.size[0]) else across
    if graph.is_upwards:
        for cell in {id(cell): cell for route in layout.routes for cell in route.cells}.values():
            cell.along = layout.length - cell.along
    elements = [*_groups(graph, layout), *(part for route in layout.routes for part in _route(layout, route))]
    for route in layout.routes:
        for cell in route.cells[1:-1]:
            elements += _label(layout, cell)
    for cell in layout.cells.values():
        elements += _node(layout, cell)
    width, height = layout.size
    if layout.is_vertical and graph.groups:  # their names stand beside them
        width += svg.width_of(graph.groups)
    return svg.document(math.ceil(width), math.ceil(height), title, elements)


def _groups(graph: Graph, layout: Layout) -> Iterator[str]:
    for name, members in graph.groups.items():
        inside = [layout.cells[member] for member in dict.fromkeys(members)]
        points = [(*layout.point(cell), cell) for cell in inside]
        left = min(x - cell.width / 2 for x, _, cell in points) - 8
        right = max(x + cell.width / 2 for x, _, cell in points) + 8
        top = min(y - cell.height / 2 for _, y, cell in points) - 8
        bottom = max(y + cell.height / 2 for _, y, cell in points) + 8
        dashes = ' stroke-dasharray="4 3"'
        yield svg.box(left, top, right - left, bottom - top, "paper", "accent", dashes)
        if layout.is_vertical:
            yield svg.text(right + 8, (top + bottom) / 2, name, "start", "accent")
        else:
            yield svg.text((left + right) / 2, bottom + 14, name, "middle", "accent")


def _route(layout: Layout, route: Route) -> Iterator[str]:
    cells = route.cells
    forwards = 1.0 if cells[-1].along > cells[0].along else -1.0
    start, end = _edge_of(layout, cells[0], forwards), _edge_of(layout, cells[-1], -forwards)
    points = [start, *(layout.point(cell) for cell in cells[1:-1]), end]
    path = _smooth(points, layout.is_vertical)
    dashes = ' stroke-dasharray="4 3"' if route.edge.is_dotted else ""
    yield f'<path d="{path}" fill="none" stroke="{svg.colour("quiet")}" stroke-width="1.2"{dashes}/>'
    way = (0.0, forwards) if layout.is_vertical else (forwards, 0.0)
    yield svg.arrow_head(*points[-1], *way)
    if route.edge.is_both:
        yield svg.arrow_head(*points[0], -way[0], -way[1])


def _edge_of(layout: Layout, cell: Cell, way: float) -> tuple[float, float]:
    """The middle of the side of a node that faces this way."""
    x, y = layout.point(cell)
    return (x, y + way * cell.height / 2) if layout.is_vertical else (x + way * cell.width / 2, y)


def _smooth(points: Sequence[tuple[float, float]], is_vertical: bool) -> str:
    """One curve through all points, straight at both ends, that does not swing out between two of them."""
    along = [y if is_vertical else x for x, y in points]
    across = [x if is_vertical else y for x, y in points]
    steps = [
        (after - before) / (to - at) for (before, after), (at, to) in zip(pairs(across), pairs(along), strict=True)
    ]
    slopes = [0.0, *(_slope(one, other) for one, other in pairs(steps)), 0.0]
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for number, (at, to) in enumerate(pairs(along)):
        third = (to - at) / 3
        first = at + third, across[number] + slopes[number] * third
        second = to - third, across[number + 1] - slopes[number + 1] * third
        places = (first, second, (to, across[number + 1]))
        path += "C" + " ".join(f"{b:.1f},{a:.1f}" if is_vertical else f"{a:.1f},{b:.1f}" for a, b in places)
    return path


def _slope(one: float, other: float) -> float:
    """The slope at a point between two steps: none at a turning point, and bounded by the flatter step."""
    if one * other <= 0:
        return 0.0
    return math.copysign(min(abs(one + other) / 2, 3 * abs(one), 3 * abs(other)), one)


def _label(layout: Layout, cell: Cell) -> Iterator[str]:
    if cell.shape == "label":
        x, y = layout.point(cell)
        yield svg.box(x - cell.width / 2, y - cell.height / 2, cell.width, cell.height, "paper", "paper")
        yield from svg.lines(x, y, cell.lines, "quiet")


def _node(layout: Layout, cell: Cell) -> Iterator[str]:
    x, y = layout.point(cell)
    if cell.shape in ("dot", "start", "end"):
        fill, radius = svg.colour("fill" if cell.shape == "end" else "quiet"), 5 if cell.shape == "dot" else 7
        yield f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" fill="{fill}" stroke="{svg.colour("quiet")}"/>'
        return
    stroke = "accent" if cell.shape in ("choice", "round") else "quiet"
    round_corners = ' style="rx:14px"' if cell.shape == "round" else ""
    yield svg.box(x - cell.width / 2, y - cell.height / 2, cell.width, cell.height, stroke=stroke, more=round_corners)
    yield from svg.lines(x, y, cell.lines)
