"""The tables of the ledger.

An organization is one log under one lock: its row counts the entries and has the time of the last one, and the two cuts
of eviction, before which commits and clients are forgotten. A place (the organization's own scope, or a vault) is one
chain: its row is the tip. A transaction leaves one row with its header, its body and its commit, the sequence of its
key, if it has one, and the state that it changed, with the state before, so that every height can be read and proved.

Look-ups: an organization or place by its slugs; a block by its height (LEDGER_BLOCK; large operations in LEDGER_BODY),
and so a transaction by its id, which begins with the height; a commit by client and sequence (an index of LEDGER_BLOCK)
or by key (LEDGER_KEY); an entity by its key, now (LEDGER_ENTITY) and before (LEDGER_PAST, by the height that ended it),
its value, if it is large, by the height that set it (LEDGER_VALUE); an entity that expires by the second in which it
does (an index of LEDGER_ENTITY); a relationship also by its subject, now and before;
the tree of the state by bucket (LEDGER_TOPS now, LEDGER_ROOTS at some heights), and by height and bucket (LEDGER_TREE).
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.table import U64, Above, Below, Table

INLINE_BYTES = 4_096
"""Values of up to this many bytes are stored in the row of their entity."""

INLINE_OPERATIONS = 1_024
"""Encoded operations of up to this many bytes are stored in the row of their block: headers are read with them."""

ROOTS_EVERY = 64
"""The roots of all buckets are stored at each height that is a multiple of this."""

RELATIONSHIPS_END = b"\1"
"""Keys of relationships begin with a zero byte, keys of entities never do."""

ENTRY_VAULT, ENTRY_ORG, ENTRY_STATUS = 1, 2, 3
"""Log entries that are not transactions: vault created, organization changed, status of a vault changed."""


class TermRow(NamedTuple):
    """The term of new blocks, the timeline that it belongs to, and the secret of page tokens."""

    name: bytes
    term: int
    era: bytes
    secret: bytes
    orgs: int
    checksum: int = 0


class OrgRow(NamedTuple):
    """An organization and its log."""

    org: int
    name: bytes
    status: int
    entries: int
    """The index of the last entry."""
    at_seconds: int
    """The time of that entry; time never falls along a log."""
    at_nanos: int
    interval: int
    ttl_seconds: int
    fence: int
    cut: int
    """Commits before this second are forgotten."""
    client_cut: int
    """Clients that were last seen before this second are forgotten."""
    vaults: int
    created_seconds: int
    created_nanos: int
    second: int
    """The second of the last transaction by the clock, and the number of transactions in it; used only with a limit."""
    in_second: int
    quota_bytes: int
    """The limit in bytes, 0 without one; then the bytes of keys and values, counted only with a limit."""
    quota_vaults: int
    quota_writes: int
    used_bytes: int
    checksum: int = 0


class EntryRow(NamedTuple):
    """A log entry that is not a transaction."""

    org: int
    entry: int
    kind: int
    vault: int
    at_seconds: int
    at_nanos: int
    detail: bytes
    checksum: int = 0


class PlaceRow(NamedTuple):
    """A scope: the tip of its chain, and the height up to which it has been freed."""

    org: int
    vault: int
    status: int
    height: int
    tip_hash: bytes
    state_root: bytes
    retain: int
    """The number of bodies that are kept; 0 for all."""
    freed: int
    """All rows up to this height that may be freed have been freed."""
    created_seconds: int
    created_nanos: int
    created_term: int
    created_index: int
    checksum: int = 0


class LedgerStreamRow(NamedTuple):
    """A client's sequence in one place."""

    org: int
    vault: int
    client: bytes
    life: int
    """The height of the first commit: a client that returns after eviction begins another life."""
    last: U64
    last_seen: int
    last_height: int
    last_key: bytes


class KeyRow(NamedTuple):
    """The sequence that an idempotency key was used with."""

    org: int
    vault: int
    client: bytes
    key: bytes
    life: int
    sequence: U64


class BlockRow(NamedTuple):
    """A block: its header, its transaction and the commit of its client's sequence.

    When the body is compacted and the commit forgotten, all members from `client` on are empty or 0.
    """

    org: int
    vault: int
    height: int
    previous_hash: bytes
    tx_root: bytes
    state_root: bytes
    at_seconds: int
    at_nanos: int
    term: int
    committed_index: int
    leader: bytes
    size: int
    """The size of the operations in bytes."""
    client: bytes
    life: int
    sequence: U64
    key: bytes
    """The idempotency key; empty without one."""
    request: bytes
    """The fingerprint of the request."""
    id: bytes
    actor: bytes
    with_proof: int
    """Whether the answer carried a proof, so that its replays do."""
    stale: bytes
    """The tree pages and the large values that this block replaced, unless bodies are kept for ever."""
    operations: bytes
    """The operations as they were hashed; empty if they are large, and then in a separate row."""
    checksum: int = 0


