"""Plain transactions, decided in groups without a view: the result of `write`, without its intermediate values.

A transaction is plain if it sets one small entity without a condition, is the next one of its client or has a fresh
key, and is in a place that keeps all bodies, of an organization without limits. A group is decided here if all of its
transactions are plain. Any other group is left to `write`, and so are the groups of its organization behind it, so that
transactions keep their order. Both ways give the same rows and answers; `tests/ledger/rules/test_plain_write.py`
compares them.

Nothing is changed before the whole group has been found plain, and nothing outlives the decision but its answer. A
crash stores all transactions of a batch or none of them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from hashlib import sha256
from itertools import compress
from operator import not_
from struct import Struct
from typing import Any

from semel.engine.contract import Write
from semel.engine.plain_write import LoadedByKey, PlainContract, PlainResult, PlainWrite
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Row
from semel.store.table import Key
from semel.surfaces.ledger.commands import (
    CommittedTransaction,
    PreparedWrite,
    WriteCommand,
    WriteCommitted,
    WriteMany,
)
from semel.surfaces.ledger.limits import MAX_SEQUENCE, LedgerPolicy
from semel.surfaces.ledger.model import (
    ZERO,
    BlockHeader,
    LedgerPlace,
    LedgerStatus,
    LedgerTime,
    LedgerTransaction,
    SetEntity,
)
from semel.surfaces.ledger.rules.chain import is_head
from semel.surfaces.ledger.rules.commits import transaction_id
from semel.surfaces.ledger.rules.group_rows import TreeChanges, WorkingOrg, WorkingPlace, next_cuts
from semel.surfaces.ledger.rules.idempotency import KEY_BYTES
from semel.surfaces.ledger.rules.organizations import log_lock
from semel.surfaces.ledger.rules.packed_tree import put_leaf
from semel.surfaces.ledger.rules.plain_load import LoadedGroups, PlainPath
from semel.surfaces.ledger.rules.write import ManyAnswers, topic_of
from semel.surfaces.ledger.tables import (
    ALONE,
    INLINE_BYTES,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_ENTITY,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PAST,
    LEDGER_PLACE,
    LEDGER_ROOTS,
    LEDGER_STREAM,
    LEDGER_TERM,
    LEDGER_TOPS,
    LEDGER_TREE,
    NO_TERM,
    ROOTS_EVERY,
    BlockRow,
    EntityRow,
    KeyRow,
    LedgerStreamRow,
    PastRow,
    RootsRow,
    TreeRow,
)

ACTIVE = LedgerStatus.ACTIVE.value
_LEAF = b"\0"
_LENGTH = Struct("<I")
_U64 = Struct(">Q")
_TIME = Struct(">qI")
_HEADER = Struct(">QQQ32s32s32sqIQQ")
_make = tuple.__new__
"""Makes a row from a tuple of its values, in half the time of a call of its class."""


_Client = tuple[int, int, int]
"""The life of a client, its last sequence, and the second in which it was last seen."""
_UNKNOWN = (0, 0, 0)


class PlainGroup(PlainWrite):
    """Transactions of one organization, in order with those of its other plain groups.

    `is_plain` says whether all of them may be plain, by their requests alone; if not, the group is left.
    """

    __slots__ = ("commands", "cost", "is_plain", "may_wait")

    def __init__(
        self, contract: PlainContract, many: WriteMany, size: int, cost: int, principal: str, *, is_plain: bool = True
    ) -> None:
        super().__init__(contract, log_lock(many.writes[0].write.place.org).name, size, principal)
        self.commands = many.writes
        self.is_plain = is_plain
        self.may_wait = many.may_wait
        self.cost = cost

    def full(self) -> Write:
        """The same group for the full rules."""
        return Write(self.contract, WriteMany(self.commands, self.may_wait), self.size, self.cost)


def may_be_plain(command: WriteCommand) -> bool:
    """Whether a transaction may be plain, by its request alone."""
    write = command.write
    if len(write.operations) != 1 or len(write.encoded) > INLINE_OPERATIONS:
        return False
    operation = write.operations[0]
    if operation.__class__ is not SetEntity or operation.condition is not None:
        return False
    return len(operation.value) <= INLINE_BYTES and len(write.key) in (0, KEY_BYTES)


_Turn = tuple[int, int]
"""What a plain transaction gets: its sequence, and the height of its client's first commit."""


