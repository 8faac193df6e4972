"""The calls of the console: a request below `/console/api/` is the same request without that prefix.

They are served where the console is served, so that a page on the control listener also reads what the data listener
serves. Their rules are stricter than those of the calls themselves:

- Only a page of the console's own origin may call: no CORS header is sent, and a request that a browser marks as coming
  from another origin is refused. A request without these marks comes from no browser page.
- A request that changes something needs the admin role, whatever role the call itself asks for.

The credential, scopes, quotas and audit lines are those of the call itself. Pure but for the credential's look-up.
"""

from __future__ import annotations

from semel.kernel.errors import Refusal
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.principals import Principals, Role, UnauthorizedError, presented
from semel.server.http.cors import Provenance
from semel.server.http.request import Request

CALLS = b"/console/api"
READS = ("GET", "HEAD")
READ_POSTS = frozenset({b"/v1/jobs/lookup", b"/v1/writes/find"})
"""Calls that read and are sent with POST."""

_FOREIGN = Refusal("FORBIDDEN_ORIGIN", "Only the console's own pages may call here; other pages call without /console.")
_READ_ONLY = Refusal("FORBIDDEN", "The console changes something only for a credential with the admin role.")


def call_path(raw_path: bytes) -> bytes | None:
    """The path that a request of the console is for; None for any other request."""
    inner = raw_path[len(CALLS) :]
    return inner if raw_path.startswith(CALLS) and inner.startswith(b"/") else None


def page_refusal(fields: HeaderFields, provenance: Provenance) -> Refusal | None:
    """The reason to refuse a request by the page that sent it; None for a page of the console, and for no page."""
    site = fields.get(b"sec-fetch-site")
    if site is not None:
        return None if site == b"same-origin" else _FOREIGN
    hosts = [host.lower() for host in provenance.hosts]
    names = [origin.lower().partition(b"://")[2] for origin in provenance.origins]
    return None if all(name in hosts for name in names) else _FOREIGN


def change_refusal(request: Request, principals: Principals, now_ms: int) -> Refusal | None:
    """The reason to refuse a change; None for a read, for an administrator, and for a credential that the call itself
    refuses.
    """
    if request.method in READS or request.raw_path in READ_POSTS or not principals.are_known:
        return None
    try:
        principal = principals.judge(presented(request.fields), now_ms).principal
    except UnauthorizedError:
        return None
    return None if principal.has(Role.ADMIN) else _READ_ONLY
