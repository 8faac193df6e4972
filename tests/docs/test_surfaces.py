"""Every surface is whole: it has a guide, a reference, a scope, metrics, settings and a crash run.

The surfaces are found in the code, by its folders, and not in a list of this test, so that a sixth one is not passed
over in silence.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from semel.server.settings_loader import setting_fields
from semel.server.surface import Surface
from semel.surfaces.registry import NAMES, SCOPE_RULES, SURFACES, surface_at
from semel.surfaces.schema import TABLES

ROOT = Path(__file__).parent.parent.parent
REFERENCE = {"streams": "http"}
"""Pages of the reference whose name is not that of their surface."""


def surfaces_of(root: Path) -> set[str]:
    """The folders that have rules of their own, or answer requests of their own, and those in the registry."""
    folders = {
        path.parent.name for name in ("contract", "http") for path in root.glob(f"src/semel/surfaces/*/{name}.py")
    }
    named = re.search(r"^NAMES = \((.*?)^\)", (root / "src/semel/surfaces/registry.py").read_text(), re.S | re.M)
    assert named is not None
    return folders | set(re.findall(r'"([a-z_]+)"', named[1]))


def lacking(root: Path, surface: str) -> list[str]:
    """What a surface does not have."""
    source, folder = root / "src/semel", root / "src/semel/surfaces" / surface
    crashes = [path.read_text() for path in root.glob("tests/**/test_crash.py")]
    # Streams have the oldest crash run, which is named after nothing.
    run = root / "tests" / "crash" if surface == "streams" else None
    has_run = (run is not None and run.is_dir()) or any(
        re.search(rf"\btests\.{surface}(?:_crash)?\.", text) for text in crashes
    )
    found = {
        "a line in the registry": f'"{surface}",' in (source / "surfaces/registry.py").read_text(),
        **{name: (folder / f"{name}.py").exists() for name in ("surface", "tables", "contract", "http")},
        "a guide": (root / f"docs/guide/{surface}.md").exists(),
        "a reference": (root / f"docs/reference/{REFERENCE.get(surface, surface)}.md").exists(),
        "a line in the index of the docs": f"guide/{surface}.md" in (root / "docs/index.md").read_text(),
        "a scope": bool(re.search(rf"`{surface}[`:]", (root / "docs/operating/access.md").read_text())),
        "metrics": f"semel_{surface}_" in text_of(folder / "metrics.py"),
        "settings": f"    {surface}_" in text_of(folder / "settings.py"),
        "limits": surface in (root / "docs/reference/settings.md").read_text().lower(),
        "a command": (source / "cli" / surface).is_dir() or (source / "cli" / f"{surface}.py").exists(),
        "a client": (source / "client" / surface).is_dir(),
        "a crash run": has_run,
    }
    return [what for what, is_there in found.items() if not is_there]


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_f3_the_registry_has_every_folder_of_a_surface() -> None:
    assert surfaces_of(ROOT) == set(NAMES)
    assert [surface.name for surface in SURFACES] == list(NAMES)


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_f3_a_row_of_the_registry_is_whole(surface: Surface) -> None:
    """What app, listeners, settings, schema and scopes read of it is there, and nothing of it is another's."""
    others = [other for other in SURFACES if other is not surface]
    assert surface.about
    assert surface.paths or surface.prefixes
    for path in (*surface.paths, *(prefix + b"x" for prefix in surface.prefixes)):
        assert surface_at(path) is surface
    assert set(surface.tables) <= set(TABLES)
    assert not set(surface.tables) & {table for other in others for table in other.tables}
    names = [one.name for one in fields(surface.settings)]
    assert all(name.startswith(f"{surface.name}_") for name in names)
    assert set(names) <= {one.name for one in setting_fields()}
    assert surface.name in SCOPE_RULES.surfaces
    assert {claim.claim for claim in surface.scope_claims} <= {claim.claim for _, claim in SCOPE_RULES.claims}


def test_f3_there_are_surfaces() -> None:
    assert surfaces_of(ROOT) >= {"streams", "events", "jobs", "ledger", "deltas"}


@pytest.mark.parametrize("surface", sorted(surfaces_of(ROOT)))
def test_f3_a_surface_lacks_nothing(surface: str) -> None:
    assert not lacking(ROOT, surface)


def test_f3_a_sixth_surface_that_is_only_code_is_noticed(tmp_path: Path) -> None:
    for folder in ("src", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("contract.py", "http.py"):
        place = tmp_path / "src/semel/surfaces/sixth" / path
        place.parent.mkdir(exist_ok=True)
        place.write_text('"""A surface that has no documentation and no test."""\n')
    assert "sixth" in surfaces_of(tmp_path)
    assert len(lacking(tmp_path, "sixth")) >= 8
