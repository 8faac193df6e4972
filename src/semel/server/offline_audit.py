"""Verifies the audit log of a data folder against the heads in its store, offline or beside a running server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from semel.server.offline_store import snapshot_of
from semel.server.ops.audit_chain import ChainHead
from semel.server.ops.audit_head import NODE_FILE, SOLE_NODE, AuditHeadRow, head_rows, node_of
from semel.server.ops.audit_log import NAMES
from semel.server.ops.audit_verify import ChainReport, verify_chain
from semel.server.settings import ServerSettings
from semel.store.protocol import StoreError
from semel.surfaces.epoch import epoch_of


class AuditReport(NamedTuple):
    """The result for all chains of a log."""

    chains: Sequence[ChainReport]
    notes: Sequence[str]

    @property
    def is_clean(self) -> bool:
        """Whether every line is there as it was written."""
        return all(chain.finding is None for chain in self.chains)


def verify_audit(settings: ServerSettings, archived: Sequence[Path]) -> AuditReport:
    """Verify both files of a server with these settings. Raises `StoreError` and `OSError`."""
    folder = Path(settings.data) / "logs"
    heads: dict[str, ChainHead] = {}
    notes: list[str] = []
    url = settings.store_url
    node = SOLE_NODE if url.startswith("sqlite:") else node_of(folder)
    if url.startswith("memory:"):
        notes.append("A memory store keeps no heads: lines that are cut off at the end cannot be found.")
    elif node is None:
        if any((folder / name).exists() for name in NAMES):
            raise StoreError(f"{folder / NODE_FILE} is missing: without it the heads in the store cannot be found.")
    else:
        rows, epoch = _rows(url, node)
        heads = {row.file.decode(): row.head for row in rows if row.epoch == epoch}
        if not heads and rows:
            notes.append(
                "The store was restored from a backup, and no server has run on it since: lines that are cut off at "
                "the end cannot be found."
            )
    older = {name: [path for path in archived if path.name.startswith(name)] for name in NAMES}
    return AuditReport([verify_chain(folder / name, heads.get(name), older[name]) for name in NAMES], notes)


def _rows(url: str, node: bytes) -> tuple[list[AuditHeadRow], int]:
    with snapshot_of(url) as snapshot:
        return head_rows(snapshot, node), epoch_of(snapshot)
