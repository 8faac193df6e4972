"""The plugin of pytest: its fixtures, and that it costs next to nothing where it is not used; what an import costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from semel.testing import plugin

ROOT = Path(__file__).parent.parent.parent
MOST_MODULES = 125
"""Of the standard library and of `semel`, by `from semel import once`: there were 101, in 54 ms of CPU. With asyncio,
which a program that blocks does not need, there were 152, in 106 ms."""
MOST_MODULES_OF_PLUGIN = 12

TEST = """
from datetime import timedelta
import pytest
from semel import once
from semel.testing import FrozenClock, assert_idempotent

def test_a_lease_and_a_receipt_end_by_the_clock(once_store, frozen_clock):
    runs = []

    @once_store.once(key=lambda: "k", keep="7d", lease="60s")
    def charge():
        runs.append(1)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return len(runs)

    with pytest.raises(KeyboardInterrupt):
        charge()
    with pytest.raises(once.OutcomeUnknown):
        charge()
    frozen_clock.move("7d")
    frozen_clock.move(timedelta(seconds=61))
    assert charge() == charge() == 2
    frozen_clock.move("8d")
    assert charge() == 3

def test_a_store_is_empty_at_first(once_store, frozen_clock):
    before = frozen_clock.now
    frozen_clock.move(1.5)
    assert (frozen_clock.now - before).total_seconds() == 1.5
    frozen_clock.set(before)
    assert frozen_clock() == before.timestamp()
    runs = []

    @once_store.once(key=lambda key: key)
    def charge(key):
        runs.append(key)
        return len(runs)

    assert_idempotent(charge, effects=lambda: len(runs), schedules=["duplicate", "lost", "concurrent"])
"""


def python(code: str, *options: str) -> Any:
    """What a new interpreter prints as JSON."""
    run = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(run.stdout)


def test_the_fixtures_work_in_a_run_of_pytest_where_warnings_are_errors(tmp_path: Path) -> None:
    (tmp_path / "test_charge.py").write_text(TEST)
    words = ["-m", "pytest", "-p", "semel.testing.plugin", "-W", "error", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in run.stdout, run.stdout + run.stderr


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"semel": plugin.__name__}
    (found,) = [one for one in entry_points(group="pytest11") if one.name == "semel"]
    assert found.load() is plugin


def test_the_plugin_imports_next_to_nothing_where_it_is_not_used() -> None:
    code = (
        "import json, sys, pytest; before = set(sys.modules); import semel.testing.plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    found = python(code)
    assert not {"asyncio", "pickle", "sqlite3", "semel.once"} & set(found)
    assert len(found) <= MOST_MODULES_OF_PLUGIN, found


def test_once_imports_the_standard_library_alone_and_little_of_it() -> None:
    code = (
        "import sys, time; before = set(sys.modules); began = time.process_time(); from semel import once; "
        "spent = time.process_time() - began; import json; "
        "print(json.dumps([sorted(set(sys.modules) - before), round(1000 * spent)]))"
    )
    found, spent_ms = python(code, "-I")
    strangers = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"semel"}
    assert not strangers
    assert not [name for name in found if name.startswith(("semel.server", "semel.client", "semel.engine"))]
    assert not {"semel.testing", "asyncio", "logging", "http.client"} & set(found)
    assert len(found) <= MOST_MODULES, (len(found), spent_ms, found)
