"""Makes the code of the protobuf messages from their descriptions, whenever the package is built or installed.

In the folders named below then stand, and are known to no commit: `ledger_pb2.py` and `sync_pb2.py` with their types
for checkers, and `health.binpb`, the description of gRPC's health service. That one is read when the server starts
and not made into a module, because other packages bring a module of the same name, and a process can have only one.

What is made works with the protobuf of the compiler's own version and newer ones, so the compiler is pinned in
`pyproject.toml`, which also asks for that version of protobuf or a newer one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LEDGER = "src/semel/surfaces/ledger/proto"
DELTAS = "src/semel/surfaces/deltas/proto"
GRPC = "src/semel/server/grpc/proto"
MADE = (
    f"{LEDGER}/ledger_pb2.py",
    f"{LEDGER}/ledger_pb2.pyi",
    f"{GRPC}/health.binpb",
    f"{DELTAS}/sync_pb2.py",
    f"{DELTAS}/sync_pb2.pyi",
)


class ProtoBuildHook(BuildHookInterface[Any]):
    """Runs before a wheel is put together; for an editable install, that is before the sources are linked."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files, and have them packed although git does not know them."""
        generate(Path(self.root))
        build_data["artifacts"].extend(f"/{name}" for name in MADE)


def generate(root: Path) -> None:
    """Run the compiler."""
    sources, ledger, deltas, grpc = (root / path for path in ("src", LEDGER, DELTAS, GRPC))
    bundled = Path(protoc.__file__).parent / "_proto"
    paths = [f"-I{sources}", f"-I{bundled}"]
    messages = [str(ledger / "ledger.proto"), str(deltas / "sync.proto")]
    compile_files(*paths, f"--python_out={sources}", f"--pyi_out={sources}", *messages)
    compile_files(*paths, f"--descriptor_set_out={grpc / 'health.binpb'}", str(grpc / "health.proto"))


def compile_files(*arguments: str) -> None:
    """One call of the compiler; it has said on standard error what it does not like."""
    if protoc.main(["protoc", *arguments]) != 0:
        sys.exit("The descriptions of the protobuf messages could not be compiled.")
