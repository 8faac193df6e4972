"""SQL statements that look up a key below each scope of a range: one for the page of scopes, and one for each probe.

All of them are sent in one round trip. The scopes are read in the order of their index and joined with the other table
one by one, through its key: a LATERAL query with a limit forces the planner to do so. Only matches are sent back.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.store.postgres.pipeline import Filled
from semel.store.postgres.statements import PgStatements
from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.sql_dialect import quoted, read_columns

_ROW_BYTES = 100
"""At least about the bytes of a stored row with its header."""


def scope_page(made: PgStatements, scopes: Range) -> Filled:
    """The statement for the number of the scopes of a page, and the position of the last one."""
    sql, values = made.positions(scopes)
    way = "" if scopes.reverse else " DESC"
    order = scopes.table.ordering(scopes.by)
    last = ", ".join(f'"{column}"{way}' for column in order)
    counted = f"SELECT (SELECT count(*) FROM page), {quoted(order)} FROM page ORDER BY {last} LIMIT 1"
    return f"WITH page AS MATERIALIZED ({sql}) {counted}", values


def probed_rows(made: PgStatements, scopes: Range, other: PgStatements, probe: ScopeProbe) -> Filled:
    """The statement for the rows that one probe finds below the scopes of a page."""
    floor = () if probe.floor is None else probe.floor[:1]
    sql, values = made.positions(scopes, *floor)
    table, given = probe.table, list(values)
    named = quoted([*scopes.table.ordering(scopes.by), *(f"floor {column}" for column in floor)])
    scope_columns = zip(table.key_columns, scopes.table.key_columns, strict=False)
    terms = [f't."{column}" = k."{scope}"' for column, scope in scope_columns]
    fixed = list(zip(table.key_columns[scopes.table.key :], probe.rest, strict=True))
    wanted = []
    for column, value in [*fixed, *probe.chosen]:
        given.append(other.scalar(column, value))
        wanted.append(f't."{column}" = ${len(given)}')
    terms += wanted[: len(fixed)]
    if probe.chosen:
        terms.append(f"({' OR '.join(wanted[len(fixed) :])})")
    high = []
    if probe.floor is not None:
        given.append(made.scalar(*probe.floor))
        high.append(f'k."floor {probe.floor[0]}" >= ${len(given)}')
    if table.generational:
        high.append(f'EXISTS (SELECT FROM "{other.name}")')  # asked once: the older one may be empty
    if scopes.table.key == 1 and not table.log and not high:
        return _found_by_array(scopes, other, terms[1:], sql), given
    columns = [column.name for column in table.columns]
    where = f" WHERE {' AND '.join(high)}" if high else ""
    return (
        f"SELECT {read_columns(table, '0::int8', 'f.')} FROM ({sql}) AS k({named}) CROSS JOIN LATERAL "
        f'(SELECT {quoted(columns, "t.")} FROM "{other.name}" t WHERE {" AND ".join(terms)} LIMIT 1) f{where}'
    ), given


def _found_by_array(scopes: Range, other: PgStatements, terms: Sequence[str], sql: str) -> str:
    """The same for scopes of one key column and a table of a few rows a scope, where it takes a third of the time: the
    index is read once, by an array of scopes. In a large index that means to read most of it.
    """
    listed = f'SELECT k."{scopes.table.key_columns[0]}" FROM ({sql}) AS k'
    found = f'SELECT {read_columns(other.table, "0::int8", "t.")} FROM "{other.name}" t'
    return f'{found} WHERE t."{other.table.key_columns[0]}" = ANY(ARRAY({listed})) AND {" AND ".join(terms)}'


def about_rows(made: PgStatements) -> Filled:
    """The statement for about the number of rows of a table, and rather more: by its size, since statistics are lost
    in a crash.
    """
    return f"SELECT pg_relation_size('\"{made.name}\"'::regclass) / {_ROW_BYTES}", ()


def keys_ending(made: PgStatements, last: bytes) -> Filled:
    """The statement for all keys whose last column has this value."""
    keys = made.table.key_columns
    return f'SELECT {quoted(keys)} FROM "{made.name}" WHERE "{keys[-1]}" = $1', [last]
