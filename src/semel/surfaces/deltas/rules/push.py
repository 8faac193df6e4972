"""A push: all of its deltas are stored, or none.

| step | checks | result |
|---|---|---|
| 8 | the known ids | known deltas are acknowledged, and not checked any further |
| 9 | the schema of the table | 422 for a column that it does not have |
| 10 | the store's clock | 409 for a delta from too far ahead |
| 12 | the row | the delta is recorded, its effect becomes an entry, its author gets a repair where it lost |

The parser makes the earlier steps, which need no rows. Everything is computed before the first row is changed, so a
refusal leaves no trace; bodies, ids, row states, entries and the client's progress are one commit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import orjson

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.hlc import MAX_DRIFT_MS, drift_ms, tick
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.deltas.commands import (
    DeltaFlaw,
    DeltasPushed,
    InspectPush,
    PushDeltas,
    PushInspected,
    refusal_of,
)
from semel.surfaces.deltas.limits import FIRST_ROWS, MAX_TOUCHED_BYTES, DeltaPolicy
from semel.surfaces.deltas.model import Delta
from semel.surfaces.deltas.rules.cursors import ReplicaProgress
from semel.surfaces.deltas.rules.gateways import gateway_of, new_gateway
from semel.surfaces.deltas.rules.last_writer_wins import last_of_others
from semel.surfaces.deltas.rules.log import GatewayLog
from semel.surfaces.deltas.rules.repairs import repair_all
from semel.surfaces.deltas.rules.replicas import (
    is_new,
    progress_key,
    progress_of,
    save_progress,
    subject_of,
    too_many,
    touches_of,
)
from semel.surfaces.deltas.rules.retention import untellable_flaws
from semel.surfaces.deltas.rules.rows import NumberedDelta, PushedRows, are_too_heavy, row_keys, row_needs
from semel.surfaces.deltas.tables import (
    DELTA_AUTHOR,
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LEGACY_ID,
    DELTA_REPLICA,
    DELTA_ROW_NUMBER,
    DELTA_SCHEMA,
    DeltaGatewayRow,
    DeltaIdRow,
    DeltaLegacyIdRow,
    gateway_key,
    text_key,
)
from semel.surfaces.epoch import EPOCH, EPOCH_KEY

_TOO_HEAVY = f"The rows of this push hold more than {MAX_TOUCHED_BYTES} bytes together; push fewer of them at a time."


def topic_of(gateway: str) -> bytes:
    """The topic of live readers of a gateway."""
    return b"deltas:" + gateway_key(gateway)


def push_needs(command: PushDeltas, policy: DeltaPolicy) -> Generator[Stage, View, None]:
    """The gateway, the ids, the rows and schemas of the push, and the progress of its authors.

    Rows may be large: they are loaded a few at a time, up to the limit. A long push may consist of known deltas, whose
    rows are not looked up.
    """
    gateway = gateway_key(command.replica.gateway)
    keys: dict[tuple[AnyTable, Key], None] = {
        (DELTA_GATEWAY, (gateway,)): None,
        (EPOCH, EPOCH_KEY): None,
    }
    if not command.is_plain:
        keys[DELTA_REPLICA, progress_key(command.replica)] = None
        keys[DELTA_AUTHOR, (gateway, text_key(command.replica.client))] = None
    for table in dict.fromkeys(delta.table for delta in command.deltas):
        keys[DELTA_SCHEMA, (gateway, table.encode())] = None
    for author in dict.fromkeys(delta.client for delta in command.deltas if delta.client != command.replica.client):
        keys[DELTA_REPLICA, progress_key(subject_of(command, author))] = None
        keys[DELTA_AUTHOR, (gateway, text_key(author))] = None
    ids = [(DELTA_ID, (gateway, delta.hlc, delta.id)) for delta in command.deltas]
    if not policy.checks_ids:
        keys.update(dict.fromkeys((DELTA_LEGACY_ID, (gateway, delta.id)) for delta in command.deltas))
    is_short = len(command.deltas) <= FIRST_ROWS
    first = [(DELTA_ROW_NUMBER, key) for key in row_keys(gateway, command.deltas)] if is_short else []
    view = yield Stage(keys=[*keys, *ids, *first])
    unknown = row_keys(gateway, [delta for _, delta in _unknown(view, command, policy)])
    yield from row_needs(view, unknown, are_numbered=is_short)


def push(view: View, command: PushDeltas, policy: DeltaPolicy, now: Now) -> DecisionResult:
    """Decide a push."""
    name = command.replica.gateway
    fresh = _unknown(view, command, policy)
    found = gateway_of(view, name)
    refusal = _refusal(view, command, fresh, found, now, keeps_all=not policy.keep_log_ms)
    if refusal is not None:
        return DecisionResult(refusal)
    if not fresh and (command.goes_on or not command.has_begun):
        again = _again(view, command, found, now)
        if again is not None:
            return again
    gateway = found or new_gateway(view, name, policy)
    if isinstance(gateway, Refusal):
        return DecisionResult(gateway)
    if not command.goes_on and not command.is_plain and is_new(view, command.replica):
        refusal = too_many(gateway, policy)
        if refusal is not None:
            return DecisionResult(refusal)
        gateway = gateway._replace(replicas=gateway.replicas + 1)
    log = GatewayLog(gateway)
    rows = PushedRows(view, log)
    for _, delta in fresh:
        rows.add(delta)
        if log.recorder is not None and _may_need_repairs(command, delta):
            log.note_insert(delta.client)  # the author may hold a row that no entry will tell it about
    repair_all(view, command, log, rows.states(delta for _, delta in fresh if _may_need_repairs(command, delta)))
    flaws = rows.flaws(fresh)
    if flaws:
        return DecisionResult(refusal_of(flaws))
    rows.save()
    _remember(view, log, policy)
    server_hlc = log.high_water if command.goes_on else _number(view, command, log, now)
    log.save(view, new_rows=rows.made)
    first = log.rows[0].position if command.is_plain and log.rows else 0
    known = len(command.deltas) - len(fresh)
    answer = DeltasPushed(
        server_hlc, len(command.deltas), known, tuple(log.entries), first, _known(command, fresh) if known else ()
    )
    return DecisionResult(answer, (topic_of(name),) if log.rows else ())


def _may_need_repairs(command: PushDeltas, delta: Delta) -> bool:
    """Whether the author of a delta may need a repair; in the plain dialect the answer carries it."""
    return not command.is_plain or delta.client != command.replica.client


def _number(view: View, command: PushDeltas, log: GatewayLog, now: Now) -> int:
    """The number that answers a push, and its meaning as a cursor of the client."""
    if command.is_plain:
        return log.tick(now.wall_ms, is_behind=False)
    progress = progress_of(view, command, command.replica)
    is_behind = _is_behind(view, command, log, progress)
    number = log.tick(now.wall_ms, is_behind=is_behind)
    save_progress(view, command.replica, progress.pushed(number, is_behind=is_behind), now)
    return number


def _refusal(
    view: View,
    command: PushDeltas,
    fresh: Sequence[NumberedDelta],
    found: DeltaGatewayRow | None,
    now: Now,
    *,
    keeps_all: bool,
) -> Refusal | None:
    """The refusal of a push by the checks before it is applied; None if it passes."""
    key = gateway_key(command.replica.gateway)
    flaws = _flaws(view, key, fresh, now, keeps_all=keeps_all)
    refusal = refusal_at(flaws, _server_hlc(found, now))
    if refusal is not None:
        return refusal
    is_too_heavy = are_too_heavy(view, row_keys(key, (delta for _, delta in fresh)))
    return Refusal("deltas:VALIDATION_ERROR", _TOO_HEAVY, own_status=413) if is_too_heavy else None


def _server_hlc(found: DeltaGatewayRow | None, now: Now) -> int:
    return tick(0 if found is None else found.high_water, now.wall_ms)


def _flaws(
    view: View, gateway: bytes, fresh: Sequence[NumberedDelta], now: Now, *, keeps_all: bool
) -> tuple[Sequence[DeltaFlaw], ...]:
    """The flaws of deltas, step by step."""
    untellable = [] if keeps_all else untellable_flaws(fresh)
    return _schema_flaws(view, gateway, fresh), untellable, _drift_flaws(fresh, now.wall_ms)


def refusal_at(flaws: tuple[Sequence[DeltaFlaw], ...], server_hlc: int) -> Refusal | None:
    """The refusal by the first step that has found a flaw; one for a wrong clock includes the server's time."""
    schema, untellable, drift = flaws
    if schema or untellable:
        return refusal_of(schema or untellable)
    if not drift:
        return None
    refusal = refusal_of(drift)
    return refusal._replace(facts={**refusal.facts, "server_hlc": server_hlc})


