"""Who may see a job: its owner, the holder of its lease, and an administrator of all queues."""

from __future__ import annotations

from semel.server.auth.principals import Principal, Role
from semel.surfaces.jobs.service import SURFACE, owner_of
from semel.surfaces.jobs.tables import LEASED, JobRow


def is_admin(principal: Principal) -> bool:
    """Whether the principal is an administrator of all queues."""
    return principal.has(Role.ADMIN) and (b"", True) in principal.reach(SURFACE)


def may_see(principal: Principal, job: JobRow) -> bool:
    """Whether the principal may see a job."""
    owner = owner_of(principal)
    is_owner = principal.has(Role.READ) and job.principal == owner
    is_holder = principal.has(Role.WORK) and job.holder == owner and job.phase == LEASED
    return is_owner or is_holder or is_admin(principal)
