"""The row of jobs in the registry of surfaces."""

from __future__ import annotations

from semel.server.surface import Surface
from semel.surfaces.jobs.check import CHECKS
from semel.surfaces.jobs.diagnosis import JobsDiagnosis
from semel.surfaces.jobs.find import find
from semel.surfaces.jobs.http import MESH, PREFIX, JobsHttp
from semel.surfaces.jobs.operations import OPERATIONS
from semel.surfaces.jobs.outlook import outlook
from semel.surfaces.jobs.service import SURFACE
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.tables import JOB_RECORD, TABLES
from semel.surfaces.jobs.traces import ROUTE_WORDS, verdict_of

ROW = Surface(
    name=SURFACE,
    about="Idempotent job submission, leases, cached results",
    paths=(PREFIX,),
    prefixes=(PREFIX + b"/", MESH),
    tables=TABLES,
    settings=JobsSettings,
    run=JobsHttp,
    operations=OPERATIONS,
    outlook=outlook,
    diagnose=JobsDiagnosis,
    store_checks=CHECKS,
    receipts=(JOB_RECORD,),
    route_words=ROUTE_WORDS,
    find=find,
    verdict_of=verdict_of,
)
