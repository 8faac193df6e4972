"""One transaction, checked and committed: duplicates first, then the rate limit, then conditions, then the block.

Everything that a client may later ask about is written in the same commit as the effect: the block with its commit, the
client's sequence and key, the state and its tree, the tip, the count of the log. A crash leaves all of it or none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from semel.engine.contract import DecisionResult, MissingRowsError, Order, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.ledger.commands import (
    CommittedTransaction,
    WriteCommand,
    WriteCommitted,
    WriteMany,
    WriteWaits,
)
from semel.surfaces.ledger.limits import PIPELINE, LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.chain import block_hash, is_head, state_key, state_keys
from semel.surfaces.ledger.rules.commits import (
    build_block,
    case_of,
    commit_ranges,
    current_stream,
    released_block,
    store_commit,
    stream_key,
)
from semel.surfaces.ledger.rules.group_rows import PageCache, TreeChanges, WorkingOrg, WorkingPlace, WorkingRows
from semel.surfaces.ledger.rules.idempotency import (
    EXECUTES,
    KnownWriteAnswer,
    WriteCase,
    WriteVerdict,
    answer_known,
    find_rule,
)
from semel.surfaces.ledger.rules.organizations import broken_chain, lower_limit, refuse_write
from semel.surfaces.ledger.rules.state import (
    ConditionFailedError,
    State,
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
)


def topic_of(place: LedgerPlace) -> bytes:
    """The topic of subscribers to the blocks of a place."""
    return b"ledger:%d/%d" % place


def order_of(command: WriteCommand) -> Order | None:
    """The position of a write in its client's sequence; None without one."""
    if command.write.sequence is None:
        return None
    return Order(b"ledger:%d/%d:%s" % (*command.write.place, command.write.client), command.write.sequence)


def write_needs(commands: Sequence[WriteCommand], cache: PageCache) -> Generator[Stage, View, None]:
    """First the rows for duplicates and conditions; then the rows that the writes need if they are executed."""
    first: dict[tuple[AnyTable, Key], None] = {(LEDGER_TERM, ALONE): None}
    paths: dict[LedgerPlace, dict[bytes, None]] = {}
    for command in commands:
        write = command.write
        place = write.place
        keys = paths.get(place)
        if keys is None:
            keys = paths[place] = {}
            first[LEDGER_ORG, (place.org,)] = first[LEDGER_PLACE, place] = first[LEDGER_TOPS, place] = None
        first[LEDGER_STREAM, (*place, write.client)] = None
        if write.key:
            first[LEDGER_KEY, (*place, write.client, write.key)] = None
        for operation in write.operations:
            key = state_key(operation)
            keys[key] = first[LEDGER_ENTITY, (*place, key)] = None
    view = yield Stage(keys=first)
    commits = [_commits(view, command) for command in commands]
    if any(commits):
        yield Stage(ranges=[wanted for some in commits for wanted in some])
        paths = _executed_keys(view, commands, commits)
    beside = _heads(view, paths)
    if any(commits):
        beside.update(dict.fromkeys(_known_bodies(view, commands, commits)))
    if any(row is not None and row.retain for row in (view.get(LEDGER_PLACE, place) for place in paths)):
        beside.update(dict.fromkeys(_released(view, commands)))
    yield from page_needs(view, paths, cache, list(beside))


def _executed_keys(
    view: View, commands: Sequence[WriteCommand], commits: Sequence[Sequence[Range]]
) -> dict[LedgerPlace, dict[bytes, None]]:
    """The keys of the writes that may be executed: those without a remembered commit, by place."""
    paths: dict[LedgerPlace, dict[bytes, None]] = {}
    for command, some in zip(commands, commits, strict=True):
        case = _case(view, command) if some else None
        if case is None or find_rule(case).verdict in EXECUTES:
            keys = dict.fromkeys(state_keys(command.write.operations))
            paths.setdefault(command.write.place, {}).update(keys)
    return paths


def _case(view: View, command: WriteCommand) -> WriteCase | None:
    place = command.write.place
    org, row = view.get(LEDGER_ORG, (place.org,)), view.get(LEDGER_PLACE, place)
    return None if org is None or row is None else case_of(view, command.write, org, row)


