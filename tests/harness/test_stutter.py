"""The stutter: processes stand still and go on, and how the command ended is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT = "import subprocess, sys, time; [time.sleep(0.05) for _ in range(30)]; sys.exit({code})"
PARENT = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {COUNT!r}]))"


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_ends_as_it_would(code: int) -> None:
    program = PARENT.replace("{code}", str(code))
    stutter = [sys.executable, "-m", "tests.harness.stutter", "--longest", "0.3", "--every", "0.1", "--seed", "7"]
    done = subprocess.run([*stutter, "--", sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    count, words = done.stderr.split(maxsplit=1)
    assert words.startswith("standstills, seed 7")
    assert int(count) > 0
