"""The tool of Prometheus that checks metrics, rules and their tests.

It is that of the machine, or else comes from Debian's package `prometheus`, which is downloaded with apt and unpacked
into the virtual environment, without being installed. No wheel has it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

PACKAGE = "prometheus"
SECONDS = 300


@cache
def promtool() -> str:
    """The path of the program."""
    found = shutil.which("promtool")
    if found is not None:
        return found
    kept = Path(sys.prefix) / "tools" / "promtool"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            _unpacked(Path(folder)).replace(kept)  # at once: another worker may do the same
    return str(kept)


def _unpacked(folder: Path) -> Path:
    """Download the package and take the program out of it."""
    if _run(folder, "apt-get", "download", PACKAGE) != 0:
        _run(folder, "apt-get", "update")  # a fresh machine has no list of packages
        assert _run(folder, "apt-get", "download", PACKAGE) == 0, "install promtool: apt cannot download it"
    (package,) = folder.glob("*.deb")
    assert _run(folder, "dpkg-deb", "--extract", str(package), "content") == 0
    return folder / "content/usr/bin/promtool"


def _run(folder: Path, *command: str) -> int:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=SECONDS).returncode


def run(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run it with these arguments, and with this text as its input."""
    command = [promtool(), *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=SECONDS)