def _known_bodies(
    view: View, commands: Sequence[WriteCommand], commits: Sequence[Sequence[Range]]
) -> Iterator[tuple[AnyTable, Key]]:
    """The operations of remembered commits that are not in the rows of their blocks."""
    for command, some in zip(commands, commits, strict=True):
        case = _case(view, command) if some else None
        if case is not None:
            yield from _bodies(view, command.write.place, case)


def _heads(view: View, paths: Iterable[LedgerPlace]) -> dict[tuple[AnyTable, Key], None]:
    """The last blocks of places."""
    rows = (view.get(LEDGER_PLACE, place) for place in paths)
    return {(LEDGER_BLOCK, (*row[:2], row.height)): None for row in rows if row is not None and row.height}


def _released(view: View, commands: Sequence[WriteCommand]) -> Iterator[tuple[AnyTable, Key]]:
    """The last blocks of clients that are kept only because they are the last ones."""
    for command in commands:
        place = command.write.place
        row, stream = view.get(LEDGER_PLACE, place), view.get(LEDGER_STREAM, stream_key(place, command.write.client))
        key = None if row is None or stream is None else released_block(row, stream)
        if key is not None:
            yield LEDGER_BLOCK, key


def _commits(view: View, command: WriteCommand) -> list[Range]:
    """The commits to compare a write with; none if it is new, or its sequence is ahead of the last one."""
    org = view.get(LEDGER_ORG, (command.write.place.org,))
    return [] if org is None else commit_ranges(view, command.write, org)


def _bodies(view: View, place: LedgerPlace, case: WriteCase) -> list[tuple[AnyTable, Key]]:
    """The operations of remembered commits that are not in the rows of their blocks."""
    heights = {past.height for past in (case.by_key, case.by_sequence) if past is not None}
    return [(LEDGER_BODY, (*place, height)) for height in heights if _is_large(view, (*place, height))]


def _is_large(view: View, where: Key) -> bool:
    block = view.get(LEDGER_BLOCK, where)
    return block is not None and block.size > INLINE_OPERATIONS


class ManyAnswers(NamedTuple):
    """The answers to the transactions of a group, in order, and the changes of the tree for the cache."""

    answers: list[Any]
    tree: TreeChanges


def write_many(
    view: View,
    command: WriteMany,
    policy: LedgerPolicy,
    now: Now,
    cache: PageCache,
    is_queued: Callable[[Order], bool],
) -> DecisionResult:
    """Decide transactions in order, each on its own."""
    waiting: list[WriteCommand] = []

    def comes_first(order: Order) -> bool:
        """Whether an earlier transaction is in the queue: in a later group, or before this one and waiting too."""
        if not command.may_wait or not is_queued(order):
            return False
        decided = {order_of(one) for one in command.writes[: len(answers)] if one not in waiting}
        return order not in decided

    rows = WorkingRows(view, cache)
    answers: list[Any] = []
    signals: dict[bytes, None] = {}
    try:
        for one in command.writes:
            answer = _decide(rows, one, policy, now, comes_first)
            answers.append(answer)
            if answer.__class__ is WriteWaits:
                waiting.append(one)
            if answer.__class__ is WriteCommitted:
                signals[topic_of(one.write.place)] = None
    except MissingRowsError:
        _demand_all(view, command.writes, cache)
        raise
    rows.store()
    return DecisionResult(ManyAnswers(answers, rows.tree), signals=tuple(signals))


def write(view: View, command: WriteCommand, policy: LedgerPolicy, now: Now, cache: PageCache) -> DecisionResult:
    """Decide one transaction, and commit it if it is new and its conditions hold."""
    rows = WorkingRows(view, cache)
    try:
        answer = _decide(rows, command, policy, now, view.is_admitted)
    except MissingRowsError:
        _demand_all(view, (command,), cache)
        raise
    if isinstance(answer, WriteWaits):
        return DecisionResult(None, later=True)
    rows.store()
    is_new = isinstance(answer, WriteCommitted)
    return DecisionResult(answer, signals=(topic_of(command.write.place),) if is_new else ())


def _demand_all(view: View, commands: Sequence[WriteCommand], cache: PageCache) -> None:
    """Demand the pages of all transactions at once if any are missing."""
    keys: dict[LedgerPlace, dict[bytes, None]] = {}
    for command in commands:
        if view.get(LEDGER_PLACE, command.write.place) is not None:
            keys.setdefault(command.write.place, {}).update(dict.fromkeys(state_keys(command.write.operations)))
    demand_pages(view, keys, cache)


