"""What must be there before the commands of the pages for operators can be typed, and what is put in.

Commands that are not typed stand in `NOT_TYPED`, each with the test that runs it instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DATABASE = "postgresql://semel@db.example.com/semel"
SAME_DATABASE = "postgresql://semel@db.example/semel"
RESTORED = "postgresql://semel@127.0.0.1:5433/semel"
BACKUP = "semel-20261118T101059Z.backup"


class Elsewhere(NamedTuple):
    """Where a command that is not typed runs instead."""

    why: str
    test: str
    words: tuple[str, ...]
    """Words of the command that stand in that file too."""


class Page(NamedTuple):
    """What a page needs, and which of its commands are typed in another way."""

    before: tuple[str, ...] = ()
    """Lines that are typed first."""
    watched: Mapping[str, str] = {}
    """Beginnings of commands that go on until they are stopped, and what they say first."""
    asked: tuple[str, ...] = ()
    """Beginnings of commands that ask at a terminal before they act; they are answered with yes."""
    not_typed: Mapping[str, Elsewhere] = {}
    """Beginnings of commands that are not typed."""


SERVES = "http://127.0.0.1"
STORE = "semel migrate --data /var/lib/semel"
PIPES = "it needs an object store; a test pipes through another program"
LITESTREAM_TEST = "tests/backup/replication.py"
LITESTREAM = "it needs Litestream beside a server"
CLUSTER = "it needs a PostgreSQL of its own"

PAGES: Mapping[str, Page] = {
    "running.md": Page(watched={"semel serve --data": SERVES, "semel serve --tls": "https://127.0.0.1"}),
    "backup.md": Page(
        before=(STORE, f"semel migrate --store {RESTORED}"),
        watched={"semel serve": SERVES},
        asked=("semel epoch raise --store", "semel epoch raise --data /var/lib/semel"),
        not_typed={
            "set -o pipefail": Elsewhere(PIPES, "tests/cli/test_backup_pipe.py", ("pipefail",)),
            "semel backup - --data /var/lib/semel |": Elsewhere(PIPES, "tests/cli/test_backup_pipe.py", ("backup -",)),
            "aws s3 cp": Elsewhere(PIPES, "tests/cli/test_backup_pipe.py", ("backup",)),
            "pg_basebackup": Elsewhere(
                CLUSTER, "tests/harness/postgres/cluster.py", ("pg_basebackup", "--dbname", "--checkpoint=fast", "-D")
            ),
            "cp -a /backups/base": Elsewhere(CLUSTER, "tests/backup/test_basebackup.py", ("base",)),
            "pg_ctl start": Elsewhere(CLUSTER, "tests/backup/test_basebackup.py", ("start",)),
            "export SEMEL_DATA=/var/lib/semel LITESTREAM_SOCKET": Elsewhere(
                LITESTREAM, LITESTREAM_TEST, ("SEMEL_DATA", "LITESTREAM_SOCKET")
            ),
            "export LITESTREAM_REPLICA=": Elsewhere(LITESTREAM, LITESTREAM_TEST, ("LITESTREAM_REPLICA",)),
            "export SEMEL_DATA=/var/lib/semel LITESTREAM_REPLICA": Elsewhere(
                LITESTREAM, LITESTREAM_TEST, ("SEMEL_DATA", "LITESTREAM_REPLICA")
            ),
            "litestream reset": Elsewhere(LITESTREAM, LITESTREAM_TEST, ("litestream", "reset", "-config")),
            "litestream replicate": Elsewhere(LITESTREAM, LITESTREAM_TEST, ("litestream", "replicate", "-config")),
            "litestream restore": Elsewhere(LITESTREAM, LITESTREAM_TEST, ("litestream", "restore", "-config", "-o")),
        },
    ),
    "check.md": Page(before=("semel migrate", STORE, f"semel migrate --store {DATABASE}")),
    "console.md": Page(
        not_typed={
            "make run": Elsewhere(
                "it builds an environment of its own, and ends with `semel serve`", "Makefile", ("run",)
            ),
        }
    ),
    "diagnosis.md": Page(before=(STORE,)),
    "namespaces.md": Page(
        before=(f"semel migrate --store {DATABASE} --namespace acme",), watched={"semel serve": SERVES}
    ),
    "postgres.md": Page(before=(STORE,), watched={"semel serve": SERVES}),
    "tracing.md": Page(watched={"SEMEL_OTEL=true": SERVES}),
}
"""Pages of `docs/operating` whose commands are typed from the first to the last."""
