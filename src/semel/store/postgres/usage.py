"""What a database takes and how far its replicas are behind, as far as its role may see that.

The size of the write-ahead log and the progress of replicas are visible to a superuser and to members of `pg_monitor`.
Any other role gets None for them, and no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from semel.store.postgres.pipeline import Filled, Rows
from semel.store.postgres.statements import PgStatements
from semel.store.protocol import AnyTable
from semel.store.usage import StoreUsage

Ask = Callable[..., Sequence[Rows]]
"""Sends statements, and returns the rows of each."""

_SIZE: Filled = ("SELECT pg_database_size(current_database())", ())
_MAY_SEE_LOG: Filled = ("SELECT has_function_privilege('pg_ls_waldir()', 'EXECUTE')", ())
_LOG: Filled = ("SELECT coalesce(sum(size), 0)::int8 FROM pg_ls_waldir()", ())
_BEHIND = "pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)"
_SINCE = "greatest(replay_lag, clock_timestamp() - reply_time)"
"""A replica that hangs reports no further lag, so its silence counts too."""
_SECONDS = f"CASE WHEN {_BEHIND} > 0 THEN extract(epoch FROM {_SINCE}) ELSE 0 END"
_LAG = f"coalesce(max({_SECONDS}), 0)::float8, coalesce(max({_BEHIND}), 0)::int8"
_REPLICAS: Filled = (f"SELECT count(*)::int8, count(replay_lsn)::int8, {_LAG} FROM pg_stat_replication", ())
"""A replica that has applied everything has no lag; one that the role may not see, no position."""
_ROWS: Filled = (
    "SELECT convert_to(relname, 'UTF8'), n_live_tup FROM pg_stat_user_tables WHERE schemaname = current_schema()",
    (),
)


def usage_of(ask: Ask, statements: Mapping[AnyTable, Iterable[PgStatements]]) -> StoreUsage:
    """The usage of a database. Rows are the estimate of the server's statistics."""
    size, may_see_log, replicas, rows = ask(_SIZE, _MAY_SEE_LOG, _REPLICAS, _ROWS)
    log = ask(_LOG)[0][0][0] if may_see_log[0][0] else None
    connected, visible, seconds, behind = replicas[0]
    estimates = {bytes(name).decode(): count for name, count in rows}
    found: Counter[str] = Counter()
    for table, generations in statements.items():
        if table.log:
            found[table.name] += sum(estimates.get(made.name, 0) for made in generations)
    lag: tuple[float | None, int | None] = (seconds, behind) if visible else (None, None)
    return StoreUsage(size[0][0], log, None, dict(found), None, connected, *lag)
