"""What the tests of deltas say to a server and how they read its answers.

Nothing here knows the implementation: paths, bodies and headers are the published ones. Every answer is held against
the rules that all answers share as it arrives.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import httpx

from tests.deltas.vectors import CLIENT, LARGEST, Message, columns, delta, delta_id, forged, now_ms, stamp
from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import Servers, check_log

__all__ = [
    "CLIENT",
    "Answer",
    "Deltas",
    "Message",
    "columns",
    "delta",
    "delta_id",
    "forged",
    "fresh",
    "hlcs",
    "serving",
]

LASTING = ("sqlite", "postgres")
"""Those whose data outlives the process."""
PATIENCE_SECONDS = 25.0
"""How long any one answer may take before the test gives up on it."""
NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
HEX = re.compile(r"[0-9a-f]{64}")
STATUS_OF = {
    "VALIDATION_ERROR": (400, 413, 422),
    "SCHEMA_ERROR": (400, 422),
    "AUTH_ERROR": (401, 403),
    "FORBIDDEN": (403,),
    "NOT_FOUND": (404,),
    "CLOCK_DRIFT": (409,),
    "CURSOR_EXPIRED": (410,),
    "RATE_LIMITED": (429,),
    "BACKPRESSURE_ERROR": (503,),
    "OUTCOME_UNKNOWN": (503,),
}
"""Every code but INTERNAL_ERROR, which no test may ever see."""

_numbers = itertools.count(1)


def fresh(prefix: str = "x") -> str:
    """A name that no test of this run has had: for gateways and clients."""
    return f"{prefix}-{next(_numbers)}"


def hlcs(start_ms: int | None = None) -> Iterator[int]:
    """Stamps in rising order from a moment on; from a minute ago unless one is given."""
    return itertools.count(stamp(now_ms() - 60_000 if start_ms is None else start_ms))


class Answer(Message):
    """The body of an answer, and what came with it."""

    def __init__(self, body: Any, response: httpx.Response) -> None:
        super().__init__(body if isinstance(body, dict) else {})
        self.body = body
        self.http = response.status_code
        self.headers = response.headers
        self.raw = response.content

    @property
    def code(self) -> str:
        """The name of the refusal; empty if it is none."""
        return str(self.get("code", ""))

    @property
    def hlc(self) -> int:
        """The cursor that it carries."""
        return int(self["serverHlc"])

    @property
    def told(self) -> tuple[int, str]:
        """Status and code."""
        return self.http, self.code

    @property
    def ids(self) -> list[str]:
        """The ids of the entries in it, in order."""
        return [entry["deltaId"] for entry in self["deltas"]]

    @property
    def blamed(self) -> list[tuple[int, str]]:
        """The index and the code of each delta that a refusal names."""
        return [(one["index"], one["code"]) for one in self["details"]]


def read_answer(response: httpx.Response) -> Answer:
    """An answer of the surface, held against the rules that all of them share."""
    assert response.headers["Content-Type"].split(";")[0] == "application/json", response.headers
    answer = Answer(json.loads(response.content, parse_constant=_refuse_constant), response)
    assert response.headers["X-Request-Id"], response.headers
    assert response.headers["X-Content-Type-Options"] == "nosniff", response.headers
    if re.match(r"(/v1)?/(sync|admin)/", response.url.path):
        assert response.headers["Cache-Control"] == "no-store", response.headers
        assert response.headers["API-Version"] == "v1", response.headers
    # Clients turn whatever they find under such a name into a number.
    assert {name for name in answer if name.lower().endswith("hlc")} <= {"serverHlc"}, dict(answer)
    if "serverHlc" in answer:
        check_number(answer["serverHlc"])
    if answer.http >= 400:
        _check_refusal(answer)
    return answer


def _check_refusal(answer: Answer) -> None:
    assert answer.http in STATUS_OF[answer["code"]], dict(answer)
    assert isinstance(answer["error"], str), dict(answer)
    assert answer["error"], dict(answer)
    assert answer["requestId"] == answer.headers["X-Request-Id"], dict(answer)
    assert set(answer) <= {"error", "code", "requestId", "details", "serverHlc"}, dict(answer)
    assert answer.http not in (429, 503) or int(answer.headers["Retry-After"]) >= 1, answer.headers
    for one in answer.get("details", ()):
        assert isinstance(one["message"], str), one
        assert one["message"], one


def _refuse_constant(constant: str) -> NoReturn:
    raise AssertionError(f"not JSON: {constant}")


def check_number(text: Any) -> int:
    """A stamp on this wire is a string of digits."""
    assert isinstance(text, str), text
    assert NUMBER.fullmatch(text), text
    assert int(text) <= LARGEST, text
    return int(text)


def check_entry(entry: Mapping[str, Any]) -> None:
    """What every entry has, and that its id is true unless it says otherwise."""
    assert {"op", "table", "rowId", "clientId", "columns", "hlc", "deltaId"} <= set(entry), entry
    assert set(entry) <= {"op", "table", "rowId", "clientId", "columns", "hlc", "deltaId", "resolved"}, entry
    assert entry["op"] in ("INSERT", "UPDATE", "DELETE"), entry
    assert entry["op"] != "DELETE" or entry["columns"] == [], entry
    assert HEX.fullmatch(entry["deltaId"]), entry
    assert entry.get("resolved", True) is True, entry
    check_number(entry["hlc"])
    for column in entry["columns"]:
        # A client that binds `undefined` fails.
        assert "value" in column, entry
    assert "resolved" in entry or delta_id(entry) == entry["deltaId"], entry


class Deltas:
    """A client of one server, or of two nodes in turn, with or without a token. It may be used by many threads.

    A call returns the body of its answer, which must have the HTTP status `expect`; None takes any.
    """

    def __init__(self, server: Servers, token: str = "") -> None:
        self.server = server
        self._token = token
        self._lock = threading.Lock()
        self._dial()

    def _dial(self) -> None:
        self._turns = itertools.cycle(self.nodes)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        # Connections are kept, however many: the pool might close an idle one just as a thread has been given it.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=None)
        self._http = httpx.Client(timeout=PATIENCE_SECONDS, limits=limits, headers=headers)

    @property
    def nodes(self) -> Sequence[RunningServer]:
        """Each server process."""
        return self.server.each if isinstance(self.server, Nodes) else [self.server]

    def with_token(self, token: str) -> Deltas:
        """Another client of the same server; the caller closes it."""
        return Deltas(self.server, token)

    def close(self) -> None:
        self._http.close()

    def redial(self) -> None:
        """Connections to servers that were killed are of no use."""
        self.close()
        self._dial()

    def crash(self) -> None:
        """Kill every process and start them again."""
        self.server.kill()
        self.server.start()
        self.redial()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def send(
        self,
        method: str,
        target: str,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Make a request of the next node, whatever comes of it; content in pieces is sent chunked."""
        with self._lock:
            port = next(self._turns).port
        return self._http.request(method, f"http://{HOST}:{port}{target}", content=content, headers=headers)

    def call(
        self,
        method: str,
        target: str,
        content: bytes | Iterable[bytes] | None = None,
        *,
        expect: int | None = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Make a request and hold its answer against the rules."""
        answer = read_answer(self.send(method, target, content, headers))
        assert expect is None or answer.http == expect, (method, target, answer.http, answer.body)
        return answer

    def post(self, target: str, body: Any, *, expect: int | None = 200, **options: Any) -> Answer:
        """Post a JSON body."""
        return self.call("POST", target, json.dumps(body).encode(), expect=expect, **options)

    def push(
        self, gateway: str, deltas: Sequence[Any], *, client: Any = CLIENT, expect: int | None = 200, **fields: Any
    ) -> Answer:
        """Push deltas as they are; any other field of the body may be given."""
        body = {"clientId": client, "deltas": list(deltas)} | fields
        answer = self.push_raw(gateway, json.dumps(body).encode(), expect=expect)
        if answer.http == 200:
            check_pushed(answer, deltas)
        return answer

    def push_raw(
        self, gateway: str, body: bytes | Iterable[bytes], *, expect: int | None = 200, **options: Any
    ) -> Answer:
        """Push these bytes."""
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        return self.call("POST", path(gateway, "push"), body, expect=expect, headers=headers, **options)

    def pull(
        self,
        gateway: str,
        since: int | str = 0,
        *,
        client: str = "reader",
        expect: int | None = 200,
        **parameters: Any,
    ) -> Answer:
        """Pull one page."""
        query = {"since": since, "clientId": client} | parameters
        return self.pull_query(gateway, urlencode(query, quote_via=quote), expect=expect)

    def pull_query(self, gateway: str, query: str, *, expect: int | None = 200) -> Answer:
        """Pull with this query, letter for letter."""
        answer = self.call("GET", f"{path(gateway, 'pull')}?{query}", expect=expect)
        if answer.http == 200:
            assert set(answer) >= {"deltas", "serverHlc", "hasMore"}, dict(answer)
            assert isinstance(answer["hasMore"], bool), dict(answer)
            assert answer["deltas"] or not answer["hasMore"], dict(answer)
            for entry in answer["deltas"]:
                check_entry(entry)
        return answer

    def log(self, gateway: str, since: int | str = 0, *, client: str = "reader", limit: int = 10_000) -> list[Message]:
        """Every entry from a cursor on, page by page."""
        page = self.pull(gateway, since, client=client, limit=limit)
        entries: list[Message] = page["deltas"]
        while page["hasMore"]:
            assert len(page["deltas"]) <= limit, len(page["deltas"])
            page = self.pull(gateway, page["serverHlc"], client=client, limit=limit)
            entries += page["deltas"]
        return entries

    def rows(self, gateway: str) -> dict[tuple[str, str], Message]:
        """What a fresh reader has in its tables: each live row's columns; None is the same as absent."""
        found: dict[tuple[str, str], Message] = {}
        for entry in self.log(gateway, client=fresh("reader")):
            key = (entry["table"], entry["rowId"])
            if entry["op"] == "DELETE":
                found.pop(key, None)
                continue
            row = found.setdefault(key, {})
            row |= {column["column"]: column["value"] for column in entry["columns"]}
        return {key: {name: cell for name, cell in row.items() if cell is not None} for key, row in found.items()}

    def schema(self, gateway: str, table: str, *, expect: int | None = 200, **types: str) -> Answer:
        """Register the columns of a table."""
        body = {"table": table, "columns": [{"name": name, "type": kind} for name, kind in types.items()]}
        return self.post(path(gateway, "schema"), body, expect=expect)

    def gauges(self, gateway: str) -> Answer:
        """How much there is of a gateway."""
        return self.call("GET", path(gateway, "metrics"))


def check_pushed(answer: Answer, deltas: Sequence[Any]) -> None:
    """What everyone is told whose deltas are on disk."""
    assert set(answer) >= {"serverHlc", "accepted", "deltas", "duplicates"}, dict(answer)
    assert answer["accepted"] == len(deltas), dict(answer)
    assert 0 <= answer["duplicates"] <= answer["accepted"], dict(answer)
    assert type(answer["accepted"]) is type(answer["duplicates"]) is int, dict(answer)
    assert len(answer["deltas"]) <= answer["accepted"] - answer["duplicates"], dict(answer)
    ids = [one["deltaId"] for one in deltas]
    assert [one for one in dict.fromkeys(ids) if one in answer.ids] == answer.ids, dict(answer)
    for one in deltas:
        assert answer.hlc > int(one["hlc"]), (dict(answer), one)
    for entry in answer["deltas"]:
        check_entry(entry)


def path(gateway: str, what: str, version: str = "/v1") -> str:
    """Where an operation of a gateway is."""
    if what in ("schema", "sync-rules", "flush", "metrics", "tables", "rows", "entries"):
        return f"{version}/admin/{what}/{quote(gateway, safe='')}"
    return f"{version}/sync/{quote(gateway, safe='')}/{what}"


@contextmanager
def serving(
    folder: Path,
    store: str = "sqlite",
    *,
    env: Mapping[str, str] | None = None,
    clean: bool = True,
    token: str = "",
    nodes: int = 2,
    **settings: object,
) -> Iterator[Deltas]:
    """A server with SEMEL_ settings, or nodes over PostgreSQL; unless `clean` is off, their logs must show no fault."""
    variables = {f"SEMEL_{name}": str(value) for name, value in settings.items()} | dict(env or {})
    server = servers(folder, store, variables, nodes)
    with server:
        client = Deltas(server, token)
        try:
            yield client
        finally:
            client.close()
    if clean:
        check_log(server)


def servers(folder: Path, store: str, env: Mapping[str, str] | None = None, nodes: int = 2) -> Servers:
    """What serves a store: two nodes over PostgreSQL, one process over the others. Not started."""
    variables = dict(env or {})
    if store == "postgres":
        return Nodes(folder, nodes, env=variables | {"SEMEL_STORE": fresh_url(lanes="3")})
    return RunningServer(folder, env=variables | ({"SEMEL_STORE": "memory:"} if store == "memory" else {}))
