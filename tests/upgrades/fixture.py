"""The file of a fixture: a data folder with content on every surface, and answers that must not change.

`make fixture` writes the one of the present schema. One that belongs to a release is never written again.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from semel import __version__
from semel.surfaces.schema import MIGRATIONS
from tests.check.filled import ENV, fill
from tests.harness.server import RunningServer
from tests.upgrades.known import KnownAnswer, KnownRequest, known_requests, send

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FOLDER = Path(__file__).parent
SETTLE_SECONDS = 2.5
"""The sweeper trims and frees within this time."""
DATABASE, KNOWN = "semel.db", "known.json"
LEVEL = 19


def name_of(version: str, schema: int) -> str:
    """The name of the fixture of a release."""
    return f"semel-{version}-schema-{schema}.tar.zst"


CURRENT = FOLDER / name_of(__version__, len(MIGRATIONS))


def all_fixtures() -> list[Path]:
    """The fixtures of all releases, and of the present schema."""
    return sorted(FOLDER.glob("semel-*.tar.zst"))


def write_fixture(path: Path) -> None:
    """Use every surface of a server, stop it, and pack its folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        with RunningServer(folder, env=ENV) as server:
            fill(server)
            with httpx.Client(base_url=server.url, timeout=30) as http:
                requests = known_requests(http)
                first = [send(http, one) for one in requests]
                replayed = [send(http, one) for one in requests]
            time.sleep(SETTLE_SECONDS)
        for before, after in zip(first, replayed, strict=True):
            assert before.status < 300, before
            assert after.headers.get("stream-next-offset") == before.headers.get("stream-next-offset")
        known = {
            "made_at_ms": time.time_ns() // 1_000_000,
            "requests": requests,
            "first": first,
            "replayed": replayed,
        }
        path.write_bytes(zstd.compress(_packed(folder, known), LEVEL))


def open_fixture(path: Path, folder: Path) -> dict[str, Any]:
    """Unpack a data folder; returns what is known of it."""
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress(path.read_bytes()))) as packed:
        packed.extractall(folder, filter="data")
    known: dict[str, Any] = json.loads((folder / KNOWN).read_text())
    (folder / KNOWN).unlink()
    return known | {
        "requests": [KnownRequest(*one) for one in known["requests"]],
        "replayed": [KnownAnswer(*one) for one in known["replayed"]],
    }


def _packed(folder: Path, known: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as packed:
        for name, data in ((DATABASE, (folder / DATABASE).read_bytes()), (KNOWN, json.dumps(known).encode())):
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o600
            packed.addfile(about, io.BytesIO(data))
    return out.getvalue()


def main() -> None:
    """Write the fixture of the present schema."""
    write_fixture(CURRENT)
    sys.stdout.write(f"{CURRENT.relative_to(Path.cwd())}: {CURRENT.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