def decide_plain(loaded: LoadedGroups, groups: Sequence[PlainGroup], policy: LedgerPolicy, now: Now) -> PlainResult:
    """Decide the groups in their order; those that are not plain are left, with those behind them."""
    batch = _PlainBatch(loaded, now)
    decided: list[tuple[PlainWrite, Any]] = []
    left: list[PlainWrite] = []
    behind: set[bytes] = set()
    for number, group in enumerate(groups):
        turns = None
        is_open = group.is_plain and loaded.pages is not None and not policy.writes_per_second
        if is_open and group.lock not in behind:
            turns = batch.judge(group)
        if turns is None:
            behind.add(group.lock)
            left.append(group)
        else:
            answers = batch.commit(group, loaded.paths[number], turns)
            decided.append((group, ManyAnswers(answers, TreeChanges() if decided else batch.tree)))
    return batch.result(decided, left)


class _PlainBatch:
    """The rows of a batch as the groups decided so far have left them."""

    def __init__(self, loaded: LoadedGroups, now: Now) -> None:
        self._rows: LoadedByKey = loaded.rows
        self._now = now
        self._known = loaded.known
        self.tree = TreeChanges()
        self.tree.pages = loaded.pages or {}
        self._orgs: dict[int, WorkingOrg] = {}
        self._places: dict[LedgerPlace, WorkingPlace] = {}
        self._streams: dict[tuple[int, int, bytes], LedgerStreamRow] = {}
        self._keys: dict[tuple[int, int, bytes, bytes], KeyRow] = {}
        self._entities: dict[tuple[int, int, bytes], EntityRow] = {}
        self._blocks: list[Row] = []
        self._trees: list[Row] = []
        self._past: list[Row] = []
        self._roots: list[Row] = []
        self._term = self._rows[LEDGER_TERM].get(ALONE, NO_TERM).term

    def judge(self, group: PlainGroup) -> list[_Turn] | None:
        """The turns of all transactions of a group, if all are plain; otherwise None. Nothing is changed."""
        org = self._org(group.commands[0].write.place.org)
        if org is None:
            return None
        seconds = org.next_time(self._now)[0]
        entries, cuts = org.entries, (org.cut, org.client_cut)
        heights: dict[LedgerPlace, int] = {}
        clients: dict[Key, _Client] = {}
        names: set[Key] = set()
        turns = []
        for command in group.commands:
            place, client, sequence, name = command.write[:4]
            height = heights.get(place)
            if height is None:
                height = self._height(place)
            if height is None:
                return None
            heights[place] = height = height + 1
            where = (*place, client)
            known = clients.get(where) or self._client(place, where)
            if known is None:
                return None
            life, last, seen = known
            if seen < cuts[1]:
                last = 0  # evicted
            if not self._is_next(where, sequence, last, name, names):
                return None
            life = life if last else height
            clients[where] = life, last + 1, seconds
            turns.append((last + 1, life))
            entries += 1
            if entries % org.before.interval == 0:
                cuts = next_cuts(org.before, entries, seconds, cuts)
        return turns

    def _is_next(self, where: Key, sequence: int | None, last: int, name: bytes, names: set[Key]) -> bool:
        """Whether a transaction is the next of its client, with a fresh key if it has one; `names` takes the key."""
        if sequence != last + 1 and (sequence is not None or not name or last == MAX_SEQUENCE):
            return False
        if not name:
            return True
        key = (*where, name)
        if key in names or key in self._keys or key in self._rows[LEDGER_KEY]:
            return False
        names.add(key)
        return True

    def _client(self, place: LedgerPlace, where: Key) -> _Client | None:
        """A client; None if the next commit has to free the key of its last one, as only the full rules do."""
        stream = self._streams.get(where) or self._rows[LEDGER_STREAM].get(where)
        if stream is None:
            return _UNKNOWN
        if stream.last_key and stream.last_height <= self._places[place].before.freed:
            return None
        return stream.life, stream.last, stream.last_seen

    def _height(self, place: LedgerPlace) -> int | None:
        """The height of a place; None if it does not accept plain transactions."""
        tip = self._place(place)
        return None if tip is None else tip.height

    def _org(self, slug: int) -> WorkingOrg | None:
        """An organization that accepts plain transactions."""
        org = self._orgs.get(slug)
        if org is None:
            row = self._rows[LEDGER_ORG].get((slug,))
            if row is None or row.status != ACTIVE or row.quota_bytes or row.quota_writes:
                return None
            org = self._orgs[slug] = WorkingOrg(row)
        return org

    def _place(self, place: LedgerPlace) -> WorkingPlace | None:
        """A place that accepts plain transactions: all its bodies are kept, and its last block is where it must be."""
        tip = self._places.get(place)
        if tip is None:
            row = self._rows[LEDGER_PLACE].get(place)
            if row is None or row.status != ACTIVE or row.retain:
                return None
            if not is_head(row, self._rows[LEDGER_BLOCK].get((*place, row.height))):
                return None
            tip = self._places[place] = WorkingPlace(place, row, self._rows[LEDGER_TOPS].get(place))
        return tip

    def commit(self, group: PlainGroup, paths: Sequence[PlainPath], turns: Sequence[_Turn]) -> list[WriteCommitted]:
        """Commit all transactions of a group."""
        org = self._orgs[group.commands[0].write.place.org]
        at = LedgerTime(*org.next_time(self._now))
        answers = []
        for command, path, turn in zip(group.commands, paths, turns, strict=True):
            org.enter(at)
            root = self._store_state(command.write, path)
            answers.append(self._store_block(command, turn, root, org.entries, at))
        return answers

    def _store_state(self, write: PreparedWrite, path: PlainPath) -> bytes:
        """Store the entity and the tree of the next block; returns the root of the state."""
        place = write.place
        tip = self._places[place]
        height = tip.height + 1
        key, value, expires_at, _ = write.operations[0]  # type: ignore[misc]
        encoded, written, (bucket, way) = write.encoded, _U64.pack(height), path
        # The leaf has the fields of the encoded operation: lengths, key and value; the expiry; and then the height.
        leaf = sha256(_LEAF + encoded[5:-9] + encoded[-8:] + written).digest()
        before = bytes(tip.heights[8 * bucket : 8 * bucket + 8])
        root, pages = put_leaf(self.tree.pages, self._known, way, before, leaf, key, written)
        tip.roots[32 * bucket : 32 * bucket + 32] = root
        tip.heights[8 * bucket : 8 * bucket + 8] = written
        self._trees.append(_make(TreeRow, (*place, height, bucket, root, pages, 0)))
        where = (*place, key)
        old = self._entities.get(where) or self._rows[LEDGER_ENTITY].get(where)
        if old is not None:
            self._past.append(PastRow(*where, height, *old[3:]))
        self._entities[where] = _make(EntityRow, (*where, value, len(value), expires_at, height, b"", 0))
        if height % ROOTS_EVERY == 0:
            self._roots.append(RootsRow(*place, height, bytes(tip.roots), bytes(tip.heights)))
        return sha256(tip.roots).digest()

    def _store_block(
        self, command: WriteCommand, turn: _Turn, root: bytes, entry: int, at: LedgerTime
    ) -> WriteCommitted:
        """Store the next block, the sequence of its client and its key; returns the answer."""
        (place, client, _, name, operations, encoded, request), actor, leader, chance, with_proof = command
        tip, (sequence, life), term = self._places[place], turn, self._term
        org, vault = place
        previous = tip.tip_hash if tip.height else ZERO
        tip.height = height = tip.height + 1
        tx_id = transaction_id(height, chance)
        hashed = (
            tx_id,
            _LENGTH.pack(len(client)),
            client,
            _U64.pack(sequence),
            _LENGTH.pack(len(actor)),
            actor,
            encoded,
        )
        tx_root = sha256(b"".join(hashed) + _TIME.pack(*at)).digest()
        tip.tip_hash = sha256(_HEADER.pack(height, org, vault, previous, tx_root, root, *at, term, entry)).digest()
        tip.state_root = root
        self._blocks.append(
            _make(
                BlockRow,
                (
                    org,
                    vault,
                    height,
                    previous,
                    tx_root,
                    root,
                    *at,
                    term,
                    entry,
                    leader,
                    len(encoded),
                    client,
                    life,
                    sequence,
                    name,
                    request,
                    tx_id,
                    actor,
                    int(with_proof),
                    b"",
                    encoded,
                    0,
                ),
            )
        )
        if name:
            self._keys[org, vault, client, name] = KeyRow(org, vault, client, name, life, sequence)
        where = (org, vault, client)
        self._streams[where] = _make(LedgerStreamRow, (*where, life, sequence, at[0], height, name))
        transaction = _make(LedgerTransaction, (tx_id, client, sequence, operations, at, actor))
        header = _make(BlockHeader, (height, place, previous, tx_root, root, at, term, entry, leader))
        return _make(WriteCommitted, (_make(CommittedTransaction, (transaction, header)),))

    def result(self, decided: Sequence[tuple[PlainWrite, Any]], left: Sequence[PlainWrite]) -> PlainResult:
        """The decisions, and the rows that have changed."""
        inserts: dict[AnyTable, Sequence[Row]] = {LEDGER_BLOCK: self._blocks, LEDGER_TREE: self._trees}
        steady: dict[AnyTable, Sequence[Row]] = {}
        updates: dict[AnyTable, Sequence[Row]] = {}
        inserts[LEDGER_PAST], inserts[LEDGER_ROOTS] = self._past, self._roots
        inserts[LEDGER_KEY] = list(self._keys.values())
        known = self._rows[LEDGER_ENTITY]
        inserts[LEDGER_ENTITY], replaced = _parted(known, self._entities)
        is_steady = [LEDGER_ENTITY.is_steady(known[LEDGER_ENTITY.key_of(row)], row) for row in replaced]
        steady[LEDGER_ENTITY] = list(compress(replaced, is_steady))
        updates[LEDGER_ENTITY] = list(compress(replaced, map(not_, is_steady)))
        inserts[LEDGER_STREAM], updates[LEDGER_STREAM] = _parted(self._rows[LEDGER_STREAM], self._streams)
        changed = [tip for tip in self._places.values() if tip.height > tip.before.height]
        tops = {tip.place: tip.tops() for tip in changed}
        inserts[LEDGER_TOPS], steady[LEDGER_TOPS] = _parted(self._rows[LEDGER_TOPS], tops)
        steady[LEDGER_PLACE] = [tip.row() for tip in changed]
        steady[LEDGER_ORG] = [org.row() for org in self._orgs.values() if org.entries > org.before.entries]
        topics = [topic_of(tip.place) for tip in changed]
        return PlainResult(decided, left, _filled(inserts), _filled(steady), topics, _filled(updates))


def _parted(known: Container[Key], rows: Mapping[Any, Row]) -> tuple[list[Row], list[Row]]:
    """Rows that are new, and rows that replace others."""
    new: list[Row] = []
    others: list[Row] = []
    for key, row in rows.items():
        (others if key in known else new).append(row)
    return new, others


def _filled(rows: Mapping[AnyTable, Sequence[Row]]) -> dict[AnyTable, Sequence[Row]]:
    return {table: some for table, some in rows.items() if some}
