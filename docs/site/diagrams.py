"""Diagrams in the Mermaid language as drawings inside a page, with words for those who cannot see them."""

from __future__ import annotations

from docs.site import graph, graph_text, sequence
from docs.site.inline import inline


def drawn(source: str) -> str:
    """The drawing of one diagram."""
    words = described(source)
    kind = sequence if source.startswith("sequenceDiagram") else graph
    return inline(kind.drawn(source, "diagram"), words)


def described(source: str) -> str:
    """What a diagram shows, in words."""
    if source.startswith("sequenceDiagram"):
        names, steps = sequence.parsed(source)
        return "Sequence of messages. " + ". ".join(_step(names, step) for step in steps if _step(names, step))
    found = graph_text.parsed(source)
    shown = {name: " ".join(node.words) or name for name, node in found.nodes.items()}
    arrows = (f"{shown[edge.source]} to {shown[edge.target]}{_colon(edge.words)}" for edge in found.edges)
    return "Diagram of arrows. " + ". ".join(arrows)


def _step(names: dict[str, str], step: sequence.Message | sequence.Note | sequence.Loop) -> str:
    if isinstance(step, sequence.Message):
        lost = ", which is lost" if step.is_lost else ""
        return f"{names[step.source]} to {names[step.target]}: {step.words}{lost}"
    if isinstance(step, sequence.Note):
        return f"{names[step.over]}: {' '.join(step.words)}"
    return f"Repeated, {step.words}" if step.words else ""


def _colon(words: tuple[str, ...]) -> str:
    return f": {', '.join(words)}" if words else ""
