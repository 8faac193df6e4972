"""Servers for the ledger tests, and a client whose calls are the same over HTTP and over gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import Servers, check_log
from tests.ledger.calls import GrpcWire
from tests.ledger.http_wire import ROOT, HttpWire
from tests.ledger.words import Answer, Message, Place, data, fresh, text

CODE = "WRITE_ERROR_CODE_"
LINEARIZABLE = "READ_CONSISTENCY_LINEARIZABLE"
STORE_PATIENCE_MS = "60000"
"""Nodes that stand still with a lock in their hands must not be a reason to refuse: nothing here is about that."""


class Told:
    """What the sender of a write was told."""

    def __init__(self, answer: Answer) -> None:
        self.body: Message
        [(self.kind, self.body)] = answer.items()
        assert self.kind in ("success", "error"), answer
        self.is_marked = answer.is_replay
        """Whether it came with `Idempotency-Replayed: true`."""

    def __repr__(self) -> str:
        return f"Told({self.kind}, {self.body}, marked={self.is_marked})"

    @property
    def success(self) -> Message:
        assert self.kind == "success", self
        return self.body

    @property
    def error(self) -> Message:
        assert self.kind == "error", self
        return self.body

    @property
    def code(self) -> str:
        """OK, or the short name of the error."""
        return "OK" if self.kind == "success" else str(self.body["code"]).removeprefix(CODE)

    @property
    def tx(self) -> bytes | None:
        """The transaction that it is about."""
        found = self.body.get("txId" if self.kind == "success" else "committedTxId")
        return None if found is None else data(found["id"])

    @property
    def height(self) -> int | None:
        return _number(self.body.get("blockHeight" if self.kind == "success" else "committedBlockHeight"))

    @property
    def sequence(self) -> int | None:
        return _number(self.body.get("assignedSequence"))

    @property
    def last(self) -> int | None:
        return _number(self.body.get("lastCommittedSequence"))

    @property
    def details(self) -> Message:
        found: Message = self.body.get("details", {})
        return found

    @property
    def facts(self) -> tuple[bytes | None, int | None, int | None]:
        """What every retry must be told alike."""
        return self.tx, self.height, self.sequence


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


class Ledger:
    """A client. `via` says which wire the calls take; what only HTTP has takes HTTP."""

    def __init__(self, via: str, nodes: Sequence[RunningServer], token: str = "") -> None:
        self.via = via
        self.nodes = nodes
        self._token = token
        self._dial()

    def _dial(self) -> None:
        bearer = f"Bearer {self._token}"
        self.http = HttpWire(
            [node.port for node in self.nodes], headers={"Authorization": bearer} if self._token else None
        )
        metadata = [("authorization", bearer)] if self._token else []
        self.grpc = GrpcWire([node.grpc_port for node in self.nodes], metadata)
        self.wire: HttpWire | GrpcWire = self.grpc if self.via == "grpc" else self.http

    def redial(self) -> None:
        """Connections to servers that were killed are of no use."""
        self.close()
        self._dial()

    def close(self) -> None:
        self.http.close()
        self.grpc.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, place: Place, client: str, *operations: Message, **identity: Any) -> Told:
        """One transaction; `sequence`, `key` and `proofs` as far as they are given."""
        asked = request(place, client, operations, **identity)
        return Told(self.wire.ask("Write", asked))

    def batch(self, place: Place, client: str, *groups: Sequence[Message], **identity: Any) -> Told:
        """The same in groups."""
        asked = request(place, client, [{"operations": list(group)} for group in groups], **identity)
        if "includeTxProof" in asked:
            asked["includeTxProofs"] = asked.pop("includeTxProof")
        return Told(self.wire.ask("BatchWrite", asked))

    def commit(self, place: Place, client: str, *operations: Message, **identity: Any) -> Told:
        """A write that must succeed."""
        told = self.write(place, client, *operations, **identity)
        assert told.code == "OK", told
        return told

    def check_replay(self, told: Told, first: Told) -> None:
        """Committed, not executed now: hot or cold, and over HTTP always the first answer again."""
        if self.via == "http":
            assert told.is_marked, told
        if told.kind == "success":
            assert told.success == first.success, (told, first)
        else:
            self.check_cold(told, first)

    def check_cold(self, told: Told, first: Told) -> None:
        """The form of a replay when this process has not given the answer before; gRPC's alone."""
        assert self.via == "grpc"
        assert told.code == "ALREADY_COMMITTED", told
        assert told.facts == first.facts, (told, first)
        assert told.error["original"] == first.success, (told, first)

    def check_hot(self, told: Told, first: Told) -> None:
        """The first answer again, in every field."""
        assert told.success == first.success, (told, first)
        assert told.is_marked or self.via == "grpc", told

    # -- reading -------------------------------------------------------------------------------------------------------

    def ask(self, rpc: str, place: Place | None = None, **fields: Any) -> Answer:
        """Any other method; fields that are None are left out, and numbers are sent as JSON prints them."""
        given = {name: value for name, value in fields.items() if value is not None}
        return self.wire.ask(rpc, (place.fields if place else {}) | given)

    def last(self, place: Place, client: str) -> int:
        """The last committed sequence of a client."""
        return int(self.state(place, client)["lastCommittedSequence"])

    def state(self, place: Place, client: str) -> Answer:
        return self.ask("GetClientState", place, clientId={"id": client})

    def height(self, place: Place) -> int:
        """Of the tip; 0 when there is no block."""
        return int(self.ask("GetTip", place)["height"])

    def value(self, place: Place, key: str, at: int | None = None) -> bytes | None:
        """The value of an entity, now or at a height; None when it is not there."""
        if at is None:
            found = self.ask("Read", place, key=key, consistency=LINEARIZABLE)
        else:
            found = self.ask("HistoricalRead", place, key=key, atHeight=str(at))
        return data(found["value"]) if "value" in found else None

    def block(self, place: Place, height: int) -> Message:
        """A block that must be there."""
        found: Message = self.ask("GetBlock", place, height=str(height))["block"]
        return found

    def transaction(self, place: Place, height: int) -> Message:
        """The only transaction of a block."""
        transaction: Message
        [transaction] = self.block(place, height)["transactions"]
        return transaction

    def watch(self, place: Place, start: int) -> AbstractContextManager[Iterator[Message]]:
        """The announcements of blocks from this height on."""
        return self.wire.watch(place.fields | {"startHeight": str(start)})

    # -- places --------------------------------------------------------------------------------------------------------

    def new_org(self, name: str = "", **settings: Any) -> Place:
        """An organization of the test's own, with these settings."""
        made = self.ask("CreateOrganization", name=name or fresh("org"))
        place = Place(int(made["slug"]["slug"]))
        if settings:
            self.set_org(place, **settings)
        return place

    def set_org(self, place: Place, **settings: Any) -> Message:
        return self.http.patch(f"{ROOT}/{place.org}", **settings)

    def new_vault(self, org: Place, *, keep: int | None = None) -> Place:
        """A vault; `keep` is how many bodies of blocks a compacted one keeps."""
        policy = {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": str(keep)} if keep else None
        made = self.ask("CreateVault", org.whole, retentionPolicy=policy)
        return Place(org.org, int(made["vault"]["slug"]))

    def new_place(self) -> Place:
        """A vault in an organization of its own."""
        return self.new_vault(self.new_org())

    def entries(self, place: Place) -> int:
        """The length of the organization's log."""
        return int(self.ask("GetOrganization", slug={"slug": str(place.org)})["entries"])


def request(
    place: Place,
    client: str,
    operations: Sequence[Message],
    *,
    sequence: int | None = None,
    key: bytes | None = None,
    proofs: bool = False,
) -> Message:
    """A write as both wires take it."""
    asked: Message = place.fields | {"clientId": {"id": client}, "operations": list(operations)}
    if sequence is not None:
        asked["sequence"] = str(sequence)
    if key is not None:
        asked["idempotencyKey"] = text(key)
    if proofs:
        asked["includeTxProof"] = True
    return asked


class Site:
    """A server, or nodes over PostgreSQL, with both wires, and its clients."""

    def __init__(self, server: Servers, url: str = "") -> None:
        self.server = server
        self.url = url
        """Of the PostgreSQL schema under it."""
        self._clients: dict[tuple[str, bool, str], Ledger] = {}
        self._lock = threading.Lock()

    @property
    def nodes(self) -> Sequence[RunningServer]:
        return self.server.each if isinstance(self.server, Nodes) else [self.server]

    def ledger(self, via: str = "http", *, pinned: bool = False, token: str = "") -> Ledger:
        """A client over this wire; a pinned one stays with the first node, the others take the nodes in turn."""
        wanted = (via, pinned, token)
        with self._lock:
            if wanted not in self._clients:
                self._clients[wanted] = Ledger(via, self.nodes[:1] if pinned else self.nodes, token)
            return self._clients[wanted]

    def crash(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kill every process and start them again."""
        self.server.kill()
        meanwhile()
        self.server.start()
        for client in self._clients.values():
            client.redial()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def serving(
    folder: Path, store: str, *, env: Mapping[str, str] | None = None, nodes: int = 2, **settings: object
) -> Iterator[Site]:
    """A site with SEMEL_ settings; its logs must show no fault."""
    variables = {f"SEMEL_{name}": str(value) for name, value in settings.items()} | dict(env or {})
    server: Servers
    url = fresh_url(lanes="3", patience_ms=STORE_PATIENCE_MS) if store == "postgres" else ""
    if url:
        server = Nodes(folder, nodes, env=variables | {"SEMEL_STORE": url}, grpc=True)
    else:
        memory = {"SEMEL_STORE": "memory:"} if store == "memory" else {}
        server = RunningServer(folder, env=variables | memory, grpc=True)
    with server:
        site = Site(server, url)
        try:
            yield site
        finally:
            site.close()
    check_log(server)


SiteOf = Callable[[str], Site]
