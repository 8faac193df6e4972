"""The guide of `semel.testing` runs as it is printed."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

from semel.testing import assert_idempotent, idempotency

PAGE = (Path(__file__).parent.parent.parent / "docs" / "once" / "testing.md").read_text()


def test_the_examples_pass_and_the_report_is_the_one_that_is_shown(tmp_path: Path) -> None:
    example, _, *clock = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "test_charge.py").write_text(example.replace("with pytest.raises(NotIdempotentError):", "if True:"))
    (tmp_path / "test_clock.py").write_text("\n\n".join(clock))
    plugins = ["-p", "no:cacheprovider", "-p", "semel.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--tb=short", str(tmp_path)]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "1 failed, 4 passed" in run.stdout, run.stdout + run.stderr
    for line in shown.splitlines():
        assert line.strip().removesuffix("...") in run.stdout, run.stdout


def test_every_option_is_in_the_table_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.partition("## Options")[2], re.MULTILINE))
    options = set(inspect.signature(assert_idempotent).parameters) - {"call"}
    assert set(rows) == options
    assert rows["racers"] == str(idempotency.RACERS)
    assert rows["timeout"] == f"{idempotency.TIMEOUT_SECONDS:g} s"
    assert rows["patience"] == f"{idempotency.PATIENCE_SECONDS:g} s"
    assert rows["max_places"] == str(idempotency.MAX_PLACES)
