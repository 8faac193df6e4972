"""Draws a flowchart or a state diagram that was placed in layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

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
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for one, other in itertools.pairwise(points):
        path += _curve(one, other, layout.is_vertical)
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


def _curve(one: tuple[float, float], other: tuple[float, float], is_vertical: bool) -> str:
    (x, y), (to_x, to_y) = one, other
    if is_vertical:
        middle = (y + to_y) / 2
        return f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
    middle = (x + to_x) / 2
    return f"C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"


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
