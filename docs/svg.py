"""The colours and the pieces of every drawing of the documentation.

A drawing is readable on light and on dark paper: its colours are named, a file of its own has both sets of them and
follows the system, and a page of the site brings its own values, which follow the reader's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff", "ink": "#1f2328", "quiet": "#57606a", "line": "#d0d7de", "fill": "#f3f6fa", "accent": "#0b5cad",
    "bad": "#b42318", "good": "#1f7a33",
    "series0": "#0b6bcb", "series1": "#b3540a", "series2": "#2f7d32", "series3": "#7b3fa0", "series4": "#a12b52",
    "series5": "#5a5a5a",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "paper": "#131416", "ink": "#e6edf3", "quiet": "#a3adb8", "line": "#3d444d", "fill": "#1f242b", "accent": "#6cb6ff",
    "bad": "#ff8f80", "good": "#6fcf87",
    "series0": "#6cb6ff", "series1": "#f0a35e", "series2": "#7ecb83", "series3": "#c79bea", "series4": "#f08fb0",
    "series5": "#b0b0b0",
}  # fmt: skip
CHARACTER = 7.2
"""The mean width of a character at 13 pixels; letters that are wider are rare enough."""
LINE = 17.0
"""From one line of text to the next."""


def rules(selector: str, colours: Mapping[str, str]) -> str:
    """One rule of CSS that names the colours."""
    return selector + "{" + ";".join(f"--{name}:{value}" for name, value in colours.items()) + "}"


STYLE = f"<style>{rules('.drawing', LIGHT)}@media(prefers-color-scheme:dark){{{rules('.drawing', DARK)}}}</style>"


def colour(name: str) -> str:
    """A named colour, as the value of an attribute."""
    return f"var(--{name})"


def document(width: float, height: float, title: str, elements: Iterable[str]) -> str:
    """A whole drawing; the width in pixels keeps its letters at the size of the text around it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" {size}'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    paper = f'<rect width="{width:g}" height="{height:g}" fill="{colour("paper")}"/>'
    return "\n".join((f"{head} {font}>", f"<title>{escape(title)}</title>", STYLE, paper, *elements, "</svg>")) + "\n"


def text(x: float, y: float, words: str, anchor: str = "middle", fill: str = "ink", more: str = "") -> str:
    """One line of text."""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour(fill)}"'
    return f"<text {place}{more}>{escape(words, quote=False)}</text>"


def lines(x: float, y: float, words: Iterable[str], fill: str = "ink", more: str = "") -> Iterable[str]:
    """Lines of text around a middle."""
    some = list(words)
    top = y - (len(some) - 1) * LINE / 2 + 4.5
    return [text(x, top + number * LINE, line, fill=fill, more=more) for number, line in enumerate(some)]


def box(
    x: float, y: float, width: float, height: float, fill: str = "fill", stroke: str = "line", more: str = ""
) -> str:
    """A rectangle with round corners."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"'
    return f'<rect {place} fill="{colour(fill)}" stroke="{colour(stroke)}"{more}/>'


def arrow_head(x: float, y: float, dx: float, dy: float, fill: str = "quiet") -> str:
    """The point of an arrow that ends here and comes along this direction, a vector of length 1."""
    back_x, back_y = x - 8 * dx, y - 8 * dy
    points = f"{x:.1f},{y:.1f} {back_x - 4 * dy:.1f},{back_y + 4 * dx:.1f} {back_x + 4 * dy:.1f},{back_y - 4 * dx:.1f}"
    return f'<polygon points="{points}" fill="{colour(fill)}"/>'


def width_of(words: Iterable[str]) -> float:
    """How wide lines of text are, at the most."""
    return max((len(line) * CHARACTER for line in words), default=0.0)
