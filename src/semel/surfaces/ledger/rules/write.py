"""One transaction, checked and committed: duplicates first, then the rate limit, then conditions, then the block.

Everything that a client may later ask about is written in the same commit as the effect: the block with its commit, the
client's sequence and key, the state and its tree, the tip, the count of the log. A crash leaves all of it or none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from semel.engine.contract import DecisionResult, MissingRowsError, Order, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.ledger.commands import WriteCommand, WriteCommitted, WriteMany, WriteWaits
from semel.surfaces.ledger.limits import PIPELINE, LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.chain import block_hash, is_head, state_keys
from semel.surfaces.ledger.rules.commits import (
    advance_cuts,
    build_block,
    case_of,
    commit_ranges,
    released_block,
    store_commit,
    stream_key,
)
from semel.surfaces.ledger.rules.idempotency import EXECUTES, WriteCase, WriteVerdict, answer_known, find_rule
from semel.surfaces.ledger.rules.organizations import broken_chain, lower_limit, next_entry, refuse_write
from semel.surfaces.ledger.rules.state import (
    ConditionFailedError,
    apply_operations,
    demand_pages,
    grown,
    load_state,
    page_needs,
    store_state,
)
from semel.surfaces.ledger.tables import (
    ALONE,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_ENTITY,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    LEDGER_TERM,
    LEDGER_TOPS,
    OrgRow,
    PlaceRow,
)


def topic_of(place: LedgerPlace) -> bytes:
    """The topic of subscribers to the blocks of a place."""
    return b"ledger:%d/%d" % place


def order_of(command: WriteCommand) -> Order | None:
    """The position of a write in its client's sequence; None without one."""
    if command.write.sequence is None:
        return None
    return Order(b"ledger:%d/%d:%s" % (*command.write.place, command.write.client), command.write.sequence)


def write_needs(commands: Sequence[WriteCommand]) -> Generator[Stage, View, None]:
    """First the rows for duplicates and conditions; then the rows that the writes need if they are executed."""
    first: dict[tuple[AnyTable, Key], None] = {(LEDGER_TERM, ALONE): None}
    keys: list[list[bytes]] = []
    for command in commands:
        place, client = command.write.place, command.write.client
        keys.append(state_keys(command.write.operations))
        for table in (LEDGER_PLACE, LEDGER_TOPS):
            first[table, place] = None
        first[LEDGER_ORG, (place.org,)] = first[LEDGER_STREAM, (*place, client)] = None
        for key in keys[-1]:
            first[LEDGER_ENTITY, (*place, key)] = None
        if command.write.key:
            first[LEDGER_KEY, (*place, client, command.write.key)] = None
    view = yield Stage(keys=first)
    commits = [wanted for command in commands for wanted in _commits(view, command)]
    if commits:
        yield Stage(ranges=commits)
    paths: dict[LedgerPlace, dict[bytes, None]] = {}
    others: dict[tuple[AnyTable, Key], None] = {}
    for command, some in zip(commands, keys, strict=True):
        place = command.write.place
        org, row = view.get(LEDGER_ORG, (place.org,)), view.get(LEDGER_PLACE, place)
        if org is None or row is None:
            continue
        case = case_of(view, command.write, org, row)
        if find_rule(case).verdict in EXECUTES or _may_follow(case):
            paths.setdefault(place, {}).update(dict.fromkeys(some))
            others.update(dict.fromkeys(_heads(view, command, row)))
        else:
            others.update(dict.fromkeys(_bodies(view, place, case)))
    yield from page_needs(view, paths, list(others))


def _commits(view: View, command: WriteCommand) -> list[Range]:
    org = view.get(LEDGER_ORG, (command.write.place.org,))
    return [] if org is None else commit_ranges(view, command.write, org)


def _bodies(view: View, place: LedgerPlace, case: WriteCase) -> list[tuple[AnyTable, Key]]:
    """The operations of remembered commits that are not in the rows of their blocks."""
    heights = {past.height for past in (case.by_key, case.by_sequence) if past is not None}
    return [(LEDGER_BODY, (*place, height)) for height in heights if _is_large(view, (*place, height))]


def _heads(view: View, command: WriteCommand, row: PlaceRow) -> list[tuple[AnyTable, Key]]:
    """The last block of the place, and that of the client if it is kept only because it is its last one."""
    place = command.write.place
    heads: list[tuple[AnyTable, Key]] = [(LEDGER_BLOCK, (*place, row.height))] if row.height else []
    stream = view.get(LEDGER_STREAM, stream_key(place, command.write.client))
    released = None if stream is None else released_block(row, stream)
    return heads if released is None else [*heads, (LEDGER_BLOCK, released)]


def _is_large(view: View, where: Key) -> bool:
    block = view.get(LEDGER_BLOCK, where)
    return block is not None and block.size > INLINE_OPERATIONS


