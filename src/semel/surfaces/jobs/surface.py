"""Jobs in the registry of surfaces."""

from __future__ import annotations

from semel.contracts.jobs.tables import TABLES
from semel.server.jobs.desk import SURFACE
from semel.server.jobs.host import MESH, PREFIX, JobsHost
from semel.server.surface import Surface
from semel.surfaces.jobs.settings import JobsSettings

JOBS = Surface(
    name=SURFACE,
    about="Idempotent job submission, leases, cached results",
    paths=(PREFIX,),
    prefixes=(PREFIX + b"/", MESH),
    tables=TABLES,
    settings=JobsSettings,
    run=JobsHost,
)
