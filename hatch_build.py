"""Makes the code of the gRPC messages from their descriptions, whenever the package is built or installed.

Beside each other in `src/semel/server/ledger/proto` then stand, and are known to no commit: `ledger_pb2.py` with its
types for checkers, and `standard.binpb`, the descriptions of health and reflection. Those two are read when the server
starts and not made into modules, because other packages bring modules of the same names, and a process can have only
one of each.

What is made works with the protobuf of the compiler's own version and newer ones, so the compiler is pinned in
`pyproject.toml`, and the extra `grpc` asks for that version or a newer one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "src/semel/server/ledger/proto"
MADE = ("ledger_pb2.py", "ledger_pb2.pyi", "standard.binpb")


class ProtoBuildHook(BuildHookInterface[Any]):
    """Runs before a wheel is put together; for an editable install, that is before the sources are linked."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files, and have them packed although git does not know them."""
        folder = Path(self.root, FOLDER)
        generate(Path(self.root, "src"), folder)
        build_data["artifacts"].extend(f"/{FOLDER}/{name}" for name in MADE)


def generate(sources: Path, folder: Path) -> None:
    """Run the compiler."""
    bundled = Path(protoc.__file__).parent / "_proto"
    paths = [f"-I{sources}", f"-I{bundled}"]
    compile_files(*paths, f"--python_out={sources}", f"--pyi_out={sources}", str(folder / "ledger.proto"))
    standard = [str(folder / name) for name in ("health.proto", "reflection.proto")]
    compile_files(*paths, f"--descriptor_set_out={folder / 'standard.binpb'}", *standard)


def compile_files(*arguments: str) -> None:
    """One call of the compiler; it has said on standard error what it does not like."""
    if protoc.main(["protoc", *arguments]) != 0:
        sys.exit("The descriptions of the gRPC messages could not be compiled.")
