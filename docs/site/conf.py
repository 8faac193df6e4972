"""What Sphinx is told: the theme and the Markdown; `docs.site` adds the version and the static files."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent

project = "Semel"
author = "the authors of Semel"
extensions = ["myst_parser"]
myst_heading_anchors = 4
"""Headings have the anchors that forges give them, so that one link works in both places."""
suppress_warnings = ["misc.highlighting_failure"]
"""A command of several lines is none to the highlighter; the tests of pages read every block."""
html_theme = "furo"
html_title = "Semel"
templates_path = [str(HERE / "templates")]
html_css_files = ["palette.css", "site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
highlight_language = "text"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
