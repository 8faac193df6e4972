"""The store URL of PostgreSQL: a libpq URL with a few parameters of Semel in its query.

`postgresql://user@one,two/db?target_session_attrs=read-write&schema=semel&lanes=4`. The parameters of Semel are removed
before libpq gets the URL. A URL may contain a password, so no error repeats it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semel.kernel.namespace import SCHEMA
from semel.store.protocol import StoreError

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_LIMITS = {"lanes": (1, 64), "readers": (1, 64), "patience_ms": (500, 600_000), "trust_ms": (100, 600_000)}
_DEFAULTS: dict[str, Any] = {
    "application_name": "semel",
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class PgAddress(NamedTuple):
    """The address of the database, and the options of this node."""

    conninfo: str
    schema: str = SCHEMA
    lanes: int = 1
    """The number of concurrent transactions, each on its own connection. More lanes make smaller batches: see
    docs/operating.
    """
    readers: int = 4
    patience_ms: int = 20_000
    """Longest wait for an unreachable database, in milliseconds, before callers get an error."""
    trust_ms: int = 1_000
    """How long after a confirmed commit a server is believed to be the primary, in milliseconds."""

    @property
    def patience(self) -> float:
        """The same limit in seconds."""
        return self.patience_ms / 1_000

    @property
    def trust(self) -> float:
        """The time for which a confirmed commit is believed, in seconds."""
        return self.trust_ms / 1_000

    @property
    def place(self) -> tuple[str, ...]:
        """The location of the rows, independent of the user that connects."""
        given = {"port": "5432", **conninfo_to_dict(self.conninfo)}
        return (*(str(given.get(name, "")) for name in ("host", "hostaddr", "port", "dbname")), self.schema)


def parse(url: str) -> PgAddress:
    """Parse a URL; an invalid one is refused without repeating it."""
    try:
        parts = urlsplit(url)
        if parts.netloc.count("@") > 1:
            raise ValueError
        query = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True, strict_parsing=bool(parts.query))
        theirs = [pair for pair in query if pair[0] not in (*_LIMITS, "schema")]
        given = conninfo_to_dict(urlunsplit(parts._replace(query=urlencode(theirs, quote_via=quote))))
    except (psycopg.ProgrammingError, ValueError):
        raise StoreError(
            "The PostgreSQL URL cannot be read: write postgresql://USER@HOST:PORT/DATABASE, "
            "with special characters percent-encoded."
        ) from None
    ours = dict(pair for pair in query if pair not in theirs)
    schema = ours.pop("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise StoreError("The schema in the PostgreSQL URL must be 1 to 48 lower-case letters, digits and underscores.")
    numbers = {name: _number(name, value) for name, value in ours.items()}
    return PgAddress(make_conninfo(**{**_DEFAULTS, **given}), schema, **numbers)


def _number(name: str, value: str) -> int:
    least, most = _LIMITS[name]
    if not value.isascii() or not value.isdigit() or len(value) > 9 or not least <= int(value) <= most:
        raise StoreError(f"{name} in the PostgreSQL URL must be a number from {least} to {most}.")
    return int(value)
