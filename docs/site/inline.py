"""Puts drawings into pages: there they follow the light or dark colours that the reader has chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff", "ink": "#1f2328", "quiet": "#57606a", "line": "#d0d7de", "fill": "#f3f6fa", "accent": "#0b5cad",
    "bad": "#b42318", "good": "#1f7a33",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "paper": "#131416", "ink": "#e6edf3", "quiet": "#a3adb8", "line": "#3d444d", "fill": "#1f242b", "accent": "#6cb6ff",
    "bad": "#ff8f80", "good": "#6fcf87",
}  # fmt: skip
"""The named colours of all drawings. A file has both sets and follows the system; a page of the site brings its own."""

NARROWEST = 600.0
"""Pixels below which a drawing is not made smaller; its frame scrolls instead."""


SMALLER = 0.8
"""The least share of its size to which a drawing is scaled."""


def inline(drawing: str, words: str) -> str:
    """A drawing without its own colours, named by words for those who cannot see it, in a frame that scrolls."""
    plain = re.sub(r"<style>.*?</style>|<title>.*?</title>|\n\s*", "", drawing, flags=re.DOTALL)
    found = re.search(r'viewBox="0 0 ([\d.]+)', plain)
    assert found is not None, "a drawing without a size"
    width = float(found[1]) * SMALLER
    named = f'<svg role="img" aria-label="{escape(words)}" style="min-width:{width:g}px" '
    return f'<div class="drawing-frame" tabindex="0">{plain.replace("<svg ", named, 1)}</div>'


def rules(selector: str, colours: Mapping[str, str]) -> str:
    """One rule of CSS that names the colours."""
    return selector + "{" + ";".join(f"--{name}:{value}" for name, value in colours.items()) + "}"


def style() -> str:
    """The colours of a drawing that is a file of its own."""
    dark = f"@media(prefers-color-scheme:dark){{{rules('.drawing', DARK)}}}"
    return f"<style>{rules('.drawing', LIGHT)}{dark}</style>"


def palette() -> str:
    """The rules of CSS with the colours of all drawings."""
    dark = rules('body:not([data-theme="light"]) .drawing', DARK)
    chosen = rules('body[data-theme="dark"] .drawing', DARK)
    return f"{rules('.drawing', LIGHT)}\n@media(prefers-color-scheme:dark){{{dark}}}\n{chosen}\n"
