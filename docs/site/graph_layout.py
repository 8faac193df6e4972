"""Places the nodes of a graph in layers, so that arrows point one way and their words do not lie on one another.

An arrow that would close a circle is placed as if it were turned round. The words of an arrow, and the points at which
a long arrow passes a layer, are cells of a layer too.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from docs import svg
from docs.site.graph_text import Graph, GraphEdge

SPACE, GAP = 14.0, 26.0
"""Between the nodes of a layer, and between two layers."""
LABEL = 30
"""Characters of a line of an arrow's words."""
ROUNDS = 12


@dataclass(slots=True)
class Cell:
    """What takes room in a layer: a node, the words of an arrow, or a point at which an arrow passes."""

    lines: tuple[str, ...]
    shape: str
    layer: int = 0
    width: float = 0.0
    height: float = 0.0
    along: float = 0.0
    """The middle, across the layers."""
    across: float = 0.0
    """The middle, within the layer."""
    before: list[Cell] = field(default_factory=list)
    behind: list[Cell] = field(default_factory=list)


@dataclass(slots=True)
class Route:
    """An arrow and the cells that it passes, from its source to its target."""

    edge: GraphEdge
    cells: list[Cell]


@dataclass(slots=True)
class Layout:
    """The placed graph: its nodes, its arrows, its size."""

    cells: dict[str, Cell]
    routes: list[Route]
    is_vertical: bool
    length: float
    breadth: float

    def point(self, cell: Cell) -> tuple[float, float]:
        """The middle of a cell."""
        return (cell.across, cell.along) if self.is_vertical else (cell.along, cell.across)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        return (self.breadth, self.length) if self.is_vertical else (self.length, self.breadth)


def placed(graph: Graph, *, is_vertical: bool) -> Layout:
    """Every node and every arrow in its place."""
    cells = {name: _node_cell(node.words, node.shape) for name, node in graph.nodes.items()}
    for edge in graph.edges:
        if edge.source == edge.target:
            cells[edge.source].lines += tuple(f"↻ {line}" for line in edge.words)
    edges = [edge for edge in graph.edges if edge.source != edge.target]
    turned = _turned(list(graph.nodes), edges)
    _rank(cells, edges, turned)
    routes = [_routed(edge, cells, edge in turned) for edge in edges]
    layers = _layers([*cells.values(), *(cell for route in routes for cell in route.cells[1:-1])])
    for layer in layers:
        for cell in layer:
            _measure(cell)
    _order(layers)
    length, breadth = _coordinates(layers, is_vertical=is_vertical)
    return Layout(cells, routes, is_vertical, length, breadth)


def _node_cell(words: tuple[str, ...], shape: str) -> Cell:
    wrapped = [line for word in words for line in textwrap.wrap(word, LABEL)]
    return Cell(tuple(wrapped), shape)


def _measure(cell: Cell) -> None:
    if cell.shape in ("dot", "start", "end"):
        cell.width = cell.height = 16.0
    elif cell.shape != "pass":
        room = 14.0 if cell.shape == "label" else 22.0
        cell.width = svg.width_of(cell.lines) + room + (14.0 if cell.shape == "choice" else 0.0)
        cell.height = len(cell.lines) * svg.LINE + (4.0 if cell.shape == "label" else 14.0)


def _turned(names: list[str], edges: Sequence[GraphEdge]) -> set[GraphEdge]:
    """The arrows that would close a circle, found in depth-first order."""
    found: set[GraphEdge] = set()
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        done.add(name)
        for edge in edges:
            if edge.source == name:
                if edge.target in (*path, name):
                    found.add(edge)
                elif edge.target not in done:
                    visit(edge.target, (*path, name))

    for name in names:
        if name not in done:
            visit(name, ())
    return found


def _rank(cells: dict[str, Cell], edges: Sequence[GraphEdge], turned: set[GraphEdge]) -> None:
    """Layers by the longest way; each second layer is for words."""
    for _ in cells:
        for edge in edges:
            first, last = (edge.target, edge.source) if edge in turned else (edge.source, edge.target)
            cells[last].layer = max(cells[last].layer, cells[first].layer + 2)


def _routed(edge: GraphEdge, cells: dict[str, Cell], is_turned: bool) -> Route:
    first, last = cells[edge.source], cells[edge.target]
    if is_turned:
        first, last = last, first
    passes = [Cell((), "pass", layer) for layer in range(first.layer + 1, last.layer)]
    if edge.words:
        middle = passes[(len(passes) - 1) // 4 * 2]
        middle.shape = "label"
        middle.lines = tuple(line for word in edge.words for line in textwrap.wrap(word, LABEL))
    way = [first, *passes, last]
    for one, other in itertools.pairwise(way):
        one.behind.append(other)
        other.before.append(one)
    return Route(edge, way[::-1] if is_turned else way)


def _layers(cells: Sequence[Cell]) -> list[list[Cell]]:
    layers: list[list[Cell]] = [[] for _ in range(max(cell.layer for cell in cells) + 1)]
    for cell in cells:
        layers[cell.layer].append(cell)
    return layers


def _order(layers: list[list[Cell]]) -> None:
    """Sort each layer by the mean place of the neighbours, forwards and backwards in turn."""
    for layer in layers:
        for number, cell in enumerate(layer):
            cell.across = number
    for turn in range(ROUNDS):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            wanted = {id(cell): _mean(cell.before if turn % 2 == 0 else cell.behind, cell.across) for cell in layer}
            layer.sort(key=lambda cell: wanted[id(cell)])
            for number, cell in enumerate(layer):
                cell.across = number


def _mean(cells: Sequence[Cell], otherwise: float) -> float:
    return sum(cell.across for cell in cells) / len(cells) if cells else otherwise


def _coordinates(layers: list[list[Cell]], *, is_vertical: bool) -> tuple[float, float]:
    """Places in pixels, and the length and breadth of all."""
    at = SPACE
    for layer in layers:
        depth = max((cell.height if is_vertical else cell.width) for cell in layer)
        for cell in layer:
            cell.along = at + depth / 2
        at += depth + (GAP if depth or len(layers) == 1 else 6.0)
    for layer in layers:
        _spread(layer, [float(number) for number in range(len(layer))], is_vertical)
    for turn in range(ROUNDS):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            _spread(layer, [_mean([*cell.before, *cell.behind], cell.across) for cell in layer], is_vertical)
    ends = [(cell.across, (cell.width if is_vertical else cell.height) / 2) for layer in layers for cell in layer]
    least = min(middle - half for middle, half in ends)
    for layer in layers:
        for cell in layer:
            cell.across += SPACE - least
    return at - GAP + SPACE, max(middle + half for middle, half in ends) - least + 2 * SPACE


def _spread(layer: list[Cell], wanted: list[float], is_vertical: bool) -> None:
    """Put cells where they want to be, in their order and without overlap; then move all towards the mean wish."""
    sizes = [max(cell.width if is_vertical else cell.height, 10.0) for cell in layer]
    places: list[float] = []
    for number, wish in enumerate(wanted):
        least = places[-1] + (sizes[number - 1] + sizes[number]) / 2 + SPACE if places else wish
        places.append(max(wish, least))
    shift = sum(wish - place for wish, place in zip(wanted, places, strict=True)) / len(layer)
    for cell, place in zip(layer, places, strict=True):
        cell.across = place + shift
