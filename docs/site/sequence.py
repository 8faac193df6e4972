"""Draws the sequence diagrams of the pages: participants, messages, lost messages, notes and loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from docs import svg

TOP = 34.0
STEP = 44.0
MARGIN = 14.0

_MESSAGE = re.compile(r"(\w+)(--?)(>>|x)(\w+): (.*)")
_NOTE = re.compile(r"Note over (\w+)(?:,(\w+))?: (.*)")


class Message(NamedTuple):
    """An arrow; one that is lost ends in a cross."""

    source: str
    target: str
    words: str
    is_lost: bool


class Note(NamedTuple):
    """What happens at one participant, or at all from one to another."""

    over: str
    to: str
    words: list[str]


class Loop(NamedTuple):
    """The begin of a loop; its end has no words."""

    words: str


class Sequence(NamedTuple):
    """A diagram: the names of its participants, and what happens."""

    names: dict[str, str]
    steps: list[Message | Note | Loop]


def parsed(source: str) -> Sequence:
    """A diagram in the language of Mermaid; a line that is not understood is a mistake."""
    names: dict[str, str] = {}
    steps: list[Message | Note | Loop] = []
    for line in (line.strip() for line in source.splitlines()[1:]):
        participant = re.fullmatch(r"participant (\w+)(?: as (.*))?", line)
        message, note = _MESSAGE.fullmatch(line), _NOTE.fullmatch(line)
        if participant:
            names[participant[1]] = participant[2] or participant[1]
        elif message:
            steps.append(Message(message[1], message[4], message[5], message[3] == "x"))
        elif note:
            steps.append(Note(note[1], note[2] or note[1], re.split(r"<br/?>", note[3])))
        elif line.startswith("loop ") or line == "end":
            steps.append(Loop(line.removeprefix("loop ") if line != "end" else ""))
        elif line:
            raise ValueError(f"Not understood: {line}")
    return Sequence(names, steps)


def drawn(source: str, title: str) -> str:
    """The diagram as SVG."""
    sequence = parsed(source)
    places = _columns(sequence)
    bottom = TOP + sum(_height(step) for step in sequence.steps) + 16
    width = max(places.values()) + _half(sequence, list(places)[-1]) + MARGIN
    elements = [*_lifelines(sequence, places, bottom), *_steps(sequence, places)]
    return svg.document(width, bottom + 4, title, elements)


def _columns(sequence: Sequence) -> dict[str, float]:
    """Where each participant stands: far enough from the one before for the words between them."""
    order = list(sequence.names)
    places = {order[0]: MARGIN + _half(sequence, order[0])}
    for number, name in enumerate(order[1:], 1):
        least = places[order[number - 1]] + _half(sequence, order[number - 1]) + _half(sequence, name) + 16
        for step in sequence.steps:
            if isinstance(step, Message) and name in (step.source, step.target):
                other = step.target if step.source == name else step.source
                if order.index(other) < number:
                    least = max(least, places[other] + len(step.words) * svg.CHARACTER + 28)
        places[name] = round(least)
    return places


def _half(sequence: Sequence, name: str) -> float:
    """Half of what a participant takes across: its name, or its notes."""
    notes = [
        svg.width_of(step.words) for step in sequence.steps if isinstance(step, Note) and step.over == step.to == name
    ]
    return max(len(sequence.names[name]) * svg.CHARACTER, *notes, 40.0) / 2 + 10


def _height(step: Message | Note | Loop) -> float:
    if isinstance(step, Note):
        return len(step.words) * svg.LINE + 22
    return STEP if isinstance(step, Message) else (24.0 if step.words else 10.0)


def _lifelines(sequence: Sequence, places: dict[str, float], bottom: float) -> Iterator[str]:
    for name, shown in sequence.names.items():
        x, width = places[name], len(shown) * svg.CHARACTER + 20
        yield f'<line x1="{x:g}" y1="{TOP - 4:g}" x2="{x:g}" y2="{bottom:g}" stroke="{svg.colour("line")}"/>'
        yield svg.box(x - width / 2, 4, width, 26, stroke="quiet")
        yield svg.text(x, 21.5, shown, more=' font-weight="600"')


def _steps(sequence: Sequence, places: dict[str, float]) -> Iterator[str]:
    y, opened = TOP, 0.0
    for step in sequence.steps:
        height = _height(step)
        if isinstance(step, Message):
            yield from _message(step, places, y + height - 12)
        elif isinstance(step, Note):
            yield from _note(step, places, y + 8, height - 12)
        elif step.words:
            opened = y + 4
            yield svg.text(min(places.values()) - 4, y + 18, f"loop: {step.words}", "start", "quiet")
        else:
            left, right = min(places.values()) - 10, max(places.values()) + 10
            frame = f'x="{left:g}" y="{opened:g}" width="{right - left:g}" height="{y + 6 - opened:g}" rx="5"'
            yield f'<rect {frame} fill="none" stroke="{svg.colour("quiet")}" stroke-dasharray="3 3"/>'
        y += height


def _message(step: Message, places: dict[str, float], y: float) -> Iterator[str]:
    start, end = places[step.source], places[step.target]
    way = 1.0 if end > start else -1.0
    colour = "bad" if step.is_lost else "accent"
    stop = start + (end - start) * 0.62 if step.is_lost else end
    dashes = ' stroke-dasharray="5 4"' if step.is_lost else ""
    line = f'x1="{start:g}" y1="{y:g}" x2="{stop - way * (0 if step.is_lost else 6):g}" y2="{y:g}"'
    yield f'<line {line} stroke="{svg.colour(colour)}" stroke-width="1.5"{dashes}/>'
    if step.is_lost:
        cross = f"M{stop - 5:g},{y - 5:g}l10,10m0,-10l-10,10"
        yield f'<path d="{cross}" fill="none" stroke="{svg.colour(colour)}" stroke-width="2"/>'
    else:
        yield svg.arrow_head(stop, y, way, 0.0, colour)
    yield svg.text((start + end) / 2, y - 7, step.words, fill="bad" if step.is_lost else "ink")


def _note(step: Note, places: dict[str, float], y: float, height: float) -> Iterator[str]:
    left, right = sorted((places[step.over], places[step.to]))
    width = max(svg.width_of(step.words) + 18, right - left + 40)
    middle = (left + right) / 2
    yield svg.box(middle - width / 2, y, width, height, stroke="accent")
    yield from svg.lines(middle, y + height / 2, step.words)
