"""One server with things of each kind in three namespaces, callers with every role and reach, and one call of every
operation.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import jwt

from semel.client import Client
from semel.kernel.namespace import DEFAULT
from semel.server.openapi.operation import HttpOperation
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import Issuer, token_file
from tests.server.auth.matrix_requests import BODIES, NAMES, QUERIES, WEBSOCKET, WRITE

NOTHING: Mapping[str, str] = MappingProxyType({})
ROLES = ("read", "write", "work", "admin", "read, write", "read, work")
"""What a token may have; the last two are for operations that need both."""
REACHES = ("all", "own", "foreign")
HOME, AWAY = "red", "blue"
"""Namespaces besides the default one: that of the callers of one namespace, and one in which none of them is known."""
DELTAS_SECRET = "the-secret-of-the-clients-of-deltas-0123"


class MatrixCaller(NamedTuple):
    """A token with one role and one reach; without a role it is no token, or one that the server does not know."""

    name: str
    token: str
    role: str = ""
    reach: str = ""
    home: str = ""
    """The one namespace in which the token is known; empty for all."""


class MatrixAnswer(NamedTuple):
    """A status, and the body of an answer that ends."""

    status: int
    body: bytes
    headers: dict[str, str]
    """But for those that differ from one answer to the next."""


class MatrixSite:
    """The server, its callers, and the names that operations are called with."""

    def __init__(
        self, server: RunningServer, callers: dict[str, list[MatrixCaller]], known: dict[str, dict[str, str]]
    ) -> None:
        self.server = server
        self.callers = callers
        """By the namespace that they are asked in: those of `default` are known in every one, the others in theirs."""
        self.mighty = list[MatrixCaller]()
        """Administrators without scopes that are known in one namespace each, one for each kind of credential."""
        self.known = known
        """The names of things, by namespace."""
        self._connection = http.client.HTTPConnection(HOST, server.port, timeout=60)

    def ask(
        self,
        one: HttpOperation,
        method: str,
        caller: MatrixCaller,
        namespace: str = DEFAULT,
        names: Mapping[str, str] = NOTHING,
    ) -> MatrixAnswer:
        """What a caller is answered, for the things of the namespace or those that are named."""
        known = self.known[namespace] | NAMES.get(one.id, {}) | dict(names)
        path = re.sub(r"\{([^}]*)\}", lambda found: known.get(found[1], "own-x"), base_of(namespace) + one.path)
        base = one.id.removesuffix("Unversioned")
        headers = {"Authorization": f"Bearer {caller.token}"} if caller.token else {}
        headers |= WEBSOCKET if one.is_websocket and one.id != "readEvents" else {}
        content = None
        if one.body is not None:
            is_content = "Stream" in one.id and "Subscription" not in one.id
            headers["Content-Type"] = "text/plain" if is_content else "application/json"
            body = BODIES.get(base, {}) | ({"clientId": caller.name} if base == "push" else {})
            if "rite" in one.id and "/ledger" in one.path:
                body = self._write(one.id, caller)
            content = json.dumps(body)
        return self._exchange(method, path + QUERIES.get(base, ""), headers, content)

    def send(self, method: str, path: str, caller: MatrixCaller) -> MatrixAnswer:
        """What a caller is answered at a path, which is sent as it is."""
        return self._exchange(method, path, {"Authorization": f"Bearer {caller.token}"}, None)

    def _exchange(self, method: str, path: str, headers: dict[str, str], content: str | None) -> MatrixAnswer:
        self._connection.request(method, path, content, headers)
        answer = self._connection.getresponse()
        is_endless = answer.status == 101 or "watch" in path
        body = b"" if is_endless else answer.read()
        if is_endless:
            self._connection.close()
        changing = ("date", "x-request-id")
        return MatrixAnswer(
            answer.status, body, {n.lower(): v for n, v in answer.getheaders() if n.lower() not in changing}
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _write(self, operation: str, caller: MatrixCaller) -> dict[str, Any]:
        given = {"clientId": caller.name or "c", "idempotencyKey": str(uuid4()), **WRITE}
        if operation.endswith("Many"):
            return {"transactions": [given]}
        return given | {"operations": [{"operations": WRITE["operations"]}]} if operation.endswith("Batch") else given


def base_of(namespace: str) -> str:
    """What stands before the paths of a namespace."""
    return "" if namespace == DEFAULT else f"/ns/{namespace}"


def _callers(home: str = "") -> list[MatrixCaller]:
    """A caller with each role and reach."""
    named = [(role, reach, f"{role.replace(', ', '-')}-{reach}") for role in ROLES for reach in REACHES]
    prefix = f"{home}-" if home else ""
    return [MatrixCaller(prefix + name, secrets.token_hex(16), role, reach, home) for role, reach, name in named]


@contextmanager
def matrix_site(folder: Path) -> Iterator[MatrixSite]:
    """The server, filled by an administrator."""
    boss = MatrixCaller("boss", secrets.token_hex(16), "admin", "all")
    anywhere, at_home = _callers(), _callers(HOME)
    root = MatrixCaller("root", secrets.token_hex(16), "admin", "all", DEFAULT)
    issuer = Issuer(folder)
    env = {
        "SEMEL_NAMESPACES": f"{HOME},{AWAY}",
        "SEMEL_STORE": "memory:",
        "SEMEL_JWT_KEYS": str(issuer.keys),
        "SEMEL_DELTAS_JWT_SECRET": DELTAS_SECRET,
    }
    reaches: dict[str, list[str]] = {"all": [], "own": ["*:own*"], "foreign": ["*:foreign*"]}

    def write_tokens(ledgers: dict[str, dict[str, str]]) -> Path:
        entries = {}
        for one in (boss, root, *anywhere, *at_home):
            places = ledgers.get(one.home or DEFAULT, {}) if one.reach == "own" else {}
            scopes = [f"ledger:{places[name]}" for name in ("org", "other_org") if name in places]
            entries[one.name] = (one.token, one.role.split(", "), reaches[one.reach] + scopes)
        return token_file(folder, entries, {one.name: one.home for one in (root, *at_home)})

    with RunningServer(folder / "data", env=env | {"SEMEL_TOKENS": str(write_tokens({}))}, grpc=True) as server:
        known = {name: _fill(server.url, boss.token, name) for name in (DEFAULT, HOME, AWAY)}
        write_tokens(known)  # a ledger gives numbers to its places, so that scopes can name them only now
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: "SIGHUP" in server.output.read_text(), "the tokens are read")
        strangers = [MatrixCaller("none", ""), MatrixCaller("unknown", "not-known")]
        site = MatrixSite(server, {DEFAULT: strangers + anywhere, HOME: strangers + at_home}, known)
        site.mighty = [root, *(_stored(server.url, boss.token, name) for name in (DEFAULT, HOME)), *_signed(issuer)]
        yield site
        site.close()


def _stored(url: str, token: str, namespace: str) -> MatrixCaller:
    """An administrator whose token is in the store of a namespace."""
    with Client(url + base_of(namespace), token=token) as client:
        made = client.tokens.create("keeper", roles=["admin"])
    assert made.secret is not None
    return MatrixCaller(f"stored-{namespace}", made.secret, "admin", "all", namespace)


def _signed(issuer: Issuer) -> Iterator[MatrixCaller]:
    """Administrators with a JWT: of the server, and of the deltas."""
    claims = {"sub": "signer", "role": "admin", "exp": int(time.time()) + 3_600, "namespaces": [HOME]}
    yield MatrixCaller("jwt", issuer.signed(claims), "admin", "all", HOME)
    yield MatrixCaller(
        "deltas-jwt", jwt.encode(claims | {"gw": "own-gw"}, DELTAS_SECRET, "HS256"), "admin", "own", HOME
    )


def _fill(url: str, token: str, namespace: str) -> dict[str, str]:
    """Make things in a namespace; their contents name it. Returns the names that operations are called with."""
    mark, url = f"canary-{namespace}", url + base_of(namespace)
    with httpx.Client(base_url=url, timeout=30, headers={"Authorization": f"Bearer {token}"}) as client:

        def sent(method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
            answer = client.request(method, path, content=json.dumps(body), headers={"Content-Type": kind})
            assert answer.is_success, (method, path, answer.status_code, answer.text)
            return answer.json() if answer.content else None

        sent("PUT", "/v1/stream/own-s", [mark], "text/plain")
        sent("PUT", f"/v1/stream/own-{mark}", [1], "text/plain")
        sent("PUT", "/v1/stream/__ds/subscriptions/own-sub", BODIES["putSubscription"])
        sent("POST", "/v1/events", {"events": [{"id": "own-e1", "partitions": ["own-p"], "event": {"type": mark}}]})
        later = {"delay_ms": 86_400_000, "idempotency_key": "own-key"}  # so that no caller claims it
        job = sent("POST", "/v1/jobs", {"kind": mark, "queue": "own-q", **later})
        sent("PUT", "/v1/jobs/queues/own-q", {"max_inflight": 3})
        sent("PUT", "/v1/jobs/schedules/own-nightly", BODIES["putSchedule"] | {"kind": mark})
        places: dict[str, str] = {}
        for name in ("", "other_"):  # one for each wire: calls of the matrix delete them
            org = sent("POST", "/ledger/v1/orgs", {"name": mark})["slug"]["slug"]
            vault = sent("POST", f"/ledger/v1/orgs/{org}/vaults", {})["vault"]["slug"]
            for place in (f"orgs/{org}", f"orgs/{org}/vaults/{vault}"):
                sent("POST", f"/ledger/v1/{place}/writes", {"clientId": "boss", "sequence": 1, **WRITE})
            places |= {f"{name}org": org, f"{name}vault": vault}
        sent("POST", "/v1/admin/schema/own-gw", BODIES["saveSchema"])
        sent("POST", f"/v1/admin/schema/own-{mark}", BODIES["saveSchema"])
    return {
        "name": "own-s",
        "id": "own-sub",
        "stream": "own-s",
        "job_id": job["job_id"],
        "queue": "own-q",
        **places,
        "key": "k",
        "clientId": "boss",
        "height": "1",
        "txId": "00" * 16,
        "gateway": "own-gw",
        "token_id": "0" * 16,
    }
