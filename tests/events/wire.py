"""What the events tests say to a server and how they read its answers.

Nothing here knows the implementation: frames, envelopes and answers are those of the published contract. Every
message that a server sends is checked against the envelope of its dialect as it arrives.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import Servers, check_log

PATH = "/v1/events"
VERSION = "1.0"
BROADCAST = "event_broadcast"
PATIENCE_SECONDS = 25.0
"""Less than the time after which a server looks by itself: what comes in time has come because it was told."""
"""How long any one answer may take before the test gives up on it."""
IDLE_MS = "300000"
"""How long a peer may only listen unless a test says otherwise: on a slow machine it may have to for long."""
QUIET_SECONDS = 0.15
"""How long nothing must come before a test believes that nothing does."""

Message = dict[str, Any]
C = TypeVar("C", bound="Connection")

_numbers = itertools.count(1)


class _Absent:
    """Marks a field that is left out."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


def fresh(prefix: str = "x") -> str:
    """A name that no test of this run has had; later ones sort behind, as a client does with drafts of one instant."""
    return f"{prefix}-{next(_numbers):07d}"


def item(partitions: Sequence[str], event: Mapping[str, Any] | None = None, /, **fields: Any) -> Message:
    """One item of `submit_events`, with an id of its own unless one is given; ABSENT leaves a field out."""
    number = next(_numbers)
    given = {"id": f"e-{number}", "partitions": list(partitions), "event": event or {"type": "t", "payload": number}}
    return _without_absent(given | fields)


def _without_absent(fields: Mapping[str, Any]) -> Message:
    return {name: value for name, value in fields.items() if value is not ABSENT}


class Ending(NamedTuple):
    """How a connection ended: what came before the end, the close code (1006 if there was none) and the reason."""

    messages: list[Message]
    code: int
    reason: str

    @property
    def error(self) -> str:
        """The code of the last message before the end, which must be an error."""
        assert self.messages, "the connection ended without a word"
        assert self.messages[-1]["type"] == "error", self.messages
        code: str = self.messages[-1]["payload"]["code"]
        return code


