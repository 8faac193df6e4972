"""Deltas at a glance: gateways, deltas, rows and clients."""

from __future__ import annotations

from semel.engine.reading import Reading
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, Trouble, amount, near
from semel.server.settings import ServerSettings, settings_of
from semel.store.protocol import Range
from semel.surfaces.deltas.settings import DeltasSettings
from semel.surfaces.deltas.tables import DELTA_GATEWAY, DeltaGatewayRow

SHOWN = 3


def outlook(reading: Reading, settings: ServerSettings) -> SurfaceOutlook:
    """Counts of all gateways."""
    gateways = [DeltaGatewayRow(*row) for row in reading.range(Range(DELTA_GATEWAY, "", (), MOST // 10))]
    deltas, rows = sum(one.deltas for one in gateways), sum(one.rows for one in gateways)
    replicas = sum(one.replicas for one in gateways)
    counts = f"{amount(len(gateways), 'gateway')}, {deltas:,} deltas, {rows:,} rows, {amount(replicas, 'client')}"
    limits = settings_of(settings, DeltasSettings)
    crowded = [
        Trouble(f"gateway {one.name.decode(errors='replace')}: {trouble.found}", trouble.advice)
        for one in sorted(gateways, key=lambda one: -one.replicas)[:SHOWN]
        for trouble in near(one.replicas, limits.deltas_max_clients, "clients", "SEMEL_DELTAS_MAX_CLIENTS")
    ]
    most = limits.deltas_max_gateways
    return SurfaceOutlook(counts, [*crowded, *near(len(gateways), most, "gateways", "SEMEL_DELTAS_MAX_GATEWAYS")])
