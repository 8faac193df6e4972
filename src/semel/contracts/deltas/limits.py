"""Limits of deltas."""

from __future__ import annotations

from typing import NamedTuple

MAX_BODY_BYTES = 1024 * 1024
MAX_DELTAS = 10_000
"""Deltas of one push."""
MAX_TABLE_CHARACTERS = 64
MAX_ROW_CHARACTERS = 1_024
MAX_CLIENT_CHARACTERS = 256
MAX_GATEWAY_CHARACTERS = 256
MAX_COLUMNS = 1_000
"""Limit of columns of one row, and of names of former columns that are remembered."""
MAX_ROW_BYTES = 2 * 1024 * 1024
"""Limit of bytes of the columns of one row, with authors and stamps."""
MAX_TOUCHED_BYTES = 32 * 1024 * 1024
"""The rows that one push changes, together."""
FIRST_ROWS, MORE_ROWS = 32, 64
"""Rows that are loaded before their size is checked: at first, and then each time."""
DEFAULT_PAGE, MAX_PAGE = 100, 10_000
PAGE_BYTES = 8 * 1024 * 1024
"""About what one page of a pull holds; one entry always fits."""
KEPT_ALIASES, MAX_ALIASES = 8, 32
"""Cursors given out by pushes that are remembered, once the client has shown a later one and at most."""
SCANNED_ROWS = 20_000
"""Limit of log rows that one read passes over; then others have their turn."""
KEPT_AIDS = 64
"""Authors of one row whose last repair is remembered with it."""
REPAIRED_COLUMNS = 16
"""Limit of columns of a repair; where more may differ, it has the whole row."""
MAX_REPLICAS = 1_000_000
"""Clients of one gateway whose progress is remembered."""
MAX_TABLES = 1_000
"""Tables of one gateway that have a schema."""
MAX_RULES_BYTES = 64 * 1024
MAX_BUCKETS, MAX_FILTERS = 100, 20


class Policy(NamedTuple):
    """The settings that decisions depend on."""

    checks_ids: bool = True
    """Off for data whose ids are not hashes of the content: then an id is believed."""
    max_deltas: int = MAX_DELTAS
    """Limit of deltas of one push."""
    max_gateways: int = 0
    """0 is no limit."""
    max_clients: int = MAX_REPLICAS
    """Limit of clients of one gateway."""
    client_ttl_ms: int = 0
    """Time until an inactive client is forgotten, in milliseconds; 0 is never."""
    keep_log_ms: int = 0
    """Retention of the log in milliseconds; 0 is for ever."""
