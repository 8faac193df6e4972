"""`client.tokens`: the tokens in the store of a server, for administrators.

A new token is made here and the server gets its SHA-256 alone. A lost answer is no harm: the call is repeated with the
same hash, and takes effect once. After `OutcomeUnknown` the list tells whether the token is stored: revoke it
then, because the call that made it has forgotten it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from semel.client.identity import NamedCall
from semel.client.json_answer import Facts, flag
from semel.client.retry import ClientCaller, json_request
from semel.client.sync_calls import BlockingCalls, blocking
from semel.client.transport.http_transport import ClientRequest
from semel.kernel.json.fragment import dump

PATH = "/v1/tokens"
PREFIX = "semel_"
"""The beginning of every token that is made here, by which scanners for secrets find it."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A stored token as the server describes it; times are texts in UTC."""

    id: str
    name: str
    roles: tuple[str, ...]
    scopes: tuple[str, ...] | None
    """None for all."""
    state: str
    """`active`, `rotated` (it has a successor and ends soon), `expired` or `revoked`."""
    created_at: str
    ends_at: str | None
    revoked_at: str | None
    successor: str | None
    is_changed: bool = True
    """False if the call changed nothing, because it had taken effect before."""
    facts: Facts = field(default_factory=dict, compare=False, repr=False)
    """The whole answer."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just created. `secret` is the token itself, which is stored nowhere: keep it now."""

    info: TokenInfo
    secret: str = field(repr=False)


def new_secret() -> str:
    """A token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """What is stored of a token: its SHA-256 in hex digits."""
    return sha256(secret.encode()).hexdigest()


def token_info(facts: Facts) -> TokenInfo:
    """The description of a token, from its JSON."""
    scopes = facts["scopes"]
    return TokenInfo(
        id=str(facts["id"]),
        name=str(facts["name"]),
        roles=tuple(facts["roles"]),
        scopes=None if scopes is None else tuple(scopes),
        state=str(facts["state"]),
        created_at=str(facts["created_at"]),
        ends_at=facts["ends_at"],
        revoked_at=facts["revoked_at"],
        successor=facts["successor"],
        is_changed=flag(facts, "changed") if "changed" in facts else True,
        facts=facts,
    )


def create_body(
    secret: str, name: str, roles: Sequence[str], scopes: Sequence[str], expires_at: str | None
) -> dict[str, Any]:
    """The members of a request to create a token."""
    body: dict[str, Any] = {"name": name, "sha256": digest_of(secret)}
    body |= {"roles": list(roles)} if roles else {}
    body |= {"scopes": list(scopes)} if scopes else {}
    return body | ({} if expires_at is None else {"expires_at": expires_at})


def rotate_body(secret: str, overlap_ms: int, expires_at: str | None) -> dict[str, Any]:
    """The members of a request to rotate a token."""
    body = {"sha256": digest_of(secret), "overlap_ms": overlap_ms}
    return body | ({} if expires_at is None else {"expires_at": expires_at})


class AsyncTokens:
    """The stored tokens of one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    async def create(
        self, name: str, *, roles: Sequence[str] = (), scopes: Sequence[str] = (), expires_at: str | None = None
    ) -> NewToken:
        """Create a token for a principal. Without roles it may read and write, without scopes everything."""
        secret = new_secret()
        return await self._new(PATH, secret, create_body(secret, name, roles, scopes, expires_at))

    async def rotate(self, token_id: str, *, overlap: float = 86_400.0, expires_at: str | None = None) -> NewToken:
        """Create the successor of a token, which ends after `overlap` seconds.

        Without `expires_at` the successor lives for as long as the token was made for.
        """
        secret = new_secret()
        return await self._new(
            _path(token_id, "/rotate"), secret, rotate_body(secret, round(overlap * 1e3), expires_at)
        )

    async def revoke(self, token_id: str) -> TokenInfo:
        """End a token at once; what is connected with it is disconnected."""
        path = _path(token_id, "/revoke")
        return await self._caller.facts_as(token_info, ClientRequest("POST", path), NamedCall("POST", path))

    async def get(self, token_id: str) -> TokenInfo:
        """One token."""
        return await self._caller.facts_as(token_info, ClientRequest("GET", _path(token_id)))

    async def list(self) -> list[TokenInfo]:
        """All stored tokens, the oldest first; those that ended lately too."""
        return await self._caller.facts_as(
            lambda facts: [token_info(one) for one in facts["tokens"]], ClientRequest("GET", PATH)
        )

    async def _new(self, path: str, secret: str, body: dict[str, Any]) -> NewToken:
        request = json_request("POST", path, dump(body))
        info = await self._caller.facts_as(token_info, request, NamedCall("POST", path))
        return NewToken(info, secret)


def _path(token_id: str, call: str = "") -> str:
    return f"{PATH}/{quote(token_id, safe='')}{call}"


class Tokens(BlockingCalls[AsyncTokens]):
    """The stored tokens of one server, from synchronous code."""

    create = blocking(AsyncTokens.create)
    rotate = blocking(AsyncTokens.rotate)
    revoke = blocking(AsyncTokens.revoke)
    get = blocking(AsyncTokens.get)
    list = blocking(AsyncTokens.list)
