"""A store whose future was lost: a real server writes, a backup is taken, the server writes on, the backup is put back.

What clients hold of the lost future is kept here: offsets, ids, cursors, tags, keys. Then the epoch is raised, as an
operator does it, and the server is started and writes other things.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.backup.clone import clone
from tests.cli.command import Semel
from tests.deltas.vectors import Message, columns, delta, now_ms, stamp
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

GATEWAY, LATE_GATEWAY = "shop", "late-shop"
TEXT = {"Content-Type": "text/plain"}
ENV = {"SEMEL_STREAMS_LONG_POLL_MS": "300", "SEMEL_STREAMS_SSE_MAX_MS": "3000"}


class Premises:
    """Where a store is, and its backup."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.url = f"sqlite:{folder}/data" if kind == "sqlite" else fresh_url()
        self._backup = ""
        self.semel = Semel("http://127.0.0.1:1")

    @contextmanager
    def serving(self) -> Iterator[Writer]:
        """A server on the store as it is now, and a client of it."""
        with RunningServer(self.folder / "unused", env={"SEMEL_STORE": self.url, **ENV}) as server:
            writer = Writer(server)
            try:
                yield writer
            finally:
                writer.http.close()

    def back_up(self) -> None:
        """Keep a copy of the store; no server is running."""
        if self.kind == "sqlite":
            shutil.rmtree(self.folder / "backup", ignore_errors=True)
            shutil.copytree(self.folder / "data", self.folder / "backup")
            return
        self._backup = fresh_url()
        clone(self.url, self._backup)

    def restore(self) -> None:
        """Put the copy back in the place of the store; it may be put back again."""
        if self.kind == "sqlite":
            shutil.rmtree(self.folder / "data")
            shutil.copytree(self.folder / "backup", self.folder / "data")
            return
        self.url = fresh_url()
        clone(self._backup, self.url)

    def raise_epoch(self) -> int:
        """What an operator does after a restore."""
        facts = self.semel.here("epoch", "raise", "--store", self.url, "--yes", "--json").facts
        assert facts["raised"] is True
        epoch: int = facts["epoch"]
        return epoch


class BackupPremises(Premises):
    """A store that is backed up with `semel backup` while its server runs, and restored with `semel restore`."""

    def __init__(self, kinds: str, folder: Path) -> None:
        kind, _, self._target = kinds.partition(" to ")
        super().__init__(kind, folder)
        self._file = folder / "semel.backup"
        self._restores = 0
        self._epoch = 0

    def back_up(self) -> None:
        """Write the file; a server is running."""
        with self.serving():
            done = self.semel.here("backup", str(self._file), "--store", self.url, "--force")
        assert done.code == 0, done.err

    def restore(self) -> None:
        """Restore the file into a new place, of the other kind perhaps."""
        self._restores += 1
        is_file = self._target == "sqlite"
        self.url = f"sqlite:{self.folder}/restored-{self._restores}" if is_file else fresh_url()
        self._epoch = self.semel.here("restore", str(self._file), "--store", self.url, "--json").facts["epoch"]

    def raise_epoch(self) -> int:
        """Nothing is left to do: the epoch that the restore began."""
        return self._epoch