def write_many(
    view: View, command: WriteMany, policy: LedgerPolicy, now: Now, is_queued: Callable[[Order], bool]
) -> DecisionResult:
    """Decide transactions in order; the answer is the list of their answers."""
    decided: set[Order | None] = set()

    def comes_first(order: Order) -> bool:
        return command.may_wait and order not in decided and is_queued(order)

    answers: list[Any] = []
    signals: dict[bytes, None] = {}
    for one in command.writes:
        result = write(view, one, policy, now, comes_first)
        if result.later:
            answers.append(WriteWaits())
            continue
        decided.add(order_of(one))
        answers.append(result.answer)
        signals.update(dict.fromkeys(result.signals))
    return DecisionResult(answers, signals=tuple(signals))


def write(
    view: View,
    command: WriteCommand,
    policy: LedgerPolicy,
    now: Now,
    comes_first: Callable[[Order], bool] | None = None,
) -> DecisionResult:
    """Decide a transaction, and commit it if it is new and its conditions hold.

    `comes_first` says whether an earlier transaction of its client is admitted and not decided.
    """
    org = view.get(LEDGER_ORG, (command.write.place.org,))
    place = view.get(LEDGER_PLACE, command.write.place)
    refusal = refuse_write(org, place)
    if refusal is not None or org is None or place is None:
        return DecisionResult(refusal)
    case = case_of(view, command.write, org, place)
    rule = find_rule(case)
    if rule.verdict is WriteVerdict.GAP and _waits(comes_first or view.is_admitted, command, case.last):
        return DecisionResult(None, later=True)
    if rule.verdict not in EXECUTES:
        return DecisionResult(answer_known(view, command, rule, case))
    most = lower_limit(policy.writes_per_second, org.quota_writes)
    after = _counted(next_entry(org, now), now) if most else next_entry(org, now)
    refusal = _refuse_new(view, place, after, most)
    if refusal is not None:
        return DecisionResult(refusal)
    keys = state_keys(command.write.operations)
    before = load_state(view, command.write.place, keys)
    state = dict(before)
    height = place.height + 1
    try:
        apply_operations(command.write.operations, state, height, after.at_seconds)
    except ConditionFailedError as failed:
        return DecisionResult(failed.declined)
    if org.quota_bytes:
        after = after._replace(used_bytes=org.used_bytes + grown(before, state))
        if after.used_bytes > max(org.quota_bytes, org.used_bytes):
            return DecisionResult(_too_much(org))
    try:
        root, stale = store_state(view, command.write.place, height, before, state, frees=place.retain > 0)
    except MissingRowsError:
        demand_pages(view, {command.write.place: keys})
        raise
    committed = build_block(view, command, after, place, case.last + 1, root)
    store_commit(view, command, org, place, committed, stale)
    view.put(LEDGER_PLACE, place._replace(height=height, tip_hash=block_hash(committed.header), state_root=root))
    view.put(LEDGER_ORG, advance_cuts(after))
    return DecisionResult(WriteCommitted(committed), signals=(topic_of(command.write.place),))


def _may_follow(case: WriteCase) -> bool:
    """Whether a write with a gap before it may be executed in this batch, after others of its client."""
    return case.sequence is not None and case.last < case.sequence <= case.last + PIPELINE


def _waits(comes_first: Callable[[Order], bool], command: WriteCommand, last: int) -> bool:
    """Whether every sequence before this one has been admitted and is not decided yet."""
    order = order_of(command)
    assert order is not None
    if order.number > last + PIPELINE:
        return False
    return all(comes_first(order._replace(number=number)) for number in range(last + 1, order.number))


def _refuse_new(view: View, place: PlaceRow, after: OrgRow, most: int) -> Refusal | None:
    """The refusal of a new transaction: its chain is broken, or it exceeds the rate limit."""
    head = view.get(LEDGER_BLOCK, (place.org, place.vault, place.height)) if place.height else None
    if not is_head(place, head):
        return broken_chain(place)
    return _too_many(most) if most and after.in_second > most else None


def _counted(org: OrgRow, now: Now) -> OrgRow:
    """Count one more transaction in this second, by steady time, because the time of the log may stand still."""
    second = now.steady_ms // 1_000
    return org._replace(second=second, in_second=org.in_second + 1 if org.second == second else 1)


def _too_many(most: int) -> Refusal:
    message = f"This organization may commit {most} transactions a second; try again in a second."
    return Refusal("ledger:resource_exhausted", message, retry_after_ms=1_000)


def _too_much(org: OrgRow) -> Refusal:
    message = (
        f"This organization may store {org.quota_bytes} bytes of keys and values, and stores {org.used_bytes}: "
        "delete some entities first."
    )
    return Refusal("ledger:resource_exhausted", message, {"quota": "max_storage_bytes"})
