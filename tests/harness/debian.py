"""Debian's packages, downloaded and unpacked into a folder: nothing is installed, started or changed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FETCH_SECONDS = 600


def unpack(packages: Sequence[str], folder: Path) -> None:
    """Fill a folder. Programs are downloaded even where they are installed; without that, apt would leave them out."""
    archives = folder.resolve() / "archives"
    (archives / "partial").mkdir(parents=True)
    options = (f"Dir::Cache::archives={archives}", "Debug::NoLocking=1", "APT::Sandbox::User=")
    apt = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
    wanted = ["--download-only", "--reinstall", "--no-install-recommends", "--yes", "install", *packages]
    subprocess.run([*apt, *wanted], check=True, stdout=subprocess.DEVNULL, timeout=FETCH_SECONDS)
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg", "-x", archive, folder], check=True, timeout=FETCH_SECONDS)
    shutil.rmtree(archives)
