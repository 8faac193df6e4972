"""The heads of the audit log's chains, kept in the store: the number and the hash of a synced line of each file.

While lines are written, each node stores its heads every two seconds, in one small durable write through the engine,
after its files were synced. So a crash or a power cut leaves the files at the head, or ahead of it by the lines of the
last two seconds; the files are never behind the head, unless lines were removed. While the store cannot be reached the
files run ahead for longer.

Nodes that share a store have their own files, so the key is the node: a random name in `audit.node` beside the files. A
store of one process needs no name. A head belongs to the epoch of the store in which it was written: a restored store
begins a new epoch, so its heads, which are those of the time of the backup, no longer count.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.kernel.clock import Now, World
from semel.server.ops.audit_chain import ChainHead, ChainLink
from semel.store.protocol import Lock, Range, Snapshot
from semel.store.table import Table

if TYPE_CHECKING:
    from semel.engine.reading import Reading

NODE_FILE = "audit.node"
SOLE_NODE = b""
"""The node of a store that one process alone uses."""
MAX_HEADS = 512
"""Limit on the heads of a store: a new one then replaces the one that was stored longest ago."""
_MAX_NODE_BYTES = 64
_START = Struct(">Q")


class AuditHeadRow(NamedTuple):
    """The head of one file of one node."""

    node: bytes
    file: bytes
    lines: int
    digest: bytes
    starts: bytes
    """The number of the first line of each kept file, 8 bytes each, the oldest first."""
    epoch: int
    """The epoch of the store when this was written."""
    stored_at: int
    checksum: int = 0

    @property
    def head(self) -> ChainHead:
        """The head as a value."""
        starts = tuple(start for (start,) in _START.iter_unpack(self.starts))
        return ChainHead(ChainLink(self.lines, self.digest), starts)


AUDIT_HEAD = Table("audit_head", AuditHeadRow, key=2)
TABLES = (AUDIT_HEAD,)


class KeepHeads(NamedTuple):
    """Command: store the heads of a node."""

    node: bytes
    epoch: int
    heads: Mapping[str, ChainHead]


class AuditHeads:
    """The contract of the heads."""

    name = "audit"

    def locks(self, command: KeepHeads) -> Sequence[Lock]:
        """One lock for all heads: writes are rare."""
        return (Lock(b"audit"),)

    def needs(self, command: KeepHeads) -> Generator[Stage, View, None]:
        """The rows of the files; all rows if one of them is new."""
        keys = [(command.node, name.encode()) for name in command.heads]
        view = yield Stage(keys=[(AUDIT_HEAD, key) for key in keys])
        if any(view.get(AUDIT_HEAD, key) is None for key in keys):
            yield Stage(ranges=[_ALL])

    def order(self, command: KeepHeads) -> Order | None:
        """No order but that of arrival."""
        return None

    def decide(self, view: View, command: KeepHeads, now: Now) -> DecisionResult:
        """Store the heads."""
        for name, head in command.heads.items():
            key = (command.node, name.encode())
            if view.get(AUDIT_HEAD, key) is None:
                _make_room(view)
            starts = b"".join(map(_START.pack, head.starts))
            view.put(AUDIT_HEAD, AuditHeadRow(*key, *head.link, starts, command.epoch, now.ms))
        return DecisionResult(None)

    def chores(self, reading: Reading) -> Sequence[KeepHeads]:
        """No chores."""
        return ()


_ALL = Range(AUDIT_HEAD, "", (), MAX_HEADS + 1)


def _make_room(view: View) -> None:
    rows: list[AuditHeadRow] = [AuditHeadRow(*row) for row in view.range(_ALL)]
    if len(rows) >= MAX_HEADS:
        oldest = min(rows, key=lambda row: row.stored_at)
        view.delete(AUDIT_HEAD, AUDIT_HEAD.key_of(oldest))


def head_rows(snapshot: Snapshot, node: bytes) -> list[AuditHeadRow]:
    """The rows of a node, of any epoch."""
    return [AuditHeadRow(*row) for row in snapshot.range(Range(AUDIT_HEAD, "", (node,), MAX_HEADS))]


def node_of(folder: Path) -> bytes | None:
    """The name of the node whose files are in this folder; None if it has none yet."""
    with suppress(OSError):
        return (folder / NODE_FILE).read_bytes()[:_MAX_NODE_BYTES].strip() or None
    return None


def made_node(folder: Path, world: World) -> bytes:
    """The name of the node, made at the first start. On a disk that cannot be written to it is that of this process."""
    name = world.random_bytes(8).hex().encode()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / NODE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, name + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
    return node_of(folder) or name
