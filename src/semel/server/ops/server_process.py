"""Finds the servers that run on this machine, by their processes (Linux), to spare an operator the name of a folder.

A process of another user cannot be looked into, and is left out. Nothing is changed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from semel.server.ops.self_check import lock_holder

USUAL_FOLDERS = (Path("data"), Path("/var/lib/semel"))
_MAX_BYTES = 1024 * 1024


def found_folder(processes: Path = Path("/proc")) -> tuple[Path, str]:
    """The data folder of a running server and how it was found; the default folder if no server runs."""
    for folder in USUAL_FOLDERS:
        if lock_holder(folder) is not None:
            return folder, "a server holds its lock"
    for number, folder in _served_folders(processes):
        if lock_holder(folder) is not None:
            return folder, f"found by process {number}"
    return USUAL_FOLDERS[0], ""


def _served_folders(processes: Path) -> Iterator[tuple[int, Path]]:
    """The data folders of processes that are `semel serve`."""
    with suppress(OSError):
        for place in sorted(processes.iterdir()):
            if place.name.isdecimal():
                with suppress(OSError, ValueError):
                    folder = _folder_of(place)
                    if folder is not None:
                        yield int(place.name), folder


def _folder_of(place: Path) -> Path | None:
    words = [os.fsdecode(word) for word in _parts(place / "cmdline")]
    if "serve" not in words or not any(Path(word).name == "semel" for word in words[: words.index("serve")]):
        return None
    variables = dict(os.fsdecode(part).partition("=")[::2] for part in _parts(place / "environ"))
    home = (place / "cwd").readlink()
    config = _flag(words, "--config") or variables.get("SEMEL_CONFIG")
    settings = tomllib.loads((home / config).read_text("utf-8")) if config else {}
    return home / (_flag(words, "--data") or variables.get("SEMEL_DATA") or str(settings.get("data", "data")))


def _parts(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).split(b"\0")


def _flag(words: Sequence[str], name: str) -> str:
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""
