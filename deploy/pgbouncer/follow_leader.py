"""Points the PgBouncer of this machine at the leader of a Patroni cluster, and again whenever the leader changes.

Once a second it asks the members over Patroni's REST API which of them leads (`GET /primary`: 200 from the member that
holds the leader key and accepts writes). If that is another one than before, it replaces the file that `pgbouncer.ini`
includes, in one step, and sends PgBouncer SIGHUP; with `server_fast_close = 1` PgBouncer then ends its sessions with
the old leader. While no member leads, it changes nothing. A crash leaves the old file or the new one, whole.

A callback of Patroni is not enough here: it runs on the machine of the database, where this PgBouncer is not, and it
does not run on a machine that hangs. This imports the standard library alone; `Restart=always` in a unit of systemd:

    ExecStart=/usr/bin/python3 /etc/pgbouncer/follow_leader.py --file /etc/pgbouncer/leader.ini \
        --pid-file /var/run/postgresql/pgbouncer.pid --database semel \
        --member db1.example:5432=http://db1.example:8008 --member db2.example:5432=http://db2.example:8008 \
        --member db3.example:5432=http://db3.example:8008
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ASK_SECONDS = 1.0
PAUSE_SECONDS = 1.0


class Member(NamedTuple):
    """One member of the cluster: where its database is, and where its Patroni answers."""

    host: str
    port: int
    api: str


def member(text: str) -> Member:
    """Read `HOST:PORT=URL`."""
    place, _, api = text.partition("=")
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit() or not api.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT=URL")
    return Member(host, int(port), api.rstrip("/"))


def leads(one: Member) -> bool:
    """Whether this member says that it leads; one that does not answer in time does not."""
    parts = urllib.parse.urlsplit(one.api)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=ASK_SECONDS)
    try:
        connection.request("GET", f"{parts.path}/primary")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def content(one: Member, database: str) -> str:
    """The file that PgBouncer includes."""
    address = f"host={one.host} port={one.port} dbname={database}"
    return f"; Written by follow_leader.py.\n[databases]\n{database} = {address}\n"


def replace(path: Path, text: str) -> None:
    """Write the whole file in one step; a file with this text is left alone."""
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            return
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def reload(pid_file: Path) -> bool:
    """Tell PgBouncer to read its files again; False if it is not running, and then it reads them when it starts."""
    try:
        os.kill(int(pid_file.read_text()), signal.SIGHUP)
    except (OSError, ValueError):
        return False
    return True


def follow(members: Sequence[Member], file: Path, pid_file: Path, database: str) -> None:
    """Never returns. The last leader is asked first, so that usually one question is enough."""
    known: Member | None = None
    while True:
        found = next(filter(leads, sorted(members, key=lambda one: one != known)), None)
        if found is not None and found != known:
            replace(file, content(found, database))
            is_told = reload(pid_file)
            told = "was told" if is_told else "is not running"
            sys.stderr.write(f"{found.host}:{found.port} leads; PgBouncer {told}\n")
            known = found if is_told else None  # otherwise PgBouncer may have started meanwhile, with the old file
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Follow until a signal ends the process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--member", type=member, action="append", required=True, metavar="HOST:PORT=URL")
    parser.add_argument("--file", type=Path, required=True, help="the file that pgbouncer.ini includes")
    parser.add_argument("--pid-file", type=Path, required=True, help="the pidfile of PgBouncer")
    parser.add_argument("--database", default="semel")
    asked = parser.parse_args()
    try:
        follow(asked.member, asked.file, asked.pid_file, asked.database)
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