def _decide(
    rows: WorkingRows, command: WriteCommand, policy: LedgerPolicy, now: Now, comes_first: Callable[[Order], bool]
) -> WriteCommitted | WriteWaits | KnownWriteAnswer:
    """Decide a transaction; `comes_first` says whether an earlier one of its client is admitted and not decided."""
    view, write = rows.view, command.write
    org, tip = rows.org(write.place.org), rows.place(write.place)
    refusal = refuse_write(None if org is None else org.before, None if tip is None else tip.before)
    if refusal is not None or org is None or tip is None:
        assert refusal is not None, "a place without a row is refused"
        return refusal
    case = case_of(view, write, org, tip)
    rule = find_rule(case)
    if rule.verdict not in EXECUTES:
        if rule.verdict is WriteVerdict.GAP and _waits(comes_first, command, case.last):
            return WriteWaits()
        return answer_known(view, command, rule, case)
    most = lower_limit(policy.writes_per_second, org.before.quota_writes)
    refusal = _refuse_new(view, tip, org, most, now)
    if refusal is not None:
        return refusal
    at = org.next_time(now)
    before = load_state(view, write.place, write.operations)
    state = dict(before)
    try:
        apply_operations(write.operations, state, tip.height + 1, at[0])
    except ConditionFailedError as failed:
        return failed.declined
    quota = org.before.quota_bytes
    used = org.used_bytes + grown(before, state) if quota else org.used_bytes
    if used > max(quota, org.used_bytes):
        return _too_much(org)
    if most:
        org.in_second = _in_second(org, now)
        org.second = now.steady_ms // 1_000
    return WriteCommitted(commit_transaction(rows, command, org, tip, at, before, state))


def commit_transaction(
    rows: WorkingRows,
    command: WriteCommand,
    org: WorkingOrg,
    tip: WorkingPlace,
    at: tuple[int, int],
    before: State,
    after: State,
) -> CommittedTransaction:
    """Commit a transaction that changes the state in this way: the next block of its place, the next sequence of its
    client, and the next entry of the log, at its time.
    """
    view = rows.view
    root, stale = store_state(rows, tip, before, after)
    stream = current_stream(view, org, command.write)
    last, life = (0, tip.height + 1) if stream is None else (stream.last, stream.life)
    org.enter(at)
    if org.before.quota_bytes:
        org.used_bytes += grown(before, after)
    committed = build_block(view, command, org, tip, last + 1, root)
    store_commit(view, command, life, tip, committed, stale)
    tip.height, tip.tip_hash, tip.state_root = tip.height + 1, block_hash(committed.header), root
    return committed


def _waits(comes_first: Callable[[Order], bool], command: WriteCommand, last: int) -> bool:
    """Whether every sequence before this one has been admitted and is not decided yet."""
    order = order_of(command)
    assert order is not None
    if order.number > last + PIPELINE:
        return False
    return all(comes_first(order._replace(number=number)) for number in range(last + 1, order.number))


def _refuse_new(view: View, tip: WorkingPlace, org: WorkingOrg, most: int, now: Now) -> Refusal | None:
    """The refusal of a new transaction: its chain is broken, or it exceeds the rate limit."""
    if not is_sound(view, tip):
        return broken_chain(tip.before)
    return _too_many(most) if most and _in_second(org, now) > most else None


def is_sound(view: View, tip: WorkingPlace) -> bool:
    """Whether the tip of a place names its last block; compared once in a decision."""
    if not tip.is_checked:
        head = view.get(LEDGER_BLOCK, (*tip.place, tip.height)) if tip.height else None
        tip.is_checked = is_head(tip.before, head)
    return tip.is_checked


def _in_second(org: WorkingOrg, now: Now) -> int:
    """The transactions of this second with one more, by steady time, because the time of the log may stand still."""
    return org.in_second + 1 if org.second == now.steady_ms // 1_000 else 1


def _too_many(most: int) -> Refusal:
    message = f"This organization may commit {most} transactions a second; try again in a second."
    return Refusal("ledger:resource_exhausted", message, retry_after_ms=1_000)


def _too_much(org: WorkingOrg) -> Refusal:
    message = (
        f"This organization may store {org.before.quota_bytes} bytes of keys and values, and stores {org.used_bytes}: "
        "delete some entities first."
    )
    return Refusal("ledger:resource_exhausted", message, {"quota": "max_storage_bytes"})
