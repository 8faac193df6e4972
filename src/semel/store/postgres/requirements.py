"""Requirements on a PostgreSQL server, checked at every connection, because a failover changes servers."""

from __future__ import annotations

from typing import NamedTuple

from semel.store.protocol import StoreError

OLDEST = 15

ASK = """
SELECT current_setting('server_version_num')::int4, pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on',
    current_setting('fsync'), current_setting('synchronous_commit'), current_setting('server_encoding'),
    pg_postmaster_start_time()::text, current_setting('synchronous_standby_names')
"""


class UnfitServerError(StoreError):
    """The configuration of this server breaks a guarantee of the store; the message says what to change."""


class Facts(NamedTuple):
    """The properties of a server that requirements check."""

    version: int
    is_standby: bool
    is_read_only: bool
    fsync: str
    synchronous_commit: str
    encoding: str
    started: str = ""
    """Its start time, to the microsecond: tells one server from another behind the same address."""
    standbys: str = ""
    """Those that a commit may wait for; empty when there is none."""


def check(facts: Facts) -> None:
    """Refuse a server that would lose or refuse writes."""
    reason = refusal(facts)
    if reason is not None:
        raise UnfitServerError(reason)


def refusal(facts: Facts) -> str | None:
    """Why a server cannot be used; None when it can."""
    if facts.version < OLDEST * 10_000:
        return f"PostgreSQL {facts.version // 10_000} is too old: version {OLDEST} or newer is needed."
    if facts.is_standby:
        return (
            "This PostgreSQL is a standby, which takes no writes: name the primary, "
            "or all servers with ?target_session_attrs=read-write."
        )
    if facts.is_read_only:
        return "This PostgreSQL takes no writes: default_transaction_read_only is on for this user or database."
    if facts.fsync != "on":
        return "PostgreSQL runs with fsync = off and would lose what it has confirmed: set it to on."
    if facts.synchronous_commit == "off":
        return "PostgreSQL runs with synchronous_commit = off and confirms what is not on disk: set it to on."
    if facts.synchronous_commit == "local" and facts.standbys.strip():
        return (
            "PostgreSQL runs with synchronous_commit = local and named standbys, "
            "and confirms what a failover loses: set it to on."
        )
    if facts.encoding != "UTF8":
        return f"The database has the encoding {facts.encoding}: make one with ENCODING 'UTF8'."
    return None
