"""Keys and tokens for the tests: a JWKS file with one HS256 key, JWTs signed with it, and a file of hashed tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jwt

ALGORITHM = "HS256"
LIFE_SECONDS = 600


class Issuer:
    """Signs JWTs with a key of its own and writes the key set that a server verifies them with."""

    def __init__(self, folder: Path) -> None:
        self.secret = secrets.token_bytes(64)
        encoded = _base64(self.secret)
        self.keys = folder / "keys.json"
        self.keys.write_text(
            json.dumps({"keys": [{"kty": "oct", "kid": "test", "alg": ALGORITHM, "use": "sig", "k": encoded}]})
        )

    def token(self, subject: str, /, *names: str, prefixes: Sequence[str] = (), **claims: Any) -> str:
        """A token for these partitions; a claim given as None is left out."""
        given: dict[str, Any] = {"sub": subject, "exp": int(time.time()) + LIFE_SECONDS}
        given |= {"allowed_partitions": list(names), "allowed_partition_prefixes": list(prefixes)} | claims
        return self.signed({name: value for name, value in given.items() if value is not None})

    def signed(self, claims: Mapping[str, Any], key: bytes | None = None, algorithm: str = ALGORITHM) -> str:
        """These claims and no others, signed with the issuer's key or another one."""
        return jwt.encode(dict(claims), self.secret if key is None else key, algorithm, headers={"kid": "test"})


def unsigned(client_id: str) -> str:
    """A token that says it needs no signature."""
    claims = {"sub": client_id, "exp": int(time.time()) + LIFE_SECONDS}
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
    return ".".join([_base64(part) for part in parts] + [""])


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def token_file(
    folder: Path,
    entries: Mapping[str, tuple[str, Sequence[str], Sequence[str]]],
    namespaces: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """A file of hashed tokens: for each name the token, its roles and its scopes, and the one namespace of some."""
    tables = [
        f'[[token]]\nname = "{name}"\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        f"roles = {json.dumps(list(roles))}\n"
        + (f"scopes = {json.dumps(list(scopes))}\n" if scopes else "")
        + (f"namespaces = {json.dumps([namespaces[name]])}\n" if name in namespaces else "")
        for name, (token, roles, scopes) in entries.items()
    ]
    path = folder / "tokens.toml"
    path.write_text("\n".join(tables))
    return path
