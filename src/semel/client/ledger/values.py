"""Immutable results of calls to the ledger. `facts` is the server's JSON that a value was made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from semel.client.errors import InvalidArgumentError

T = TypeVar("T")
ROOT = "/ledger/v1/orgs"
_SLUG = re.compile(r"0|[1-9][0-9]{0,19}")


class PlaceName(NamedTuple):
    """An organization, or a vault in it, by their numbers."""

    org: str
    vault: str | None = None

    @classmethod
    def of(cls, org: str | int, vault: str | int | None = None) -> PlaceName:
        """A place. Raises InvalidArgumentError for anything that is not a number."""
        name = cls(str(org), None if vault is None else str(vault))
        if not _SLUG.fullmatch(name.org) or (name.vault is not None and not _SLUG.fullmatch(name.vault)):
            raise InvalidArgumentError("An organization and a vault must be given by their numbers.")
        return name

    @property
    def path(self) -> str:
        """The path on the server."""
        return f"{ROOT}/{self.org}" + ("" if self.vault is None else f"/vaults/{self.vault}")

    @property
    def numbers(self) -> tuple[int, int]:
        """The two numbers, as in headers of blocks: vault 0 is the organization's own place."""
        return int(self.org), int(self.vault or 0)

    def named(self, collection: str, name: str, call: str = "") -> str:
        """The path of a named item, or of a call on it. Raises InvalidArgumentError."""
        try:
            return f"{self.path}/{collection}/{quote(name, safe='')}" + (f"/{call}" if call else "")
        except (UnicodeEncodeError, TypeError):
            raise InvalidArgumentError("Keys, names and client ids must be valid Unicode text.") from None

    def __str__(self) -> str:
        return self.org if self.vault is None else f"{self.org}/{self.vault}"


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    """A transaction that is in the chain."""

    height: int
    """The block, and the version of every key that it set."""
    tx_id: str
    """The transaction's id in hexadecimal."""
    sequence: int
    """The client's number of the transaction, given by the client or by the server."""
    replayed: bool
    """Whether it was committed before: nothing was executed now."""
    key: str | None = None
    """The idempotency key that was sent."""
    note: str | None = None
    """The server's sentence if it is committed under another sequence or key than it was sent with."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class EntityValue:
    """A key with its value."""

    key: str
    value: bytes
    version: int
    """The height of the block that last set it."""
    expires_at: int
    """Seconds since 1970; 0 means never."""
    height: int
    """The height of the chain that was read."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def text(self) -> str:
        """The value as text."""
        return self.value.decode()


class RelationshipName(NamedTuple):
    """A relationship."""

    resource: str
    relation: str
    subject: str


@dataclass(frozen=True, slots=True)
class ItemPage(Generic[T]):
    """A page of a list."""

    items: list[T]
    next_token: str
    """Pass it as `token` for the next page; empty at the end."""
    height: int | None = None
    """The height that all pages of the list show."""


@dataclass(frozen=True, slots=True)
class SequenceState:
    """The last committed transaction of a client in a place."""

    last_sequence: int
    """0 if the client is not known, or was forgotten."""
    last_tx_id: str | None
    last_height: int
    last_seen: int
    """Seconds since 1970."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class PlaceTip:
    """The end of a chain; height 0 if it has no block."""

    height: int
    block_hash: str
    """In hexadecimal."""
    state_root: str
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BlockTransaction:
    """A transaction as it was committed."""

    tx_id: str
    client: str
    sequence: int
    actor: str
    timestamp: str
    operations: list[Mapping[str, Any]]
    """In the server's JSON."""
    height: int
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The transaction; of `Place.transaction` the document that proves it."""


@dataclass(frozen=True, slots=True)
class ChainBlock:
    """A block with its transactions."""

    height: int
    block_hash: str
    """In hexadecimal, computed from the header."""
    previous_hash: str
    state_root: str
    timestamp: str
    term: int
    transactions: list[BlockTransaction] | None
    """None if retention has freed them."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BlockNotice:
    """The announcement of a block, without its transactions."""

    height: int
    block_hash: str
    timestamp: str
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OrganizationInfo:
    """An organization and its settings."""

    org: str
    name: str
    status: str
    """`active`, `migrating`, `suspended`, `deleting` or `deleted`; only an active one accepts writes."""
    entries: int
    """Entries of its log."""
    ttl_seconds: int
    eviction_interval: int
    fence: bool
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class VaultInfo:
    """A vault."""

    place: PlaceName
    status: str
    """`active`, `read-only` or `deleted`."""
    height: int
    state_root: str
    retained_blocks: int | None
    """Number of blocks whose bodies are kept; None means all."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CreatedScope:
    """A new organization or vault."""

    place: PlaceName
    replayed: bool
    """Whether an earlier call with the same key created it."""
    key: str
    """The idempotency key of the creation."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