def inspect_needs(command: InspectPush, policy: DeltaPolicy) -> Generator[Stage, View, None]:
    """The gateway, the row of each id, and the schemas."""
    push = command.push
    gateway = gateway_key(push.replica.gateway)
    keys: dict[tuple[AnyTable, Key], None] = {(DELTA_GATEWAY, (gateway,)): None}
    for delta in push.deltas:
        keys[DELTA_ID, (gateway, delta.hlc, delta.id)] = None
        keys[DELTA_SCHEMA, (gateway, delta.table.encode())] = None
        if not policy.checks_ids:
            keys[DELTA_LEGACY_ID, (gateway, delta.id)] = None
    yield Stage(keys=keys)


def inspect(view: View, command: InspectPush, policy: DeltaPolicy, now: Now) -> DecisionResult:
    """Check deltas by the steps before they are applied."""
    push = command.push
    key = gateway_key(push.replica.gateway)
    fresh = _unknown(view, push, policy)
    flaws = _flaws(view, key, fresh, now, keeps_all=not policy.keep_log_ms)
    return DecisionResult(PushInspected(flaws, _server_hlc(view.get(DELTA_GATEWAY, (key,)), now)))


def _unknown(view: View, command: PushDeltas, policy: DeltaPolicy) -> list[NumberedDelta]:
    """The deltas that are not known yet, each once, with their indexes in the push."""
    gateway = gateway_key(command.replica.gateway)
    fresh: list[NumberedDelta] = []
    here: set[bytes] = set()
    for index, delta in enumerate(command.deltas, command.start):
        if delta.id in here or view.get(DELTA_ID, (gateway, delta.hlc, delta.id)) is not None:
            continue
        if not policy.checks_ids and view.get(DELTA_LEGACY_ID, (gateway, delta.id)) is not None:
            continue
        here.add(delta.id)
        fresh.append((index, delta))
    return fresh