class Writer:
    """Writes to every surface, by plain HTTP."""

    def __init__(self, server: RunningServer) -> None:
        self.http = httpx.Client(base_url=server.url, timeout=30)
        self.port = server.port
        self.url = server.url
        self._last = 0

    def create(self, name: str, content_type: str = "text/plain") -> str:
        """Make a stream; its next offset."""
        answer = self.http.put(f"/v1/stream/{name}", headers={"Content-Type": content_type})
        assert answer.status_code == 201, answer.text
        return answer.headers["Stream-Next-Offset"]

    def append(self, name: str, content: str, key: str = "") -> str:
        """Append; the offset behind it."""
        headers = TEXT | ({"Idempotency-Key": key} if key else {})
        answer = self.http.post(f"/v1/stream/{name}", content=content, headers=headers)
        assert answer.status_code == 204, answer.text
        return answer.headers["Stream-Next-Offset"]

    def read(self, name: str, offset: str = "-1", **query: str) -> httpx.Response:
        """GET, whatever is answered."""
        return self.http.get(f"/v1/stream/{name}", params={"offset": offset, **query})

    def submit(self, *ids: str) -> list[int]:
        """Commit events; their places."""
        events = [{"id": one, "partitions": ["p"], "event": {"type": "t", "payload": one}} for one in ids]
        results = self.http.post("/v1/events", json={"events": events}).json()["results"]
        assert {one["status"] for one in results} == {"committed"}, results
        return [one["committed_id"] for one in results]

    def events(self, since: int, **query: Any) -> httpx.Response:
        """A page of events."""
        return self.http.get("/v1/events", params={"partition": "p", "since": since, **query})

    def push(self, row: str, value: str, client: str = "writer", gateway: str = GATEWAY) -> int:
        """Push one change; the server's number."""
        self._last = max(self._last + 1, stamp(now_ms()))
        made = delta("INSERT", columns(title=value), row=row, client=client, hlc=self._last)
        answer = self.http.post(f"/v1/sync/{gateway}/push", json={"clientId": client, "deltas": [made]})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["serverHlc"])

    def pull(self, since: int, client: str = "reader", gateway: str = GATEWAY, limit: int = 100) -> httpx.Response:
        """A page of changes, whatever is answered."""
        query = {"clientId": client, "since": str(since), "limit": str(limit)}
        return self.http.get(f"/v1/sync/{gateway}/pull", params=query)

    def cursor(self, since: int, client: str = "reader", gateway: str = GATEWAY) -> int:
        """The cursor behind a page."""
        answer = self.pull(since, client, gateway)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["serverHlc"])


def rows_of(answer: httpx.Response) -> list[tuple[str, str]]:
    """Row and title of each entry of a page; a row that may be there comes behind a DELETE, which has no title."""
    entries: Sequence[Message] = answer.json()["deltas"]
    return [(entry["rowId"], entry["columns"][0]["value"]) for entry in entries if entry["op"] != "DELETE"]


class Held(NamedTuple):
    """What clients hold from before the restore."""

    kept_offset: str
    lost_offsets: list[str]
    idle_offset: str
    born_offset: str
    lost_tag: str
    kept_ids: list[int]
    lost_ids: list[int]
    kept_cursor: int
    lost_cursors: list[int]
    lost_push: int
    late_cursor: int
    term: int


def first_life(writer: Writer) -> tuple[str, list[int], int]:
    """What the backup holds: an offset, ids, a cursor."""
    for name in ("log", "idle"):
        writer.create(name)
    offset = writer.append("log", "aaaa", "kept")
    writer.append("idle", "aaaa")
    ids = writer.submit("kept-1", "kept-2")
    writer.push("r1", "kept")
    writer.cursor(0, "plain")
    return offset, ids, writer.cursor(0)


def lost_life(writer: Writer, kept: tuple[str, list[int], int], term: int) -> Held:
    """What the backup does not hold."""
    # As much as comes after the restore: the tags of both must differ although sizes are the same.
    offsets = [writer.append("log", "bbbb", "lost"), writer.append("log", "cccc"), writer.append("log", "hhhh")]
    idle = writer.append("idle", "bbbbbbbb")
    writer.create("born")
    born = writer.append("born", "bbbb")
    tag = writer.read("log", "-1").headers["ETag"]
    ids = writer.submit("lost-1", "lost-2", "lost-3")
    writer.push("r2", "lost")
    first = writer.cursor(kept[2])
    pushed = writer.push("r3", "lost")
    second = writer.cursor(first)
    writer.cursor(kept[2], "plain")
    writer.push("r9", "lost", gateway=LATE_GATEWAY)
    late = writer.cursor(0, gateway=LATE_GATEWAY)
    return Held(kept[0], offsets, idle, born, tag, kept[1], ids, kept[2], [first, second], pushed, late, term)


def new_life(writer: Writer) -> list[int]:
    """What is written after the restore: as much as was lost, so that numbers alone would not tell the two apart."""
    for content in ("dddd", "eeee", "ffff"):
        writer.append("log", content)
    writer.create("born")
    writer.append("born", "dddd")
    ids = writer.submit("new-1", "new-2", "new-3", "new-4")
    for row in ("r4", "r5", "r6"):
        writer.push(row, "new")
    writer.push("r7", "new", gateway=LATE_GATEWAY)
    return ids


def term_of(writer: Writer) -> int:
    """The term of a vault that is made now, as its first header tells it."""
    org = writer.http.post("/ledger/v1/orgs", json={"name": "shop"}).json()["slug"]["slug"]
    made = writer.http.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()
    return int(made["genesis"]["term"])
