"""Every surface is whole: it has a guide, a reference, a scope, metrics, settings and a crash run.

The surfaces are found in the code, by its folders, and not in a list of this test, so that a sixth one is not passed
over in silence.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
REFERENCE = {"streams": "http"}
"""Pages of the reference whose name is not that of their surface."""


def surfaces_of(root: Path) -> set[str]:
    """The folders that have rules of their own, or answer requests of their own."""
    rules = {path.parent.name for path in root.glob("src/semel/surfaces/*/contract.py")}
    hosts = {path.parent.name for path in root.glob("src/semel/server/*/host.py")}
    return rules | hosts


def lacking(root: Path, surface: str) -> list[str]:
    """What a surface does not have."""
    source = root / "src/semel"
    rules, host = source / "contracts" / surface / "contract.py", source / "server" / surface / "host.py"
    crashes = [path.read_text() for path in root.glob("tests/**/test_crash.py")]
    # Streams have the oldest crash run, which is named after nothing.
    run = root / "tests" / "crash" if surface == "streams" else None
    has_run = (run is not None and run.is_dir()) or any(
        re.search(rf"\btests\.{surface}(?:_crash)?\.", text) for text in crashes
    )
    metrics = "".join(path.read_text() for path in source.glob("server/*metrics.py"))
    found = {
        "rules": rules.exists(),
        "a host": host.exists(),
        "a guide": (root / f"docs/guide/{surface}.md").exists(),
        "a reference": (root / f"docs/reference/{REFERENCE.get(surface, surface)}.md").exists(),
        "a line in the index of the docs": f"guide/{surface}.md" in (root / "docs/index.md").read_text(),
        "a scope": bool(re.search(rf"`{surface}[`:]", (root / "docs/operating/credentials.md").read_text())),
        "metrics": f"semel_{surface}_" in metrics,
        "settings": f"    {surface}_" in (source / "server/settings.py").read_text(),
        "limits": surface in (root / "docs/reference/limits.md").read_text().lower(),
        "a command": (source / "cli" / surface).is_dir(),
        "a crash run": has_run,
    }
    return [what for what, is_there in found.items() if not is_there]


def test_f3_there_are_surfaces() -> None:
    assert surfaces_of(ROOT) >= {"streams", "events", "jobs", "ledger", "deltas"}


@pytest.mark.parametrize("surface", sorted(surfaces_of(ROOT)))
def test_f3_a_surface_lacks_nothing(surface: str) -> None:
    assert not lacking(ROOT, surface)


def test_f3_a_sixth_surface_that_is_only_code_is_noticed(tmp_path: Path) -> None:
    for folder in ("src", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("contracts/sixth/contract.py", "server/sixth/host.py"):
        place = tmp_path / "src/semel" / path
        place.parent.mkdir()
        place.write_text('"""A surface that has no documentation and no test."""\n')
    assert "sixth" in surfaces_of(tmp_path)
    assert len(lacking(tmp_path, "sixth")) >= 8
