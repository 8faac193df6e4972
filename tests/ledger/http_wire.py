"""The HTTP wire: each method of the services has its path here, and its answer is read as proto3 JSON.

Statuses, content types and headers are held against the published table as each answer arrives.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx

from tests.harness.server import HOST
from tests.ledger.words import PATIENCE_SECONDS, Answer, Message, Refused, plain

ROOT = "/ledger/v1/orgs"
STATUS_OF = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""Of a problem."""
STATUS_OF_ERROR = {
    "WRITE_ERROR_CODE_KEY_EXISTS": 412,
    "WRITE_ERROR_CODE_KEY_NOT_FOUND": 412,
    "WRITE_ERROR_CODE_VERSION_MISMATCH": 412,
    "WRITE_ERROR_CODE_VALUE_MISMATCH": 412,
    "WRITE_ERROR_CODE_ALREADY_COMMITTED": 200,
    "WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED": 409,
    "WRITE_ERROR_CODE_SEQUENCE_GAP": 409,
}
"""Of a write that was judged."""
IDLE_SECONDS = 30.0
"""Less than the server waits for the next request of a connection: else it may hang up just as one is sent."""
SCOPE_ERRORS = ("3100", "3101")
"""An organization or a vault that is not there."""


class Route(NamedTuple):
    """A request of a method over HTTP."""

    method: str
    path: str
    query: Mapping[str, Any] = {}
    body: Any = None

    @property
    def target(self) -> str:
        given = {name: value for name, value in self.query.items() if value not in (None, "", False)}
        return self.path + ("?" + urlencode(given, quote_via=quote) if given else "")