class BodyRow(NamedTuple):
    """The operations of a block whose row does not have them."""

    org: int
    vault: int
    height: int
    operations: bytes


class EntityRow(NamedTuple):
    """The current value of an entity or a relationship."""

    org: int
    vault: int
    key: bytes
    value: bytes
    """The value if it is small; otherwise its SHA-256, and the value is in a separate row."""
    size: int
    expires_at: U64
    version: int
    subject: bytes
    """The subject of a relationship; empty for an entity."""
    checksum: int = 0


class PastRow(NamedTuple):
    """The value of a key before the block of height `until` replaced or removed it."""

    org: int
    vault: int
    key: bytes
    until: int
    value: bytes
    size: int
    expires_at: U64
    version: int
    subject: bytes
    checksum: int = 0


class ValueRow(NamedTuple):
    """A large value, written once: a write that replaces it need not move it."""

    org: int
    vault: int
    version: int
    key: bytes
    value: bytes


class TopsRow(NamedTuple):
    """The current roots of the 256 buckets and the heights of their pages."""

    org: int
    vault: int
    roots: bytes
    heights: bytes
    checksum: int = 0


class RootsRow(NamedTuple):
    """As `TopsRow`, at a height; changes between it and a later height are looked up separately."""

    org: int
    vault: int
    height: int
    roots: bytes
    heights: bytes
    checksum: int = 0


class TreeRow(NamedTuple):
    """The part of a bucket that the block of a height changed: the new root, and the new pages with their paths."""

    org: int
    vault: int
    height: int
    bucket: int
    root: bytes
    pages: bytes
    checksum: int = 0


class CreationRow(NamedTuple):
    """The result of a creation under a caller's key."""

    owner: bytes
    key: bytes
    digest: bytes
    org: int
    vault: int
    checksum: int = 0


_IN_THE_HASHES = (
    "previous_hash",
    "tx_root",
    "state_root",
    "at_seconds",
    "at_nanos",
    "term",
    "committed_index",
    "client",
    "sequence",
    "id",
    "actor",
    "operations",
)
"""Columns of a block that its hash, or that of its transaction, is computed from."""
LEDGER_TERM = Table("ledger_term", TermRow, key=1, cached=True)
LEDGER_ORG = Table("ledger_org", OrgRow, key=1, cached=True)
LEDGER_ENTRY = Table("ledger_entry", EntryRow, key=2)
LEDGER_PLACE = Table("ledger_place", PlaceRow, key=2, cached=True)
LEDGER_STREAM = Table("ledger_stream", LedgerStreamRow, key=3, indexes={"seen": ("org", "last_seen")})
LEDGER_KEY = Table("ledger_key", KeyRow, key=4, log=True)
_BY_SEQUENCE = {"commit": ("org", "vault", "client", "life", "sequence")}
LEDGER_BLOCK = Table("ledger_block", BlockRow, key=3, indexes=_BY_SEQUENCE, bulky=True, unsummed=_IN_THE_HASHES)
LEDGER_BODY = Table("ledger_body", BodyRow, key=3, bulky=True)
_BY_SUBJECT = {"subject": ("org", "vault", "subject", "key")}
_BY_SUBJECT_THEN = {"subject": ("org", "vault", "subject", "key", "until")}
_RELATIONSHIPS = {"subject": Below("key", RELATIONSHIPS_END)}
LEDGER_ENTITY = Table(
    "ledger_entity",
    EntityRow,
    key=3,
    indexes=_BY_SUBJECT | {"expiry": ("expires_at", "org", "vault", "key")},
    partial=_RELATIONSHIPS | {"expiry": Above("expires_at", 0)},
    bulky=True,
    unsummed=("value", "size", "expires_at", "version"),
)
LEDGER_PAST = Table("ledger_past", PastRow, key=4, indexes=_BY_SUBJECT_THEN, partial=_RELATIONSHIPS, bulky=True)
LEDGER_VALUE = Table("ledger_value", ValueRow, key=4, bulky=True)
LEDGER_TOPS = Table("ledger_tops", TopsRow, key=2, bulky=True, unsummed=("roots", "heights"))
LEDGER_ROOTS = Table("ledger_roots", RootsRow, key=3, bulky=True)
LEDGER_TREE = Table("ledger_tree", TreeRow, key=4, bulky=True)
LEDGER_MADE = Table("ledger_made", CreationRow, key=2)

ALONE = (b"",)
"""The key of the one row of LEDGER_TERM."""
NO_TERM = TermRow(b"", 0, b"", b"", 0)

TABLES = (
    LEDGER_TERM,
    LEDGER_ORG,
    LEDGER_ENTRY,
    LEDGER_PLACE,
    LEDGER_STREAM,
    LEDGER_KEY,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_ENTITY,
    LEDGER_PAST,
    LEDGER_VALUE,
    LEDGER_TOPS,
    LEDGER_ROOTS,
    LEDGER_TREE,
    LEDGER_MADE,
)