def _schema_flaws(view: View, gateway: bytes, fresh: Sequence[NumberedDelta]) -> list[DeltaFlaw]:
    flaws = []
    known: dict[str, frozenset[str] | None] = {}
    for index, delta in fresh:
        if delta.table not in known:
            row = view.get(DELTA_SCHEMA, (gateway, delta.table.encode()))
            known[delta.table] = None if row is None else frozenset(orjson.loads(row.columns))
        columns = known[delta.table]
        if columns is None:
            continue
        strange = next((column.name for column in delta.columns if column.name not in columns), None)
        if strange is not None:
            message = f"The table {delta.table} has no column {strange}."
            flaws.append(DeltaFlaw(index, delta.id.hex(), "SCHEMA_ERROR", message, 422))
    return flaws


def _drift_flaws(fresh: Sequence[NumberedDelta], now_ms: int) -> list[DeltaFlaw]:
    flaws = []
    for index, delta in fresh:
        ahead = drift_ms(delta.hlc, now_ms)
        if ahead:
            message = f"The hlc is {ahead} ms ahead of this server's clock; at most {MAX_DRIFT_MS} ms are taken."
            flaws.append(DeltaFlaw(index, delta.id.hex(), "CLOCK_DRIFT", message, 409))
    return flaws


def _remember(view: View, log: GatewayLog, policy: DeltaPolicy) -> None:
    pushed = [row for row in log.rows if row.pushed]
    view.insert_all(DELTA_ID, [DeltaIdRow(row.gateway, row.hlc, row.id, row.position) for row in pushed])
    if not policy.checks_ids:
        view.insert_all(DELTA_LEGACY_ID, [DeltaLegacyIdRow(row.gateway, row.id, row.position) for row in pushed])


def _is_behind(view: View, command: PushDeltas, log: GatewayLog, progress: ReplicaProgress) -> bool:
    """Whether entries are outstanding: of other clients, or a repair."""
    client = command.replica.client
    row = view.get(DELTA_AUTHOR, (log.gateway.gateway, text_key(client)))
    repaired_at = log.repaired.get(client, 0 if row is None else row.repaired_at)
    return (
        progress.muted > progress.seen  # it has begun again, and its earlier entries are outstanding
        or repaired_at > progress.seen
        or log.recorder is not None  # it may have moved a row out of its own view
        or last_of_others(log.authors, client, progress.seen) is not None
    )


def _again(view: View, command: PushDeltas, gateway: DeltaGatewayRow | None, now: Now) -> DecisionResult | None:
    """The answer to a push without new deltas, if it needs no commit; otherwise None."""
    if command.goes_on:
        return DecisionResult(_repeated(command, 0))
    if command.is_plain:
        return DecisionResult(_repeated(command, 0 if gateway is None else gateway.high_water))
    if gateway is None:
        return None
    row = view.get(DELTA_REPLICA, progress_key(command.replica))
    if row is None:
        return None
    progress = progress_of(view, command, command.replica)
    is_behind = _is_behind(view, command, GatewayLog(gateway), progress)
    told = progress.again(is_behind=is_behind, high_water=gateway.high_water)
    if told is None or any(delta.hlc >= told for delta in command.deltas):
        return None
    touches = touches_of(command.replica, row, 0, now.ms)
    return DecisionResult(_repeated(command, told), touches=touches)


def _repeated(command: PushDeltas, number: int) -> DeltasPushed:
    """The answer to a push whose deltas were all known before."""
    count = len(command.deltas)
    return DeltasPushed(number, count, count, (), known=_known(command, ()))


def _known(command: PushDeltas, fresh: Sequence[NumberedDelta]) -> tuple[bytes, ...]:
    """The ids of the deltas that were known before, in their order."""
    new = {delta.id for _, delta in fresh}
    return tuple([delta.id for delta in command.deltas if delta.id not in new])
