"""`semel` on a file system that fails as the file named by SEMEL_FAULT_FILE says."""

from __future__ import annotations

import os
from pathlib import Path

from semel.cli.main import main
from tests.harness.faulty_vfs import FaultyVfs

_FAULT = Path(os.environ.pop("SEMEL_FAULT_FILE"))


class SwitchedVfs(FaultyVfs):
    """Looks at the file before each operation."""

    @property
    def fail_sync(self) -> bool:
        """Whether a sync fails."""
        return _wanted() == "sync"

    @fail_sync.setter
    def fail_sync(self, value: bool) -> None:
        """Set by the file alone."""

    @property
    def fail_write(self) -> bool:
        """Whether the disk is full."""
        return _wanted() == "write"

    @fail_write.setter
    def fail_write(self, value: bool) -> None:
        """Set by the file alone."""


def _wanted() -> str:
    try:
        return _FAULT.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    with SwitchedVfs("faulty"):
        main()
