"""Deltas at a glance: gateways, deltas, rows and clients."""

from __future__ import annotations

from semel.engine.reading import Reading
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, amount
from semel.store.protocol import Range
from semel.surfaces.deltas.tables import DELTA_GATEWAY, DeltaGatewayRow


def outlook(reading: Reading) -> SurfaceOutlook:
    """Counts of all gateways."""
    gateways = [DeltaGatewayRow(*row) for row in reading.range(Range(DELTA_GATEWAY, "", (), MOST // 10))]
    deltas, rows = sum(one.deltas for one in gateways), sum(one.rows for one in gateways)
    replicas = sum(one.replicas for one in gateways)
    counts = f"{amount(len(gateways), 'gateway')}, {deltas:,} deltas, {rows:,} rows, {amount(replicas, 'client')}"
    return SurfaceOutlook(counts)
