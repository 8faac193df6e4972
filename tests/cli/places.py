"""Places for data that commands are tried on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.harness.postgres.shared import shared_cluster


def is_nothing_there(url: str) -> bool:
    """Whether neither a folder nor a schema has been made."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return not Path(rest).exists()
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    return shared_cluster().execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)) == []
