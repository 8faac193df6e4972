"""What the ledger promises, as a plain program: dictionaries and lists, without a store, an index, a cut or a tree.

Written from the published rules, and slow on purpose: everything is looked for by going through everything, eviction
goes through every stream and every commit, and each state root is made anew from all entities. The one clock is handed
in, in milliseconds; so are slugs, terms and the chance in a transaction's id. Every method is one decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from semel.surfaces.ledger.model import (
    BlockHeader,
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    LedgerPlace,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetEntity,
)
from tests.ledger.model.hashing import (
    EMPTY,
    ZERO,
    block_hash,
    relationship_key,
    request_hash,
    state_root,
    transaction_hash,
)

TOLD_VALUE_BYTES = 4_096
MOST = 2**64 - 1
NO_KEY = (b"", bytes(16))
GC = b"system:gc"


class Ask(NamedTuple):
    """One write, and what comes from outside with it."""

    place: LedgerPlace
    client: bytes
    sequence: int | None
    key: bytes
    operations: tuple[Operation, ...]
    actor: bytes
    leader: bytes
    chance: bytes
    with_proof: bool = False


class Settings(NamedTuple):
    """What of an organization can be changed."""

    interval: int
    ttl: int
    fence: bool


class Wrote(NamedTuple):
    """A block, now or before; `row` is the row of the table that said so. Replays tell what the first answer told."""

    row: str
    is_new: bool
    transaction: LedgerTransaction
    header: BlockHeader
    with_proof: bool


class Declined(NamedTuple):
    """A domain error; the members that do not belong to its code are None."""

    code: str
    row: str = ""
    key: bytes = b""
    version: int | None = None
    value: bytes | None = None
    tx_id: bytes | None = None
    height: int | None = None
    sequence: int | None = None
    last: int | None = None
    details: tuple[tuple[str, str], ...] = ()


class Refused(NamedTuple):
    """Refused before any row."""

    code: str


Answer = Wrote | Declined | Refused


@dataclass(slots=True)
class Commit:
    """One committed transaction."""

    key: bytes
    hash: bytes
    transaction: LedgerTransaction
    header: BlockHeader
    with_proof: bool
    is_old: bool = False
    """Whether an eviction has found it older than the time to live."""


@dataclass(slots=True)
class Stream:
    """One client in one place, in this life."""

    last: int = 0
    last_seen: int = 0
    commits: list[Commit] = field(default_factory=list)

    def remembered(self) -> list[Commit]:
        """The window: what is not too old, and the last one whatever its age."""
        return [one for one in self.commits if not one.is_old or one.transaction.sequence == self.last]


@dataclass(slots=True)
class Scope:
    """One place: what it holds, and how it came to that."""

    place: LedgerPlace
    retain: int
    status: str = "ACTIVE"
    blocks: list[Commit] = field(default_factory=list)
    states: list[dict[bytes, Entity]] = field(default_factory=lambda: [{}])
    """After each block; the first is that of height 0."""

    @property
    def height(self) -> int:
        """Of the last block."""
        return len(self.blocks)

    def has_body(self, height: int) -> bool:
        """Whether the transaction of a block is still told."""
        return not self.retain or height > self.height - self.retain

    def has_state(self, height: int) -> bool:
        """Whether the state after a block is still told."""
        return not self.retain or height >= self.height - self.retain


@dataclass(slots=True)
class Organization:
    """One log."""

    slug: int
    name: bytes
    settings: Settings
    status: str = "ACTIVE"
    entries: int = 0
    at: int = 0
    """The last proposed_at, in milliseconds."""
    scopes: dict[int, Scope] = field(default_factory=dict)
    streams: dict[tuple[int, bytes], Stream] = field(default_factory=dict)
    evicted: int = 0
    """How many streams have gone, and how many commits: for those who want to see that it happens."""
    forgotten: int = 0
    seconds: list[int] = field(default_factory=list)
    """When each transaction was committed, by a clock that only goes on: for the rate."""


class Model:
    """Everything there is; `rate` is how many transactions an organization may commit in a second, 0 for any."""

    def __init__(self, rate: int = 0) -> None:
        self.rate = rate
        self.term = 0
        self.orgs: dict[int, Organization] = {}

    # -- Organizations and vaults --------------------------------------------------------------------------------------

    def make_org(self, slug: int, name: bytes, settings: Settings, now: int) -> None:
        """No entry of any log, which begins at this time."""
        org = self.orgs[slug] = Organization(slug, name, settings, at=now)
        org.scopes[0] = Scope(LedgerPlace(slug), 0)

    def make_vault(self, place: LedgerPlace, retain: int, now: int) -> Refused | BlockHeader:
        """An entry; the header of height 0, which nothing is linked to."""
        org = self.orgs.get(place.org)
        if org is None:
            return Refused("organization_not_found")
        if org.status != "ACTIVE":
            return Refused("failed_precondition")
        org.scopes[place.vault] = Scope(place, retain)
        self._enter(org, now)
        at = LedgerTime(org.at // 1000, org.at % 1000 * 1_000_000)
        return BlockHeader(0, place, ZERO, EMPTY, state_root(()), at, self.term, org.entries, b"")

    def change_org(self, slug: int, settings: Settings, status: str, now: int) -> None:
        """An entry; if it is one at which streams are evicted, then by the settings that it brought."""
        org = self.orgs[slug]
        org.settings, org.status = settings, status
        self._enter(org, now)

    def change_vault(self, place: LedgerPlace, status: str, now: int) -> None:
        """An entry."""
        self.orgs[place.org].scopes[place.vault].status = status
        self._enter(self.orgs[place.org], now)

    # -- The log of an organization ------------------------------------------------------------------------------------

    @staticmethod
    def _next_at(org: Organization, now: int) -> int:
        return max(now, org.at)

    def _enter(self, org: Organization, now: int) -> None:
        """One more entry has been applied."""
        org.at = self._next_at(org, now)
        org.entries += 1
        if org.entries % org.settings.interval == 0:
            self._evict(org)

    @staticmethod
    def _evict(org: Organization) -> None:
        def is_old(seconds: int) -> bool:
            return org.at // 1000 - seconds > org.settings.ttl

        def place_of(name: tuple[int, bytes]) -> bytes:
            return org.slug.to_bytes(8, "big") + name[0].to_bytes(8, "big") + name[1]

        for name in sorted(org.streams, key=place_of):
            stream = org.streams[name]
            for commit in stream.commits:
                org.forgotten += not commit.is_old and is_old(commit.header.at.seconds)
                commit.is_old = commit.is_old or is_old(commit.header.at.seconds)
            if is_old(stream.last_seen) and not org.settings.fence:
                del org.streams[name]
                org.evicted += 1

    # -- Writing -------------------------------------------------------------------------------------------------------

    def write(self, ask: Ask, now: int, clock: int) -> Answer:
        """Its shape, its place, then the table, the rate by the clock, conditions, and the commit."""
        if ask.sequence is None and ask.key in NO_KEY:
            return Refused("invalid_argument")
        if not ask.actor.startswith(b"system:") and any(isinstance(one, ExpireEntity) for one in ask.operations):
            return Refused("permission_denied")
        refused = self._refused(ask.place)
        if refused is not None:
            return refused
        org = self.orgs[ask.place.org]
        stream = org.streams.get((ask.place.vault, ask.client)) or Stream()
        judged = self._judge(ask, stream, org.scopes[ask.place.vault])
        if not isinstance(judged, str):
            return judged
        latest = [second == clock // 1000 for second in org.seconds[::-1][: self.rate]]
        if self.rate and len(latest) == self.rate and all(latest):
            return Refused("resource_exhausted")
        answer = self._execute(ask, org, judged, now)
        if isinstance(answer, Wrote):
            org.seconds.append(clock // 1000)
        return answer

    def expire(self, place: LedgerPlace, keys: Iterable[bytes], leader: bytes, now: int) -> int:
        """A step of the collector: a block that removes what has expired of these; how much that is."""
        if self._refused(place) is not None:
            return 0
        org = self.orgs[place.org]
        scope = org.scopes[place.vault]
        there = [scope.states[-1].get(key) for key in keys]
        expired = [one for one in there if one is not None and 0 < one.expires_at <= now // 1000]
        if expired:
            operations = tuple(ExpireEntity(one.key, one.expires_at) for one in expired)
            previous = block_hash(scope.blocks[-1].header)
            chance = sha256(b"expire" + previous).digest()[:10]
            self._execute(Ask(place, GC, None, b"", operations, GC, leader, chance), org, "R5", now)
        return len(expired)

    def _refused(self, place: LedgerPlace) -> Refused | None:
        org = self.orgs.get(place.org)
        if org is None:
            return Refused("organization_not_found")
        if org.status != "ACTIVE":
            return Refused("failed_precondition")
        scope = org.scopes.get(place.vault)
        if scope is None or scope.status == "DELETED":
            return Refused("vault_not_found")
        return Refused("permission_denied") if scope.status == "READ_ONLY" else None

    def _judge(self, ask: Ask, stream: Stream, scope: Scope) -> Answer | str:
        """The table, top to bottom; the name of a row means that it says: execute."""
        q, h, last = ask.sequence, request_hash(ask.operations), stream.last
        k = None if ask.key in NO_KEY else ask.key
        remembered = stream.remembered()
        by_key = next((commit for commit in remembered if k is not None and commit.key == k), None)
        if by_key is None and q is None and last == MOST:
            return Refused("failed_precondition")
        if by_key is not None:
            return self._judge_known_key(by_key, q, h, last)
        if q is None:
            return "R5"
        if q == last + 1:
            return "R6"
        if q > last + 1:
            return Declined("SEQUENCE_GAP", "R7", last=last)
        return self._judge_old(ask, stream, scope, remembered)

    @staticmethod
    def _judge_known_key(known: Commit, q: int | None, h: bytes, last: int) -> Answer:
        first = known.transaction
        if h != known.hash:
            return Declined("IDEMPOTENCY_KEY_REUSED", "R1", tx_id=first.id, sequence=first.sequence)
        if q is None or q == first.sequence:
            return Wrote("R2" if q is None else "R3", False, first, known.header, known.with_proof)
        height = known.header.height
        return Declined("ALREADY_COMMITTED", "R4", tx_id=first.id, height=height, sequence=first.sequence, last=last)

    @staticmethod
    def _judge_old(ask: Ask, stream: Stream, scope: Scope, remembered: list[Commit]) -> Answer:
        """A sequence at or below the last one, with a key that is new or missing."""
        h, is_keyed = request_hash(ask.operations), ask.key not in NO_KEY
        known = next((commit for commit in remembered if commit.transaction.sequence == ask.sequence), None)
        if known is None:
            # Forgotten. While its body is kept it is looked up, and then nothing is known of its key.
            forgotten = [commit for commit in stream.commits if commit.transaction.sequence == ask.sequence]
            known = next((commit for commit in forgotten if scope.has_body(commit.header.height)), None)
            if known is None:
                details = (("verified", "false"),)
                return Declined("ALREADY_COMMITTED", "R11", sequence=ask.sequence, details=details)
            is_keyed = False
        first = known.transaction
        if h != known.hash:
            details = (("conflict", "sequence"),)
            return Declined("IDEMPOTENCY_KEY_REUSED", "R10", tx_id=first.id, sequence=first.sequence, details=details)
        if not is_keyed or known.key in NO_KEY:
            return Wrote("R8", False, first, known.header, known.with_proof)
        return Declined("ALREADY_COMMITTED", "R9", tx_id=first.id, height=known.header.height, sequence=first.sequence)

    def _execute(self, ask: Ask, org: Organization, row: str, now: int) -> Answer:
        scope = org.scopes[ask.place.vault]
        at = self._next_at(org, now)
        height = scope.height + 1
        state = dict(scope.states[-1])
        for operation in ask.operations:
            failed = apply(state, operation, height, at // 1000)
            if failed is not None:
                return failed
        stream = org.streams.setdefault((ask.place.vault, ask.client), Stream())
        instant = LedgerTime(at // 1000, at % 1000 * 1_000_000)
        tx_id = height.to_bytes(6, "big") + ask.chance
        transaction = LedgerTransaction(tx_id, ask.client, stream.last + 1, ask.operations, instant, ask.actor)
        previous = block_hash(scope.blocks[-1].header) if scope.blocks else ZERO
        leaf, root = transaction_hash(transaction), state_root(state.values())
        header = BlockHeader(height, ask.place, previous, leaf, root, instant, self.term, org.entries + 1, ask.leader)
        commit = Commit(ask.key, request_hash(ask.operations), transaction, header, ask.with_proof)
        scope.states.append(state)
        scope.blocks.append(commit)
        stream.commits.append(commit)
        stream.last, stream.last_seen = transaction.sequence, instant.seconds
        self._enter(org, now)
        return Wrote(row, True, transaction, header, ask.with_proof)

    # -- Reading -------------------------------------------------------------------------------------------------------

    def client_state(self, place: LedgerPlace, client: bytes) -> tuple[int, bytes | None, int | None, int | None]:
        """Last sequence; its transaction, block and time while they are known."""
        stream = self.orgs[place.org].streams.get((place.vault, client))
        if stream is None:
            return 0, None, None, None
        newest = stream.commits[-1]
        return stream.last, newest.transaction.id, newest.header.height, stream.last_seen


def apply(state: dict[bytes, Entity], operation: Operation, height: int, seconds: int) -> Declined | None:
    """Change the state by one operation, or say which condition does not hold."""
    match operation:
        case SetEntity(key, value, expires_at, _):
            failed = _failed(state, operation, seconds)
            if failed is not None:
                return failed
            state[key] = Entity(key, value, expires_at, height)
        case DeleteEntity(key) | ExpireEntity(key):
            state.pop(key, None)
        case CreateRelationship(resource, relation, subject):
            key = relationship_key(resource, relation, subject)
            state.setdefault(key, Entity(key, b"", 0, height))
        case DeleteRelationship(resource, relation, subject):
            state.pop(relationship_key(resource, relation, subject), None)
    return None


def _failed(state: dict[bytes, Entity], operation: SetEntity, seconds: int) -> Declined | None:
    condition, there = operation.condition, state.get(operation.key)
    if there is not None and there.expires_at and there.expires_at <= seconds:
        there = None
    if condition is None:
        return None
    if condition.check is ConditionKind.NOT_EXISTS:
        return None if there is None else _current("KEY_EXISTS", there)
    if there is None:
        return Declined("KEY_NOT_FOUND", key=operation.key)
    if condition.check is ConditionKind.VERSION and there.version != condition.version:
        return _current("VERSION_MISMATCH", there)
    if condition.check is ConditionKind.VALUE and there.value != condition.value:
        return _current("VALUE_MISMATCH", there)
    return None


def _current(code: str, there: Entity) -> Declined:
    value = there.value if len(there.value) <= TOLD_VALUE_BYTES else None
    return Declined(code, key=there.key, version=there.version, value=value)
