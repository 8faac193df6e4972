"""SQL statements that look up a key below each scope of a range.

An ordinary table is joined with the scopes in one statement. The rows of a log table are found through its memory
index instead, by their whole keys.
"""

from __future__ import annotations

from typing import Any

from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.sql_dialect import quoted, read_columns
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.statements import Filled, SqliteStatements


def probed_rows(made: SqliteStatements, scopes: Range, other: SqliteStatements, probe: ScopeProbe) -> Filled:
    """The statement for the rows that one probe finds below the scopes of a page."""
    sql, values = made.positions(scopes, *(() if probe.floor is None else probe.floor[:1]))
    table, given = probe.table, list[Any](values)
    scope_columns = zip(table.key_columns, scopes.table.key_columns, strict=False)
    terms = [f't."{column}" = k."{scope}"' for column, scope in scope_columns]
    fixed = list(zip(table.key_columns[scopes.table.key :], probe.rest, strict=True))
    given += [other.unsigned.value_out(column, value) for column, value in (*fixed, *probe.chosen)]
    terms += [f't."{column}" = +?' for column, _ in fixed]
    if probe.chosen:
        wanted = " OR ".join(f't."{column}" = +?' for column, _ in probe.chosen)
        terms.append(f"({wanted})")
    if probe.floor is not None:
        given.append(made.unsigned.value_out(*probe.floor))
        terms.append(f'k."{probe.floor[0]}" >= +?')
    # CROSS JOIN fixes the order: one look-up in the table's index for each scope.
    columns = read_columns(table, "0", "t.")
    joined = f"SELECT {columns} FROM ({sql}) k CROSS JOIN {other.name} t WHERE {' AND '.join(terms)}"
    return joined, tuple(given)


def keys_ending(made: LogStatements, last: Any) -> Filled:
    """The statement for all keys whose last column has this value: it reads the whole table."""
    keys = made.table.key_columns
    value = made.unsigned.value_out(keys[-1], last)
    return f'SELECT {quoted(keys)} FROM {made.name} WHERE "{keys[-1]}" = ?', (value,)
