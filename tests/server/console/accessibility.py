"""axe-core in the browser: no violation of WCAG 2.2 A and AA, and none of the best practices."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.events.insieme.packages import installed_node
from tests.server.console.browser import ConsolePage

HERE = Path(__file__).parent
CHECK = (
    "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map("
    "one => one.id + ': ' + one.nodes.slice(0, 3)"
    ".map(node => node.html.slice(0, 160) + ' ' + node.failureSummary).join(' | ')))"
)


@cache
def axe() -> str:
    """The script of the package."""
    installed_node(HERE)
    return (HERE / "node_modules" / "axe-core" / "axe.min.js").read_text()


def check_accessibility(page: ConsolePage) -> None:
    """Fail for each violation on the page as it is shown."""
    if not page.run("typeof axe === 'object'"):
        page.run(f"{axe()}; 0")
    found = page.run(CHECK)
    assert found == [], "\n".join(found)