class HttpWire:
    """A client of one server, or of several nodes in turn. It may be used by many threads."""

    def __init__(self, ports: Sequence[int], headers: Mapping[str, str] | None = None) -> None:
        self.ports = ports
        self._turns = itertools.cycle(ports)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_SECONDS)
        self._client = httpx.Client(timeout=PATIENCE_SECONDS, limits=limits, headers=dict(headers or {}))

    def ask(self, rpc: str, request: Message, metadata: Sequence[tuple[str, str]] = ()) -> Answer:
        """Make a call; the request and the answer are proto3 JSON."""
        route = ROUTES[rpc](request)
        response = self.send(route, dict(metadata))
        is_judged = rpc in ("Write", "BatchWrite")
        if response.status_code >= 400 and not (is_judged and is_json(response)):
            if response.status_code == 404 and rpc in ABSENT and not is_scope_error(response):
                return Answer(ABSENT[rpc](response), headers=response.headers)
            raise problem_of(response)
        body = response.json() if response.content else {}
        if is_judged:
            check_judged(response, body)
        else:
            assert response.status_code in (200, 201, 204), response.text
        is_replay = response.headers.get("Idempotency-Replayed") == "true"
        return Answer(plain(body), is_replay=is_replay, headers=response.headers)

    def send(self, route: Route, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Make the request, whatever comes of it; a body that is bytes or text is sent as it is."""
        body = route.body if isinstance(route.body, bytes | str | None) else json.dumps(route.body)
        given = {"Content-Type": "application/json"} if body is not None else {}
        url = f"http://{HOST}:{next(self._turns)}{route.target}"
        response = self._client.request(route.method, url, content=body, headers=given | dict(headers or {}))
        assert response.headers["X-Request-Id"], response.headers
        return response

    def get(self, path: str, **query: Any) -> Message:
        """A document that only HTTP has; 200."""
        response = self.send(Route("GET", path, query))
        if response.status_code != 200:
            raise problem_of(response)
        body: Message = response.json()
        return body

    def patch(self, path: str, **fields: Any) -> Message:
        """Change settings; 200."""
        response = self.send(Route("PATCH", path, body=fields))
        if response.status_code != 200:
            raise problem_of(response)
        body: Message = response.json()
        return body

    @contextmanager
    def watch(self, request: Message, headers: Mapping[str, str] | None = None) -> Iterator[Iterator[Message]]:
        """The announcements of blocks as they come; ends the stream at the end."""
        route = Route("GET", f"{place_path(request)}/blocks:watch", {"from": request.get("startHeight")})
        url = f"http://{HOST}:{next(self._turns)}{route.target}"
        with self._client.stream("GET", url, headers=dict(headers or {})) as response:
            if response.status_code != 200:
                response.read()
                raise problem_of(response)
            assert response.headers["Content-Type"].split(";")[0] == "text/event-stream", response.headers
            yield _announced(response)

    def close(self) -> None:
        self._client.close()


def _announced(response: httpx.Response) -> Iterator[Message]:
    """Each event's data; its id is the height."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line and "data" in fields:
            announcement = json.loads(fields["data"])
            assert fields["id"] == announcement["height"], fields
            yield announcement
        if not line:
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def is_json(response: httpx.Response) -> bool:
    return str(response.headers.get("Content-Type", "")).split(";")[0] == "application/json"


def is_scope_error(response: httpx.Response) -> bool:
    return not is_json(response) and str(response.json().get("error_code")) in SCOPE_ERRORS


def problem_of(response: httpx.Response) -> Refused:
    """A problem document, held against the rules that all of them share."""
    assert response.headers["Content-Type"].split(";")[0] == "application/problem+json", response.text
    body = response.json()
    assert response.status_code == STATUS_OF[body["code"]] or response.status_code == 405, (response.status_code, body)
    assert body["status"] == response.status_code, body
    assert isinstance(body["error_code"], str), body
    assert body["error_code"], body
    assert body["title"], body
    details = {
        name: member for name, member in body.items() if name in ("error_code", "retry_after_ms", "retry", "context")
    }
    return Refused(body["code"], body.get("detail", body["title"]), details)


def check_judged(response: httpx.Response, body: Message) -> None:
    """The status of a write's answer is that of its body."""
    assert is_json(response), response.headers
    assert len(body) == 1, body
    if "success" in body:
        assert response.status_code == 200, (response.status_code, body)
    else:
        assert response.status_code == STATUS_OF_ERROR[body["error"]["code"]], (response.status_code, body)


# -- the paths --------------------------------------------------------------------------------------------------------


def place_path(request: Message) -> str:
    """The path of a scope."""
    vault = f"/vaults/{request['vault']['slug']}" if "vault" in request else ""
    return f"{ROOT}/{request['organization']['slug']}{vault}"


def escaped(name: str) -> str:
    """A name as one part of a path; dots alone would be taken for steps."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def _org_path(request: Message) -> str:
    return f"{ROOT}/{request['slug']['slug']}"


def _written(what: str) -> Callable[[Message], Route]:
    def route(request: Message) -> Route:
        body = {name: value for name, value in request.items() if name not in ("organization", "vault")}
        return Route("POST", f"{place_path(request)}/{what}", body=body)

    return route


def _entity(request: Message, **query: Any) -> Route:
    return Route("GET", f"{place_path(request)}/entities/{escaped(request['key'])}", query)


def _listed(what: str, **names: str) -> Callable[[Message], Route]:
    """A list; `names` are fields that the query calls otherwise."""

    def route(request: Message) -> Route:
        left = {name: value for name, value in request.items() if name not in ("organization", "vault")}
        query = {names.get(name, name): "true" if value is True else value for name, value in left.items()}
        return Route("GET", f"{place_path(request)}/{what}", query)

    return route


def _relationships(request: Message) -> Route:
    """Over HTTP a trusted height alone asks for the chain."""
    asked = {name: value for name, value in request.items() if name != "includeChainProof"}
    return _listed("relationships", includeProof="proof")(asked)


def _state(request: Message) -> Route:
    return Route("GET", f"{place_path(request)}/clients/{escaped(request['clientId']['id'])}/state")


def _read_many(request: Message) -> Route:
    body = {name: value for name, value in request.items() if name in ("keys", "consistency")}
    return Route("POST", f"{place_path(request)}/entities:batchRead", body=body)


def _vault_made(request: Message) -> Route:
    body = {name: value for name, value in request.items() if name != "organization"}
    return Route("POST", f"{place_path(request)}/vaults", body=body)


ROUTES: dict[str, Callable[[Message], Route]] = {
    "Write": _written("writes"),
    "BatchWrite": _written("batches"),
    "GetClientState": _state,
    "Read": lambda asked: _entity(asked, consistency=asked.get("consistency")),
    "HistoricalRead": lambda asked: _entity(asked, atHeight=asked["atHeight"]),
    "VerifiedRead": lambda asked: _entity(
        asked, proof="true", atHeight=asked.get("atHeight"), trustedHeight=asked.get("trustedHeight")
    ),
    "BatchRead": _read_many,
    "ListEntities": _listed("entities", keyPrefix="prefix"),
    "ListRelationships": _relationships,
    "ListResources": _listed("resources", resourceType="type"),
    "GetBlock": lambda asked: Route("GET", f"{place_path(asked)}/blocks/{asked['height']}"),
    "GetBlockRange": lambda asked: Route(
        "GET", f"{place_path(asked)}/blocks", {"from": asked["startHeight"], "to": asked["endHeight"]}
    ),
    "GetTip": lambda asked: Route("GET", f"{place_path(asked)}/tip"),
    "CreateOrganization": lambda asked: Route("POST", ROOT, body=asked),
    "GetOrganization": lambda asked: Route("GET", _org_path(asked)),
    "ListOrganizations": lambda asked: Route("GET", ROOT, asked),
    "DeleteOrganization": lambda asked: Route("DELETE", _org_path(asked)),
    "CreateVault": _vault_made,
    "GetVault": lambda asked: Route("GET", place_path(asked)),
    "ListVaults": lambda asked: Route(
        "GET", f"{place_path(asked)}/vaults", {name: asked.get(name) for name in ("limit", "pageToken")}
    ),
    "DeleteVault": lambda asked: Route("DELETE", place_path(asked)),
}


def _nothing(response: httpx.Response) -> Message:
    problem_of(response)
    return {}


def _absence(response: httpx.Response) -> Message:
    """With a proof, absence has a document; without one, a problem."""
    body: Message = response.json() if is_json(response) else _nothing(response)
    return body


ABSENT: dict[str, Callable[[httpx.Response], Message]] = {
    "Read": _nothing,
    "HistoricalRead": _nothing,
    "VerifiedRead": _absence,
    "GetBlock": _nothing,
}
"""Methods that say over gRPC with a missing field what HTTP says with 404."""
