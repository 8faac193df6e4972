"""Reads the flowcharts and state diagrams of the pages, in the part of the Mermaid language that they use."""

from __future__ import annotations

import re
from typing import NamedTuple

_NODE = re.compile(
    r"(?P<name>\[\*\]|\w+)\s*(?P<shape>\(\[\"(?P<round>.*?)\"\]\)|\[\(\"(?P<store>.*?)\"\)\]|\{\"(?P<choice>.*?)\"\}|"
    r"\(\(\s*\)\)|\[\"(?P<box>.*?)\"\]|\[(?P<plain>[^\]*]+)\])?\s*"
)
_EDGE = re.compile(
    r"(?P<back><)?(?:--\s*(?P<middle>\"?[^->|\"]+\"?)\s*-->|(?P<dots>-\.->)|-->)(?:\|(?P<bar>\"?.*?\"?)\|)?\s*"
)


class GraphNode(NamedTuple):
    """A box: its lines, and its shape: box, round, choice, store, dot, start or end."""

    words: tuple[str, ...]
    shape: str


class GraphEdge(NamedTuple):
    """An arrow with its words."""

    source: str
    target: str
    words: tuple[str, ...] = ()
    is_dotted: bool = False
    is_both: bool = False


class Graph(NamedTuple):
    """A diagram: nodes by name, arrows, named groups of nodes, and whether it grows upwards."""

    nodes: dict[str, GraphNode]
    edges: list[GraphEdge]
    groups: dict[str, list[str]]
    is_upwards: bool


def parsed(source: str) -> Graph:
    """A diagram; a line that is not understood is a mistake."""
    first, *rest = (line.strip() for line in source.splitlines() if line.strip())
    graph = Graph({}, [], {}, first.endswith(" BT"))
    is_state = first.startswith("stateDiagram")
    group = ""
    for line in rest:
        begun = re.fullmatch(r'subgraph (\w+)(?:\["(.*)"\])?', line)
        if begun:
            group = begun[2] or begun[1]
            graph.groups[group] = []
        elif line == "end":
            group = ""
        else:
            named = _state_line(graph, line) if is_state else _flow_line(graph, line)
            if group:
                graph.groups[group] += named
    return graph


def _split(words: str | None) -> tuple[str, ...]:
    return tuple(re.split(r"<br/?>", words.strip().strip('"'))) if words and words.strip() else ()


def _state_line(graph: Graph, line: str) -> list[str]:
    found = re.fullmatch(r"(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.*))?", line)
    if found is None:
        raise ValueError(f"Not understood: {line}")
    ends = [
        ("start" if number == 0 else "end") if name == "[*]" else name for number, name in enumerate(found.groups()[:2])
    ]
    for name in ends:
        shape = name if name in ("start", "end") else "round"
        graph.nodes.setdefault(name, GraphNode((name.replace("_", " "),) if shape == "round" else (), shape))
    graph.edges.append(GraphEdge(ends[0], ends[1], _split(found[3])))
    return ends


def _flow_line(graph: Graph, line: str) -> list[str]:
    """Nodes with arrows between them, in a row; several nodes may share an arrow."""
    names, at = _nodes(graph, line, 0)
    seen = list(names)
    while at < len(line):
        edge = _EDGE.match(line, at)
        if edge is None:
            raise ValueError(f"Not understood: {line[at:]}")
        targets, at = _nodes(graph, line, edge.end())
        words = _split(edge["bar"] or edge["middle"])
        for source in names:
            for target in targets:
                graph.edges.append(GraphEdge(source, target, words, bool(edge["dots"]), bool(edge["back"])))
        names = targets
        seen += targets
    return seen


def _nodes(graph: Graph, line: str, at: int) -> tuple[list[str], int]:
    names = []
    while True:
        found = _NODE.match(line, at)
        if found is None:
            raise ValueError(f"Not understood: {line[at:]}")
        _add_node(graph, found)
        names.append(found["name"])
        at = found.end()
        if not line.startswith("& ", at):
            return names, at
        at += 2


def _add_node(graph: Graph, found: re.Match[str]) -> None:
    kinds = {"round": "round", "store": "store", "choice": "choice", "box": "box", "plain": "box"}
    kind = next((kind for kind in kinds if found[kind] is not None), None)
    if kind is not None:
        graph.nodes[found["name"]] = GraphNode(_split(found[kind]), kinds[kind])
    elif found["shape"]:
        graph.nodes[found["name"]] = GraphNode((), "dot")
    else:
        graph.nodes.setdefault(found["name"], GraphNode((found["name"],), "box"))
