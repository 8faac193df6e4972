"""Write: decides and commits one transaction: duplicates first, then the rate limit, conditions, and the block.

Everything that a client may later ask about is written in the same commit as the effect: header and body, the commit
under its sequence and key, the client's sequence, the state and its tree, the tip, the log's count. A crash leaves all
of it or none.
"""

from __future__ import annotations

from collections.abc import Generator

from semel.contracts.ledger.commands import Refusal, WriteCommand, Written
from semel.contracts.ledger.limits import PIPELINE, Policy
from semel.contracts.ledger.model import Place
from semel.contracts.ledger.rules.answers import answer_known
from semel.contracts.ledger.rules.blocks import build_block, store_block, store_commit
from semel.contracts.ledger.rules.chain import block_hash
from semel.contracts.ledger.rules.encoding import state_keys
from semel.contracts.ledger.rules.judgement import EXECUTES, Case, Verdict, judge
from semel.contracts.ledger.rules.log import broken_chain, lower_limit, next_entry, refuse_write
from semel.contracts.ledger.rules.memory import case_of, commit_keys, moved_cuts, stream_key
from semel.contracts.ledger.rules.operations import ConditionFailedError, carry_out
from semel.contracts.ledger.rules.records import is_head
from semel.contracts.ledger.rules.state import demand_pages, grown, load_state, page_needs, store_state
from semel.contracts.ledger.tables import (
    ALONE,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_COMMIT,
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
from semel.engine.contract import MissingRowsError, Order, Outcome, Stage, View
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable
from semel.store.table import Key


def topic_of(place: Place) -> bytes:
    """The topic of subscribers to the blocks of a place."""
    return b"ledger:%d/%d" % place


def order_of(command: WriteCommand) -> Order | None:
    """The place of a write in its client's sequence, if it names one."""
    if command.write.sequence is None:
        return None
    return Order(b"ledger:%d/%d:%s" % (*command.write.place, command.write.client), command.write.sequence)


def write_needs(command: WriteCommand) -> Generator[Stage, View, None]:
    """First what identities and conditions are judged by; then what the judgement so far says will be needed."""
    place = command.write.place
    keys = state_keys(command.write.operations)
    first: list[tuple[AnyTable, Key]] = [
        (LEDGER_TERM, ALONE),
        (LEDGER_ORG, (place.org,)),
        (LEDGER_PLACE, place),
        (LEDGER_STREAM, stream_key(place, command.write.client)),
        (LEDGER_TOPS, place),
        *((LEDGER_ENTITY, (*place, key)) for key in keys),
    ]
    if command.write.key:
        first.append((LEDGER_KEY, (*place, command.write.client, command.write.key)))
    view = yield Stage(keys=first)
    org, row = view.get(LEDGER_ORG, (place.org,)), view.get(LEDGER_PLACE, place)
    if org is None or row is None:
        return
    commits = commit_keys(view, command.write, org)
    if commits:
        yield Stage(keys=[(LEDGER_COMMIT, key) for key in commits])
    case = case_of(view, command.write, org, row)
    if judge(case).verdict in EXECUTES or _may_follow(case):
        head: list[tuple[AnyTable, Key]] = [(LEDGER_BLOCK, (*place, row.height))] if row.height else []
        yield from page_needs(view, place, keys, head)
        return
    heights = {past.height for past in (case.by_key, case.by_sequence) if past is not None}
    blocks: tuple[AnyTable, ...] = (LEDGER_BLOCK, LEDGER_BODY)
    yield Stage(keys=[(table, (*place, height)) for height in heights for table in blocks])


def write(view: View, command: WriteCommand, policy: Policy, now: Now) -> Outcome:
    """Judge a transaction, and commit it if it is new and its conditions hold."""
    org = view.get(LEDGER_ORG, (command.write.place.org,))
    place = view.get(LEDGER_PLACE, command.write.place)
    refusal = refuse_write(org, place)
    if refusal is not None or org is None or place is None:
        return Outcome(refusal)
    case = case_of(view, command.write, org, place)
    rule = judge(case)
    if rule.verdict is Verdict.GAP and _waits(view, command, case.last):
        return Outcome(None, later=True)
    if rule.verdict not in EXECUTES:
        return Outcome(answer_known(view, command, rule, case))
    most = lower_limit(policy.writes_per_second, org.quota_writes)
    after = _counted(next_entry(org, now), now) if most else next_entry(org, now)
    refusal = _refuse_new(view, place, after, most)
    if refusal is not None:
        return Outcome(refusal)
    keys = state_keys(command.write.operations)
    before = load_state(view, command.write.place, keys)
    state = dict(before)
    height = place.height + 1
    try:
        carry_out(command.write.operations, state, height, after.at_seconds)
    except ConditionFailedError as failed:
        return Outcome(failed.declined)
    if org.quota_bytes:
        after = after._replace(used_bytes=org.used_bytes + grown(before, state))
        if after.used_bytes > max(org.quota_bytes, org.used_bytes):
            return Outcome(_too_much(org))
    try:
        root, stale = store_state(view, command.write.place, height, before, state)
    except MissingRowsError:
        demand_pages(view, command.write.place, keys)
        raise
    committed = build_block(view, command, after, place, case.last + 1, root)
    life = store_commit(view, command, org, place, committed)
    store_block(view, command, committed, life, stale if place.retain else b"")
    view.put(LEDGER_PLACE, place._replace(height=height, tip_hash=block_hash(committed.header), state_root=root))
    view.put(LEDGER_ORG, moved_cuts(after))
    return Outcome(Written(committed), signals=(topic_of(command.write.place),))


def _may_follow(case: Case) -> bool:
    """Whether a write with a gap before it may be executed in this very batch, behind others of its client."""
    return case.sequence is not None and case.last < case.sequence <= case.last + PIPELINE


def _waits(view: View, command: WriteCommand, last: int) -> bool:
    """Whether every sequence before this one has been admitted and is still to be decided."""
    order = order_of(command)
    assert order is not None
    if order.number > last + PIPELINE:
        return False
    return all(view.is_admitted(order._replace(number=number)) for number in range(last + 1, order.number))


def _refuse_new(view: View, place: PlaceRow, after: OrgRow, most: int) -> Refusal | None:
    """The refusal of a new transaction: its chain is broken, or it exceeds the rate limit."""
    head = view.get(LEDGER_BLOCK, (place.org, place.vault, place.height)) if place.height else None
    if not is_head(place, head):
        return broken_chain(place)
    return _too_many(most) if most and after.in_second > most else None


def _counted(org: OrgRow, now: Now) -> OrgRow:
    """Count one more in this second, by steady time: the log's own time may not move for a while."""
    second = now.steady_ms // 1_000
    return org._replace(second=second, in_second=org.in_second + 1 if org.second == second else 1)


def _too_many(most: int) -> Refusal:
    message = f"This organization may commit {most} transactions a second; try again in a second."
    return Refusal("resource_exhausted", message, retry_after_ms=1_000)


def _too_much(org: OrgRow) -> Refusal:
    message = (
        f"This organization may hold {org.quota_bytes} bytes of keys and values, and holds {org.used_bytes}: "
        "delete something first."
    )
    return Refusal("resource_exhausted", message, {"quota": "max_storage_bytes"})
