"""The fragments of Python in the pages run, with what they stand in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fragments import FRAGMENTS, Fragment
from tests.docs.reader import blocks
from tests.harness.server import RunningServer
from tests.once.conftest import fresh_schema

ROOT = Path(__file__).parent.parent.parent
SECONDS = 60


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for those that call one."""
    with RunningServer(tmp_path_factory.mktemp("fragments") / "data") as server:
        yield server.url


@pytest.mark.parametrize("one", FRAGMENTS, ids=lambda one: f"{Path(one.page).stem}: {one.line[:40]}")
def test_a_fragment_runs(one: Fragment, url: str, tmp_path: Path) -> None:
    found = [block.text for block in blocks((ROOT / one.page).read_text("utf-8")) if one.line in block.text]
    assert len(found) == 1, one.line
    database = fresh_schema() if "postgresql://" in found[0] else ""
    code = re.sub(r"postgresql://[\w@.]+/shop", database, found[0].replace("http://127.0.0.1:8788", url))
    program = f"EXAMPLES = {str(ROOT / 'examples')!r}\nDATABASE = {database!r}\n{one.program(code)}"
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=own | {"SEMEL_URL": url},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
