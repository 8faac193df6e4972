"""Programs that refuse to run as root: a run of root starts them as `nobody`, any other run as itself.

Their files are in a folder of their own directly under the temporary folder: the folders that pytest makes are closed
to others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.guardian import guard

ACCOUNT = "nobody"
FINISH_SECONDS = 120


def own_folder(prefix: str) -> Path:
    """A new folder that belongs to the account; the caller removes it."""
    guard()
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    own(folder)
    return folder


def own(path: Path) -> None:
    """Give a file or a folder to the account."""
    if os.getuid() == 0:
        shutil.chown(path, ACCOUNT)


def spawn(command: Sequence[str], output: Any, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program as the account, in a session of its own, with these variables besides."""
    return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, **as_account(env))


def finish(command: Sequence[str], given: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    """Run a program to its end; what it printed."""
    account = as_account(env) | {"stdin": None, "input": given}
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        command, capture_output=True, check=False, timeout=FINISH_SECONDS, **account
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-2_000:]}")
    return done.stdout


def as_account(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a process is started with to run as the account; no variable of PostgreSQL reaches it from outside."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | dict(env or {})
    given: dict[str, Any] = {"cwd": "/", "env": environment, "stdin": subprocess.DEVNULL}
    return given | {"user": ACCOUNT, "group": _group(), "extra_groups": []} if os.getuid() == 0 else given


def _group() -> int:
    import pwd  # noqa: PLC0415 - there is none on Windows, and no root either

    return pwd.getpwnam(ACCOUNT).pw_gid
