"""Debian's packages, unpacked into a folder: nothing on the machine is installed, started or changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.harness.account import as_account, own_folder
from tests.harness.debian import unpack

PACKAGES = Path(__file__).parents[2] / ".ha-packages"
CLUSTER = (
    *("patroni", "python3-etcd", "etcd-server", "etcd-client"),
    *("postgresql-15", "postgresql-client-15", "pgbouncer"),
)
PYTHON = "/usr/bin/python3"
"""Debian's own: the modules of its packages are built for it."""


@cache
def root() -> Path:
    """Where the packages are, unpacked once; copied when the account may not reach them there."""
    if not PACKAGES.exists():
        folder = PACKAGES.with_name(".ha-packages-partial")
        shutil.rmtree(folder, ignore_errors=True)
        unpack(CLUSTER, folder)
        folder.rename(PACKAGES)
    try:
        subprocess.run([PACKAGES / "usr/bin/etcd", "--version"], check=True, capture_output=True, **as_account())
    except (PermissionError, subprocess.CalledProcessError):
        reachable = own_folder("semel-ha-packages-") / "root"
        shutil.copytree(PACKAGES, reachable, symlinks=True, ignore=shutil.ignore_patterns("archives"))
        return reachable
    return PACKAGES


def postgres_programs() -> Path:
    """The folder of initdb, postgres and pg_rewind."""
    return root() / "usr/lib/postgresql/15/bin"


def etcd() -> Sequence[str]:
    """The command of an etcd member; its settings are in its environment."""
    return [str(root() / "usr/bin/etcd")]


def patroni(*arguments: str, program: str = "patroni") -> Sequence[str]:
    """The command of Patroni, or of patronictl."""
    return [PYTHON, str(root() / "usr/bin" / program), *arguments]


def pgbouncer(config: Path) -> Sequence[str]:
    """The command of PgBouncer in the foreground."""
    return [str(root() / "usr/sbin/pgbouncer"), str(config)]


def environment() -> Mapping[str, str]:
    """How the unpacked programs find their modules and libraries."""
    libraries = [str(folder) for folder in (root() / "usr/lib").glob("*-linux-gnu")]
    return {
        "PYTHONPATH": str(root() / "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "LANG": "C.UTF-8",
    }