class Connection:
    """One WebSocket: frames go out as given; what comes in is text with one JSON object in each."""

    def __init__(self, port: int, *, base: str = "", **options: Any) -> None:
        """`base` precedes the path."""
        given = {"compression": None, "proxy": None, "ping_interval": None, "max_size": None} | options
        given |= {"open_timeout": PATIENCE_SECONDS, "close_timeout": 1}
        self._closing = ExitStack()
        self.socket = self._closing.enter_context(connect(f"ws://{HOST}:{port}{base}{PATH}", **given))
        self.pushed: list[Message] = []
        """Broadcasts that came while something else was waited for."""

    def send_raw(self, frame: str | bytes | Iterable[str]) -> None:
        """A text frame, a binary frame, or a message in fragments."""
        self.socket.send(frame)

    def receive(self, timeout: float = PATIENCE_SECONDS) -> Message:
        """The next message off the wire, whatever it is."""
        try:
            text = self.socket.recv(timeout)
        except TimeoutError as error:
            raise AssertionError(f"no message within {timeout} s") from error
        except ConnectionClosed as end:
            raise AssertionError(f"the connection ended: {end}") from end
        assert isinstance(text, str), text
        message = json.loads(text, parse_constant=_refuse_constant)
        assert isinstance(message, dict), message
        self.check(message)
        return message

    def check(self, message: Message) -> None:
        """Hold a message against the dialect's envelope."""

    def answer(self, timeout: float = PATIENCE_SECONDS) -> Message:
        """The next message that is no broadcast; broadcasts before it are kept in `pushed`."""
        deadline = time.monotonic() + timeout
        while (message := self.receive(max(0.01, deadline - time.monotonic())))["type"] == BROADCAST:
            self.pushed.append(message["payload"])
        return message

    def receive_until(self, kind: str, timeout: float = PATIENCE_SECONDS) -> Message:
        """The next answer, which must be of this type."""
        message = self.answer(timeout)
        assert message["type"] == kind, message
        return message

    def broadcasts(self, count: int, timeout: float = PATIENCE_SECONDS) -> list[Message]:
        """The payloads of the next broadcasts: those kept, then those that come. Nothing else may come."""
        deadline = time.monotonic() + timeout
        while len(self.pushed) < count:
            message = self.receive(max(0.01, deadline - time.monotonic()))
            assert message["type"] == BROADCAST, message
            self.pushed.append(message["payload"])
        taken, self.pushed = self.pushed[:count], self.pushed[count:]
        return taken

    def expect_nothing(self, seconds: float = QUIET_SECONDS) -> None:
        """Nothing is kept, nothing comes, and the connection stays."""
        assert self.pushed == []
        try:
            text = self.socket.recv(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"unexpected: {text!r}")

    def ending(self, timeout: float = PATIENCE_SECONDS) -> Ending:
        """Read until the server ends the connection."""
        deadline = time.monotonic() + timeout
        messages: list[Message] = []
        while True:
            try:
                text = self.socket.recv(max(0.01, deadline - time.monotonic()))
            except TimeoutError as error:
                raise AssertionError(f"still open after {timeout} s; came: {messages}") from error
            except ConnectionClosed as end:
                return Ending(messages, *((end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")))
            messages.append(json.loads(text))
            self.check(messages[-1])

    def close(self) -> None:
        """Close in order."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refuse_constant(constant: str) -> NoReturn:
    raise AssertionError(f"not JSON: {constant}")


class Peer(Connection):
    """A client of the seed dialect."""

    def __init__(self, port: int, client_id: str = "", **options: Any) -> None:
        super().__init__(port, **options)
        self.client_id = client_id or fresh("client")
        self.sent: set[str] = set()
        self._seen: set[str] = set()

    def check(self, message: Message) -> None:
        assert isinstance(message["type"], str), message
        assert isinstance(message["payload"], dict), message
        assert isinstance(message["timestamp"], int), message
        assert message["protocol_version"] == VERSION, message
        assert isinstance(message["msg_id"], str), message
        assert message["msg_id"] not in self._seen, message
        assert message.get("reply_to", ABSENT) in self.sent | {ABSENT}, message
        self._seen.add(message["msg_id"])

    def send(self, kind: str, payload: Any = None, /, **overrides: Any) -> str:
        """Send one message and return its id; an override replaces a field of the envelope, ABSENT leaves it out."""
        message_id = fresh("m")
        envelope: Message = {"type": kind, "msg_id": message_id, "timestamp": 1_760_000_000_000}
        envelope |= {"protocol_version": VERSION, "payload": {} if payload is None else payload}
        self.sent.add(message_id)
        self.send_raw(json.dumps(_without_absent(envelope | overrides)))
        return message_id

    def ask(self, kind: str, payload: Any = None, /, **overrides: Any) -> Message:
        """Send one message and return the answer."""
        self.send(kind, payload, **overrides)
        return self.answer()

    def error(self, kind: str, payload: Any = None, /, **overrides: Any) -> Message:
        """Send one message and return the payload of the error that answers it."""
        answer = self.ask(kind, payload, **overrides)
        assert answer["type"] == "error", answer
        refusal: Message = answer["payload"]
        assert isinstance(refusal["message"], str), refusal
        assert refusal["message"], refusal
        return refusal

    def connect(self, client_id: str = "", token: str = "any", **payload: Any) -> Message:
        """Shake hands and return the payload of `connected`."""
        self.client_id = client_id or self.client_id
        given = {"token": token, "client_id": self.client_id} | payload
        return self._payload("connected", self.ask("connect", _without_absent(given)))

    def submit(self, items: Sequence[Any]) -> list[Message]:
        """Submit a batch and return the results: one an item, in order."""
        results: list[Message] = self._payload("submit_events_result", self.ask("submit_events", {"events": items}))[
            "results"
        ]
        assert [result["id"] for result in results] == [one["id"] for one in items], results
        return results

    def commit(self, *items: Message) -> list[int]:
        """Submit a batch that is committed as a whole and return the committed ids."""
        results = self.submit(items)
        assert [result["status"] for result in results] == ["committed"] * len(items), results
        return [result["committed_id"] for result in results]

    def sync(
        self,
        partitions: Sequence[str],
        since: int = 0,
        limit: int | None = None,
        subscription: Sequence[str] | None = None,
    ) -> Message:
        """Ask for one page and return the payload of `sync_response`."""
        asked: Message = {"partitions": list(partitions), "since_committed_id": since}
        asked |= {} if limit is None else {"limit": limit}
        asked |= {} if subscription is None else {"subscription_partitions": list(subscription)}
        return self._payload("sync_response", self.ask("sync", asked))

    def send_text(self, kind: str, payload: str) -> str:
        """Send a message whose payload is this text, letter for letter."""
        message_id = fresh("m")
        self.sent.add(message_id)
        head = f'"type":"{kind}","msg_id":"{message_id}","timestamp":1,"protocol_version":"{VERSION}"'
        self.send_raw(f'{{{head},"payload":{payload}}}')
        return message_id

    def submit_text(self, item_id: str, partitions: str, event: str) -> Message:
        """Submit one item whose partitions and event are these texts, letter for letter; return the answer."""
        one = f'{{"id":{json.dumps(item_id)},"partitions":{partitions},"event":{event}}}'
        self.send_text("submit_events", f'{{"events":[{one}]}}')
        return self.answer()

    def result_text(self, item_id: str, partitions: str, event: str) -> Message:
        """The same, and the result."""
        [result] = self._payload("submit_events_result", self.submit_text(item_id, partitions, event))["results"]
        assert isinstance(result, dict)
        assert result["id"] == item_id, result
        return result

    def watermark(self) -> int:
        """Where the log ends now."""
        top: int = self.sync(["nobody"])["sync_to_committed_id"]
        return top

    def subscribe(self, *partitions: str) -> Message:
        """Follow these partitions from now on; return the page, which leaves out most of the past."""
        return self.sync(partitions, since=2**53 - 1, subscription=partitions)

    def history(self, partitions: Sequence[str], since: int = 0, limit: int = 1000) -> list[Message]:
        """Every event of a whole cycle, its pages held against S2, S4 and S5."""
        page = self.sync(partitions, since, limit)
        events, top = list(page["events"]), page["sync_to_committed_id"]
        while page["has_more"]:
            assert page["events"]
            assert page["next_since_committed_id"] == page["events"][-1]["committed_id"]
            page = self.sync(partitions, page["next_since_committed_id"], limit)
            assert page["sync_to_committed_id"] == top
            events += page["events"]
        ids = [event["committed_id"] for event in events]
        assert ids == sorted(set(ids))
        return events

    def heartbeat(self) -> None:
        """Ask for a sign of life; what the server had queued for this connection before it has come then."""
        self.send("heartbeat")
        assert self.receive_until("heartbeat_ack")["payload"] == {}

    @staticmethod
    def _payload(kind: str, message: Message) -> Message:
        assert message["type"] == kind, message
        payload: Message = message["payload"]
        return payload


class Camel(Peer):
    """A client of the camel dialects: 2.x with a project, 1.3 without."""

    def __init__(self, port: int, client_id: str = "", project: str = "", **options: Any) -> None:
        super().__init__(port, client_id, **options)
        self.project = project

    def check(self, message: Message) -> None:
        assert isinstance(message["type"], str), message
        assert isinstance(message["payload"], dict), message
        assert message["protocolVersion"] == VERSION, message
        assert not {"timestamp", "msg_id", "protocol_version", "reply_to"} & set(message), message
        if message["type"] == BROADCAST:
            assert message["msgId"] not in self.sent | self._seen, message
            self._seen.add(message["msgId"])

    def send(self, kind: str, payload: Any = None, /, **overrides: Any) -> str:
        message_id = fresh("m")
        envelope: Message = {"type": kind, "protocolVersion": VERSION, "timestamp": 1_760_000_000_000}
        envelope |= {"msgId": message_id, "payload": {} if payload is None else payload}
        self.sent.add(message_id)
        self.send_raw(json.dumps(_without_absent(envelope | overrides)))
        return message_id

    def ask(self, kind: str, payload: Any = None, /, **overrides: Any) -> Message:
        message_id = self.send(kind, payload, **overrides)
        answer = self.answer()
        if "msgId" not in overrides:
            assert answer["msgId"] == message_id, answer
        return answer

    def connect(self, client_id: str = "", token: str = "any", **payload: Any) -> Message:
        self.client_id = client_id or self.client_id
        given = {"token": token, "clientId": self.client_id}
        given |= {"projectId": self.project} if self.project else {}
        return self._payload("connected", self.ask("connect", _without_absent(given | payload)))

    def commit(self, *items: Message) -> list[int]:
        results = self.submit(items)
        assert [result["status"] for result in results] == ["committed"] * len(items), results
        return [result["committedId"] for result in results]

    def sync(
        self,
        partitions: Sequence[str] = (),
        since: int = 0,
        limit: int | None = None,
        subscription: Sequence[str] | None = None,
    ) -> Message:
        """One page: of the project in 2.x, of the partitions in 1.3 (which are the subscription too)."""
        assert subscription is None, "the camel dialects have no subscription of their own"
        asked: Message = {"projectId": self.project} if self.project else {"partitions": list(partitions)}
        asked |= {"sinceCommittedId": since} | ({} if limit is None else {"limit": limit})
        return self._payload("sync_response", self.ask("sync", asked))

    def draft(self, partitions: Sequence[str] = (), **fields: Any) -> Message:
        """One item as this dialect's client makes it; ABSENT leaves a field out."""
        number = next(_numbers)
        made: Message = {"id": f"e-{number}", "type": "card.moved", "payload": {"card": number}}
        made["meta"] = {"clientId": self.client_id, "clientTs": 1_760_000_000_990}
        if self.project:
            made |= {"partition": "board", "projectId": self.project, "schemaVersion": 1}
        else:
            made["partitions"] = list(partitions)
        return _without_absent(made | fields)


store_kind = "sqlite"
"""What stands under the servers; `conftest` sets it."""


class Events:
    """One server, or two nodes, and its clients, which take connections to the nodes in turn."""

    def __init__(self, server: Servers) -> None:
        self.server = server
        transport = server.transport() if isinstance(server, Nodes) else None
        self.http = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS, transport=transport)
        self._open = ExitStack()

    @property
    def ports(self) -> list[int]:
        """Each node's port."""
        return [node.port for node in self.server.each] if isinstance(self.server, Nodes) else [self.server.port]

    def bare(self, *, port: int | None = None, **options: Any) -> Connection:
        """A connection that checks no envelope."""
        return self._kept(Connection(self.server.port if port is None else port, **options))

    def raw(self, client_id: str = "", *, port: int | None = None, **options: Any) -> Peer:
        """A connection that has said nothing yet."""
        return self._kept(Peer(self.server.port if port is None else port, client_id, **options))

    def peer(self, client_id: str = "", *, port: int | None = None, token: str = "any", **payload: Any) -> Peer:
        """A connected client of the seed dialect."""
        peer = self.raw(client_id, port=port)
        peer.connect(token=token, **payload)
        return peer

    def camel(self, project: str = "", client_id: str = "", *, port: int | None = None, **options: Any) -> Camel:
        """A client of 2.x, or of 1.3 if there is no project, that has said nothing yet."""
        return self._kept(Camel(self.server.port if port is None else port, client_id, project, **options))

    def camel_1(self, client_id: str = "", *, port: int | None = None, token: str = "any") -> Camel:
        """A connected client of 1.3."""
        peer = self.camel("", client_id, port=port)
        peer.connect(token=token)
        return peer

    def camel_2(self, project: str, client_id: str = "", *, port: int | None = None, token: str = "any") -> Camel:
        """A connected client of 2.x."""
        peer = self.camel(project, client_id, port=port)
        peer.connect(token=token)
        return peer

    def close(self) -> None:
        """Close every connection that was made here."""
        self._open.close()
        self.http.close()

    def close_peers(self) -> None:
        """Close the WebSockets that were made here."""
        self._open.close()

    def _kept(self, connection: C) -> C:
        self._open.enter_context(connection)
        return connection


@contextmanager
def serving(
    data: Path, *, store: str = "", env: Mapping[str, str] | None = None, clean: bool = True, **settings: str
) -> Iterator[Events]:
    """A server with SEMEL_ settings, or two nodes; unless `clean` is off, what they log must show no fault."""
    given = {"EVENTS_IDLE_MS": IDLE_MS} | settings
    variables = {f"SEMEL_{name}": value for name, value in given.items()} | dict(env or {})
    server = _servers(data, store or store_kind, variables)
    with server:
        events = Events(server)
        try:
            yield events
        finally:
            events.close()
    if clean:
        check_log(server)


def _servers(data: Path, store: str, env: dict[str, str]) -> Servers:
    if store == "postgres":
        return Nodes(data, 2, env=env | {"SEMEL_STORE": fresh_url(lanes="3")})
    return RunningServer(data, env=env | ({"SEMEL_STORE": "memory:"} if store == "memory" else {}))
