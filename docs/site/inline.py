"""Puts drawings into pages: there they follow the light or dark colours that the reader has chosen."""

from __future__ import annotations

import re
from html import escape

from docs.svg import DARK, LIGHT, rules

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


def palette() -> str:
    """The rules of CSS with the colours of all drawings."""
    dark = rules('body:not([data-theme="light"]) .drawing', DARK)
    chosen = rules('body[data-theme="dark"] .drawing', DARK)
    return f"{rules('.drawing', LIGHT)}\n@media(prefers-color-scheme:dark){{{dark}}}\n{chosen}\n"
