"""What a credential says of namespaces. That it is unknown in every other one, for every operation, message and method:
`tests/server/auth/test_access_matrix.py`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from semel.client import Client
from semel.kernel.namespace import DEFAULT
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import Issuer, token_file

ANYWHERE, RED = "the-token-of-all", "the-token-of-red"
SECRET = "the-secret-of-the-clients-of-deltas-0123"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Site:
    """A server with two namespaces besides the default one, and credentials of all kinds."""

    def __init__(self, folder: Path) -> None:
        self.issuer = Issuer(folder)
        self.tokens = token_file(folder, {"all": (ANYWHERE, ["admin"], [])})
        limited = f'\n[[token]]\nname = "red"\nsha256 = "{digest(RED)}"\nroles = ["admin"]\nnamespaces = ["red"]\n'
        self.tokens.write_text(self.tokens.read_text() + limited)
        env = {
            "SEMEL_NAMESPACES": "red,blue",
            "SEMEL_STORE": "memory:",
            "SEMEL_TOKENS": str(self.tokens),
            "SEMEL_JWT_KEYS": str(self.issuer.keys),
            "SEMEL_DELTAS_JWT_SECRET": SECRET,
        }
        self.server = RunningServer(folder / "data", env=env, grpc=True)

    def get(self, path: str, token: str) -> int:
        return httpx.get(self.server.url + path, headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("credentials"))
    with made.server:
        yield made


PULL = "/v1/sync/g/pull?since=0&clientId=c"


@pytest.mark.parametrize(
    ("claim", "known"),
    [(None, [200, 200]), ("red", [200, 401]), (["blue", "red"], [200, 200]), ([], [401, 401]), (7, [401, 401])],
)
def test_a_jwt_is_known_in_the_namespaces_that_it_claims(site: Site, claim: Any, known: list[int]) -> None:
    claims = {"sub": "u", "exp": int(time.time()) + 600} | ({} if claim is None else {"namespaces": claim})
    token = site.issuer.signed(claims)
    assert [site.get(f"/ns/{name}/v1/streams", token) for name in ("red", "blue")] == known


def test_a_client_token_of_deltas_too(site: Site) -> None:
    def answers(**more: Any) -> list[int]:
        claims = {"sub": "c", "gw": "g", "exp": int(time.time()) + 600} | more
        token = jwt.encode(claims, SECRET, "HS256")
        return [site.get(base + PULL, token) for base in ("/ns/red", "/ns/blue", "")]

    assert answers() == [200, 200, 200]
    assert answers(namespaces=["red", DEFAULT]) == [200, 401, 200]
    assert answers(namespaces=7) == [401, 401, 401]


def test_a_refused_credential_is_in_the_audit_log_of_that_namespace(site: Site) -> None:
    assert site.get("/ns/blue/v1/stream/only-here", RED) == 401
    logs = {name: site.server.data / f"ns_{name}" / "logs" / "audit.jsonl" for name in ("red", "blue")}
    eventually(lambda: "only-here" in log_of(logs["blue"]), "an audit line")
    assert "only-here" not in log_of(logs["red"])


def log_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_a_token_of_the_store_is_known_in_its_namespace_and_closes_all(tmp_path: Path) -> None:
    env = {"SEMEL_NAMESPACES": "red,blue"}
    data = tmp_path / "data"

    def answers(server: RunningServer, headers: dict[str, str]) -> list[int]:
        bases = ("/ns/red", "/ns/blue", "")
        return [httpx.get(f"{server.url}{base}/v1/streams", headers=headers).status_code for base in bases]

    with RunningServer(data, env=env) as server:
        assert answers(server, {}) == [200, 200, 200]
        with Client(server.url + "/ns/red") as client:
            made = client.tokens.create("red-admin", roles=["admin"])
        assert answers(server, {}) == [401, 401, 401]
        known = {"Authorization": f"Bearer {made.secret}"}
        assert answers(server, known) == [200, 401, 401]
        server.restart()
        assert answers(server, {}) == [401, 401, 401]
        assert answers(server, known) == [200, 401, 401]
