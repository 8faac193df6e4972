"""Limits of deltas."""

from __future__ import annotations

from typing import NamedTuple

MAX_BODY_BYTES = 1024 * 1024
MAX_DELTAS = 10_000
"""Limit of deltas of one push."""
MAX_TABLE_CHARACTERS = 64
MAX_ROW_CHARACTERS = 1_024
MAX_CLIENT_CHARACTERS = 256
MAX_GATEWAY_CHARACTERS = 256
MAX_COLUMNS = 1_000
"""Limit of columns of one row, and of remembered names of former columns."""
MAX_ROW_BYTES = 2 * 1024 * 1024
"""Limit of bytes of the columns of one row, including authors and stamps."""
MAX_TOUCHED_BYTES = 32 * 1024 * 1024
"""Limit of bytes of all rows that one push changes."""
FIRST_ROWS, MORE_ROWS = 32, 64
"""Rows that are loaded before their size is checked: in the first step, and in each later one."""
DEFAULT_PAGE, MAX_PAGE = 100, 10_000
PAGE_BYTES = 8 * 1024 * 1024
"""Approximate limit of bytes of one page of a pull; a page always holds at least one entry."""
KEPT_ALIASES, MAX_ALIASES = 8, 32
"""Remembered cursors that pushes returned: after the client has shown a later one, and at most."""
SCANNED_ROWS = 20_000
"""Limit of log rows that one read scans, so that other calls are not blocked."""
KEPT_AIDS = 64
"""Limit of authors for which a row stores the last repair."""
REPAIRED_COLUMNS = 16
"""Limit of columns of a repair; if more may differ, the repair has the whole row."""
MAX_REPLICAS = 1_000_000
"""Limit of clients of one gateway whose progress is stored."""
MAX_TABLES = 1_000
"""Limit of tables with a schema in one gateway."""
MAX_RULES_BYTES = 64 * 1024
MAX_BUCKETS, MAX_FILTERS = 100, 20


class DeltaPolicy(NamedTuple):
    """The settings that decisions depend on."""

    checks_ids: bool = True
    """False accepts ids that are not hashes of the content."""
    max_deltas: int = MAX_DELTAS
    """Limit of deltas of one push."""
    max_gateways: int = 0
    """Limit of gateways; 0 is no limit."""
    max_clients: int = MAX_REPLICAS
    """Limit of clients of one gateway."""
    client_ttl_ms: int = 0
    """Time until an inactive client is forgotten, in milliseconds; 0 is never."""
    keep_log_ms: int = 0
    """Retention of the log in milliseconds; 0 is for ever."""
