"""The drawings of the concepts, written by `make tables` as SVG files beside their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from docs import svg

CONCEPTS = Path(__file__).parent / "concepts"


def one_law() -> str:
    """Three ways to store a write and its receipt, each with the instant at which a crash does harm."""
    width, height = 700.0, 372.0
    return svg.document(width, height, "Three ways to store a write and its receipt", _ways(width))


def _ways(width: float) -> Iterator[str]:
    rows = (
        ("Two transactions", ("write stored", "receipt stored", "answer"), 0, "killed here: the retry writes again"),
        (
            "Answer before the disk",
            ("write and receipt in memory", "answer", "on disk"),
            1,
            "power cut here: an answer for nothing",
        ),
        (
            "One transaction, then the answer",
            ("write and receipt, one commit", "on disk", "answer"),
            None,
            "killed anywhere: both or neither",
        ),
    )
    for number, (name, steps, harm, words) in enumerate(rows):
        top = 12 + number * 122.0
        yield svg.text(14, top + 14, name, "start", "ink", ' font-weight="600"')
        yield from _timeline(steps, harm, top + 52, width)
        colour = "good" if harm is None else "bad"
        yield svg.text(14, top + 98, words, "start", colour)


def _timeline(steps: tuple[str, ...], harm: int | None, y: float, width: float) -> Iterator[str]:
    yield f'<line x1="14" y1="{y:g}" x2="{width - 22:g}" y2="{y:g}" stroke="{svg.colour("quiet")}" stroke-width="1.5"/>'
    yield svg.arrow_head(width - 14, y, 1.0, 0.0)
    places = [132.0, 360.0, 585.0]
    for x, step in zip(places, steps, strict=True):
        size = len(step) * svg.CHARACTER + 20
        yield svg.box(x - size / 2, y - 15, size, 30, stroke="accent" if step != "answer" else "quiet")
        yield svg.text(x, y + 4.5, step)
    if harm is not None:
        x = (places[harm] + places[harm + 1]) / 2 + (12 if harm == 0 else -6)
        yield _path(f"M{x - 7:g},{y - 7:g}l14,14m0,-14l-14,14", "bad")


def _path(way: str, colour: str, more: str = "") -> str:
    return f'<path d="{way}" stroke="{svg.colour(colour)}" stroke-width="2" fill="none"{more}/>'


def boundary() -> str:
    """What one commit covers, and what lies outside of it."""
    return svg.document(700, 268, "What one commit covers", _boundary())


def _boundary() -> Iterator[str]:
    yield svg.box(14, 40, 112, 60)
    yield from svg.lines(70, 70, ("client", "keeps the key"))
    yield svg.box(230, 14, 210, 176, "paper", "accent", ' stroke-dasharray="5 4"')
    yield svg.text(335, 34, "one commit: exactly once", fill="accent")
    for y, words in ((50.0, "receipt of the key"), (94.0, "your rows"), (138.0, "outbox: calls to make")):
        yield svg.box(250, y, 170, 34)
        yield svg.text(335, y + 21, words)
    yield svg.box(560, 50, 126, 44, stroke="bad")
    yield from svg.lines(623, 72, ("a call made", "in the handler"), "bad")
    yield svg.box(560, 134, 126, 44)
    yield from svg.lines(623, 156, ("a service that", "honours the key"))
    yield from _straight(126, 70, 230, 70, "accent")
    yield from _straight(440, 72, 560, 72, "bad")
    yield from _straight(420, 156, 560, 156, "quiet")
    yield svg.text(500, 62, "maybe twice", fill="bad")
    yield svg.text(500, 146, "same key", fill="quiet")
    yield svg.text(
        14, 218, "Inside the line a crash leaves everything or nothing, and a retry changes nothing.", "start"
    )
    yield svg.text(
        14,
        240,
        "Outside of it a call may be made twice: only its receiver can count it once, by the key",
        "start",
        "quiet",
    )
    yield svg.text(14, 258, "that every attempt carries.", "start", "quiet")


def _straight(x: float, y: float, to_x: float, to_y: float, colour: str) -> Iterator[str]:
    line = f'x1="{x:g}" y1="{y:g}" x2="{to_x - 7:g}" y2="{to_y:g}"'
    yield f'<line {line} stroke="{svg.colour(colour)}" stroke-width="1.5"/>'
    yield svg.arrow_head(to_x, to_y, 1.0, 0.0, colour)


def epochs() -> str:
    """Two futures of one backup, and the epoch that tells them apart."""
    return svg.document(700, 250, "Two futures of one backup, told apart by the epoch", _epochs())


def _epochs() -> Iterator[str]:
    yield _path("M20,70L300,70", "quiet")
    yield _path("M300,70C330,70 330,180 370,180L660,180", "accent")
    yield svg.arrow_head(668, 180, 1.0, 0.0, "accent")
    yield _path("M300,70L560,70", "bad", ' stroke-dasharray="5 4"')
    for x, words in ((60.0, "1"), (140.0, "2"), (220.0, "3")):
        yield from _entry(x, 70, words, "quiet")
    for x, words in ((380.0, "4"), (460.0, "5")):
        yield from _entry(x, 70, words, "bad")
    for x, words in ((430.0, "4'"), (520.0, "5'"), (600.0, "6'")):
        yield from _entry(x, 180, words, "accent")
    yield svg.text(300, 40, "backup", fill="ink", more=' font-weight="600"')
    yield f'<line x1="300" y1="48" x2="300" y2="70" stroke="{svg.colour("ink")}"/>'
    yield svg.text(430, 40, "lost time: the disk died", fill="bad")
    yield svg.text(530, 216, "after the restore: a new epoch", fill="accent")
    yield svg.text(20, 112, "A reader at 5 asks for what follows.", "start", "quiet")
    yield svg.text(20, 132, "Without an epoch it would get 6' and", "start", "quiet")
    yield svg.text(20, 152, "miss 4' and 5'. With it, the server", "start", "quiet")
    yield svg.text(20, 172, "says: go back to 3.", "start", "quiet")


def _entry(x: float, y: float, words: str, colour: str) -> Iterator[str]:
    yield svg.box(x - 16, y - 14, 32, 28, stroke=colour)
    yield svg.text(x, y + 4.5, words)


DRAWINGS: Mapping[Path, Callable[[], str]] = {
    CONCEPTS / "one-law.svg": one_law,
    CONCEPTS / "boundary.svg": boundary,
    CONCEPTS / "epochs.svg": epochs,
}
