"""The words of the ledger tests: places, operations, keys, and what a server's refusal is, whichever way it came.

Requests and answers are written as proto3 JSON on both wires, so a test says what it means once.
"""

from __future__ import annotations

import base64
import itertools
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

WIRES = ("http", "grpc")
PATIENCE_SECONDS = 60.0
"""How long any one answer may take before the test gives up on it."""
ZERO_HASH = bytes(32)
EMPTY_STATE = bytes.fromhex("0e89e7ed74c9a5944c886585d634e3c68f4dccd0a31968fe52d6df0873ccdec6")
"""The state root of a scope without entities."""
LARGEST = 2**64 - 1

Message = dict[str, Any]

_EMPTY_MAPS: tuple[tuple[str, Message], ...] = (("details", {}), ("context", {}))
_numbers = itertools.count(1)


class Place(NamedTuple):
    """A scope: a vault, or the organization itself."""

    org: int
    vault: int = 0

    @property
    def fields(self) -> Message:
        """As a request names it."""
        vault = {"vault": {"slug": str(self.vault)}} if self.vault else {}
        return {"organization": {"slug": str(self.org)}} | vault

    @property
    def whole(self) -> Place:
        """The scope of the organization that this one is in."""
        return Place(self.org)


class Refused(Exception):  # noqa: N818 - a refusal is an answer
    """A gRPC status that is not OK, or a problem document."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {message} {dict(details)}")
        self.code = code
        self.message = message
        self.details = details
        """`error_code` and what else there is for machines; over gRPC empty if there is no such trailer."""

    @property
    def error_code(self) -> str:
        return str(self.details.get("error_code", ""))


@contextmanager
def refused(code: str, error_code: str = "") -> Iterator[pytest.ExceptionInfo[Refused]]:
    """What is called inside must be refused with this status, and this number if one is named."""
    with pytest.raises(Refused) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert error_code in ("", caught.value.error_code), caught.value


class Answer(Message):
    """The body of an answer as proto3 JSON, without empty lists and maps, and whether it was marked as a replay."""

    def __init__(self, body: Mapping[str, Any], *, is_replay: bool = False, headers: Mapping[str, str]) -> None:
        super().__init__(body)
        self.is_replay = is_replay
        self.headers = headers


def plain(value: Any) -> Any:
    """Without empty lists and maps of texts: an answer may print them or leave them out."""
    if isinstance(value, dict):
        kept = {name: member for name, member in value.items() if member != [] and (name, member) not in _EMPTY_MAPS}
        return {name: plain(member) for name, member in kept.items()}
    return [plain(member) for member in value] if isinstance(value, list) else value


def fresh(prefix: str = "x") -> str:
    """A name that no test of this run has had."""
    return f"{prefix}-{next(_numbers)}"


def new_key() -> bytes:
    """An idempotency key."""
    return secrets.token_bytes(16)


def text(content: bytes) -> str:
    """Bytes as JSON carries them."""
    return base64.b64encode(content).decode()


def data(encoded: str) -> bytes:
    """And back."""
    return base64.b64decode(encoded, validate=True)


# -- operations -------------------------------------------------------------------------------------------------------


def put(key: str, value: bytes | str = b"", *, expires_at: int | None = None, **condition: Any) -> Message:
    """Set an entity; a condition is given by its name: `not_exists=True`, `version=3`, `value_equals=b"x"`."""
    content = value.encode() if isinstance(value, str) else value
    fields: Message = {"key": key, "value": text(content)}
    if expires_at is not None:
        fields["expiresAt"] = str(expires_at)
    if condition:
        fields["condition"] = {_camel(name): _as_json(given) for name, given in condition.items()}
    return {"setEntity": fields}


def remove(key: str) -> Message:
    return {"deleteEntity": {"key": key}}


def expire(key: str, at: int = 1) -> Message:
    return {"expireEntity": {"key": key, "expiredAt": str(at)}}


def relate(resource: str, relation: str, subject: str) -> Message:
    return {"createRelationship": {"resource": resource, "relation": relation, "subject": subject}}


def unrelate(resource: str, relation: str, subject: str) -> Message:
    return {"deleteRelationship": {"resource": resource, "relation": relation, "subject": subject}}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return text(value)
    return value if isinstance(value, bool) else str(value)
