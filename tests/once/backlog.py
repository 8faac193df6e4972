"""An outbox with many messages: those that were delivered, and a backlog of one kind behind them."""

from __future__ import annotations

from typing import Any

from semel.once.table import OnceDialect

NAMES = "number, key, fingerprint, method, url, headers, body, created_at, status, "
NAMES += "state, order_by, next_at, wait_ms, done_at"
POSTGRESQL_NOW = "CAST(extract(epoch FROM now()) * 1000 AS bigint)"
KINDS = {
    "due": ("'queued'", "NULL", "{now}", "0"),
    "not due": ("'queued'", "NULL", "{now} + 200000", "300000"),
    "blocked": ("CASE n WHEN 1 THEN 'poison' ELSE 'queued' END", "'shop'", "{now}", "0"),
    "behind": ("CASE n WHEN 1 THEN 'unknown' ELSE 'behind' END", "'shop'", "{now} + 3000000", "3600000"),
    "many orders": ("CASE n % 2 WHEN 0 THEN 'queued' ELSE 'poison' END", "'o-' || ((n + 1) / 2)", "{now}", "0"),
}
"""State, order, time of the next attempt, and wait."""


def backlog_of(
    kind: str, size: int, dialect: OnceDialect, now_ms: int = 0, table: str = "semel_outbox", url: str = "http://x/"
) -> list[str]:
    """Two statements: as many delivered messages, and behind them the backlog. PostgreSQL has its own time."""
    is_postgres = dialect is OnceDialect.POSTGRESQL
    now, binary = (POSTGRESQL_NOW, "bytea") if is_postgres else (str(now_ms), "blob")
    state, order_by, next_at, wait_ms = KINDS[kind]
    numbers = f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {size})"
    facts = f"CAST('' AS {binary}), 'POST', '{url}', '{{}}', CAST('' AS {binary}), {now}, 503"
    old = f"SELECT n, 'done-' || n, {facts}, 'done', CASE n % 2 WHEN 0 THEN 'shop' END, 1, 0, 9000000000000 FROM c"
    times = f"{next_at.format(now=now)}, {wait_ms}, NULL"
    new = f"SELECT {size} + n, 'new-' || n, {facts}, {state}, {order_by}, {times} FROM c"
    given = "OVERRIDING SYSTEM VALUE " if is_postgres else ""
    return [f"INSERT INTO {table} ({NAMES}) {given}{numbers} {what}" for what in (old, new)]


def visits_of(plan: dict[str, Any]) -> int:
    """The rows that the scans of a plan have met."""
    found = sum(visits_of(one) for one in plan.get("Plans", []))
    if "Scan" in plan["Node Type"] and ("Relation Name" in plan or "Index Name" in plan):
        dropped = sum(plan.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Index Recheck"))
        found += round((plan["Actual Rows"] + dropped) * plan["Actual Loops"])
    return found
