"""What the theme leaves out for readers who use a keyboard or a screen reader, put into the built pages.

The theme has no setting for these, and a copy of its templates would have to follow each of its versions.
"""

from __future__ import annotations

from pathlib import Path

REPAIRS = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="Contents of this page" class="toc-drawer',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
    '<div id="search-results">': '<h1>Search</h1>\n<div id="search-results">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div class="highlight"><pre>': '<div class="highlight"><pre tabindex="0">',
}
"""What stands in a page, and what it becomes; what scrolls can be reached by keys."""


def repair(folder: Path) -> None:
    """Mend every page of a folder; a text that no page has is a mistake: the theme has changed."""
    left = set(REPAIRS)
    for path in folder.rglob("*.html"):
        text = path.read_text("utf-8")
        for found, mended in REPAIRS.items():
            if found in text:
                text = text.replace(found, mended)
                left.discard(found)
        path.write_text(text, "utf-8")
    if left:
        raise SystemExit(f"The theme has changed; docs/site/repairs.py finds nothing to mend: {sorted(left)}")
