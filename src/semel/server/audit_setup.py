"""Opens the audit log of a server: it continues the chains whose heads the store has."""

from __future__ import annotations

from pathlib import Path

from semel.engine.engine import Engine
from semel.kernel.clock import World
from semel.server.ops.audit_head import SOLE_NODE, head_rows, made_node
from semel.server.ops.audit_keeper import HeadKeeper
from semel.server.ops.audit_log import AuditLog
from semel.server.settings import ServerSettings
from semel.store.protocol import Store
from semel.surfaces.epoch import epoch_of


def open_audit(settings: ServerSettings, store: Store, engine: Engine, world: World) -> tuple[AuditLog, HeadKeeper]:
    """The audit log, and what keeps its heads in the store."""
    folder = Path(settings.data) / "logs"
    node = made_node(folder, world) if store.is_shared else SOLE_NODE
    with store.read() as snapshot:
        epoch = epoch_of(snapshot)
        rows = head_rows(snapshot, node)
    heads = {row.file.decode(): row.head for row in rows if row.epoch == epoch}
    reason = "memory" if settings.store_url.startswith("memory:") else "restored" if rows else "no_head"
    audit = AuditLog(folder, world, heads, reason, settings.audit_file_bytes)
    return audit, HeadKeeper(engine, audit, node, epoch, heads)
