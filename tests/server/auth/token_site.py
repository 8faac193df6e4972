"""A server whose credentials are in its store, and an administrator who changes them over HTTP."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Any, NamedTuple

import httpx

from semel.client.tokens import new_secret
from semel.server.offline_tokens import OfflineTokens
from semel.server.settings_loader import make_settings
from tests.harness.server import RunningServer


class Issued(NamedTuple):
    """A token, and what the server says of it."""

    secret: str
    id: str
    facts: dict[str, Any]

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}


def first_token(url: str, data: str, name: str = "boss", *roles: str) -> Issued:
    """A token that is made without a server."""
    secret = new_secret()
    body = {"name": name, "sha256": sha256(secret.encode()).hexdigest(), "roles": list(roles or ("admin",))}
    facts = OfflineTokens(make_settings(store=url, data=data)).create(body)
    return Issued(secret, facts["id"], facts)


class TokenAdmin:
    """Calls one server with an administrator's token; remembers every secret that it has made."""

    def __init__(self, server: RunningServer, boss: Issued | None = None) -> None:
        self.server = server
        self.boss = boss
        self.secrets = [] if boss is None else [boss.secret]

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {} if self.boss is None else self.boss.bearer
        return httpx.request(method, f"{self.server.url}/v1/tokens{path}", headers=headers, json=body)

    def create(self, name: str, **members: Any) -> Issued:
        return self._issued("", {"name": name, **members})

    def rotate(self, token_id: str, **members: Any) -> Issued:
        return self._issued(f"/{token_id}/rotate", members)

    def revoke(self, token_id: str) -> dict[str, Any]:
        answer = self.call("POST", f"/{token_id}/revoke")
        assert answer.status_code == 200, answer.text
        facts: dict[str, Any] = answer.json()
        return facts

    def list(self) -> list[dict[str, Any]]:
        answer = self.call("GET", "")
        assert answer.status_code == 200, answer.text
        tokens: list[dict[str, Any]] = answer.json()["tokens"]
        return tokens

    def _issued(self, path: str, members: dict[str, Any]) -> Issued:
        secret = f"canary-{secrets.token_hex(16)}"
        self.secrets.append(secret)
        answer = self.call("POST", path, {"sha256": sha256(secret.encode()).hexdigest(), **members})
        assert answer.status_code == 201, answer.text
        return Issued(secret, answer.json()["id"], answer.json())


def status(server: RunningServer, token: Issued | None, path: str = "/v1/streams") -> int:
    """What a caller is answered who lists the streams."""
    return httpx.get(server.url + path, headers=None if token is None else token.bearer).status_code
