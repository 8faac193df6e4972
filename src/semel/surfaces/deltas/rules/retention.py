"""Retention: removal of clients without recent requests, and of the log before the checkpoint if so configured.

A checkpoint is made of the merged rows on request, so it covers all of the log, including what was removed. Rows,
tombstones and the ids of deltas are kept: a delta counts once forever, and a cursor that would miss an entry is
refused. The log of a gateway is not trimmed unless its checkpoint is complete (`CheckpointCoverage`).

The cursors of a forgotten client are plain positions. It may have written before, so from then on an unknown client
receives its own entries like those of others.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from semel.engine.contract import DecisionResult, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.hlc import join
from semel.store.protocol import Range
from semel.store.table import Key
from semel.surfaces.deltas.commands import ClientsForgotten, DeltaFlaw, ForgetClients, LogTrimmed, TrimLog
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.model import Delta
from semel.surfaces.deltas.rules.gateways import COUNT_KEY, gateway_of
from semel.surfaces.deltas.rules.last_writer_wins import load_state
from semel.surfaces.deltas.rules.replicas import hour_of
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_LOG,
    DELTA_REPLICA,
    DELTA_ROW,
    DeltaGatewayRow,
    gateway_key,
)

FORGOTTEN_AT_ONCE = 100
"""The number of clients that one write forgets."""
TRIMMED_AT_ONCE = 32
"""The number of log rows that one write removes; a row may be large."""
TRIMS_A_ROUND = 16
"""The number of such writes for one gateway before other gateways are trimmed."""
GATEWAYS_AT_ONCE = 100
COVERED_AT_ONCE = 2_000
"""Limit on the rows of a gateway that one round reads."""

_HALF = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f]")
"""Matches a lone surrogate: nothing else is escaped like this in a canonical text."""


def is_tellable(text: str) -> bool:
    """Whether an id, given as its text, can be part of a checkpoint: it has no lone surrogate."""
    return "\\ud" not in text or _HALF.search(text) is None


def untellable_flaws(fresh: Sequence[tuple[int, Delta]]) -> list[DeltaFlaw]:
    """Flaws of ids that no checkpoint can carry; refused if logs are trimmed, because new clients could not get
    them.
    """
    message = "An id holds half of a surrogate pair, which a checkpoint cannot tell; this server keeps no whole log."
    return [
        DeltaFlaw(index, delta.id.hex(), "VALIDATION_ERROR", message, 422)
        for index, delta in fresh
        if not (is_tellable(delta.row) and is_tellable(delta.client))
    ]


class CheckpointCoverage:
    """Which gateways have a checkpoint of all their rows; checked once in each process, in slices.

    While logs are trimmed, rows that a checkpoint cannot carry are refused, so the result stays true.
    """

    def __init__(self) -> None:
        self._after: dict[bytes, Key | None] = {}
        """The key at which the check of a gateway continues; None if all rows are covered."""
        self._without: set[bytes] = set()

    def covers(self, reading: Reading, gateway: DeltaGatewayRow) -> bool:
        """Whether a checkpoint covers everything; False also if that is not known yet."""
        key = gateway.gateway
        if gateway.cut or key in self._without:
            return bool(gateway.cut)
        after = self._after.get(key, ())
        if after is None:
            return True
        start = (after[0], after[1] + 1) if after else ()
        rows = reading.range(Range(DELTA_ROW, "", (key,), COVERED_AT_ONCE, start=start))
        for row in rows:
            text = row.row_id.decode()
            if not (is_tellable(text) and is_tellable(load_state(text, row.state).last.client)):
                self._without.add(key)
                return False
        self._after[key] = (rows[-1].table_name, rows[-1].number) if len(rows) == COVERED_AT_ONCE else None
        return self._after[key] is None


def chores(reading: Reading, policy: DeltaPolicy, coverage: CheckpointCoverage) -> list[ForgetClients | TrimLog]:
    """The retention writes that are due: a limited number of small ones."""
    found: list[ForgetClients | TrimLog] = []
    if policy.client_ttl_ms:
        found += _unheard(reading, reading.now.expiry_ms - policy.client_ttl_ms)
    if policy.keep_log_ms:
        found += _behind(reading, reading.now.expiry_ms - policy.keep_log_ms, coverage)
    return found


def _unheard(reading: Reading, before_ms: int) -> list[ForgetClients]:
    if before_ms <= 0:
        return []
    rows = reading.range(Range(DELTA_REPLICA, "used", (), FORGOTTEN_AT_ONCE, stop=(before_ms,)))
    by_gateway: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for row in rows:
        if row.used_at < before_ms:  # otherwise a later request is a soft change that is not stored yet
            by_gateway.setdefault(row.gateway, []).append((row.client, row.subject))
    found = []
    for key, clients in by_gateway.items():
        gateway = reading.get(DELTA_GATEWAY, (key,))
        if gateway is not None:
            found.append(ForgetClients(gateway.name.decode(), tuple(clients), before_ms))
    return found


def _behind(reading: Reading, before_ms: int, coverage: CheckpointCoverage) -> list[TrimLog]:
    if before_ms <= 0:
        return []
    found: list[TrimLog] = []
    stop, start = (join(before_ms, 0),), COUNT_KEY
    while True:
        gateways = reading.range(Range(DELTA_GATEWAY, "", (), GATEWAYS_AT_ONCE, start=start))
        for gateway in gateways:
            if (gateway.gateway,) == COUNT_KEY:
                continue
            wanted = Range(DELTA_LOG, "", (gateway.gateway,), TRIMMED_AT_ONCE * TRIMS_A_ROUND, stop=stop)
            positions = [key[1] for key in reading.keys(wanted)]
            if positions and coverage.covers(reading, gateway):
                name = gateway.name.decode()
                found += [
                    TrimLog(name, tuple(positions[place : place + TRIMMED_AT_ONCE]))
                    for place in range(0, len(positions), TRIMMED_AT_ONCE)
                ]
        if len(gateways) < GATEWAYS_AT_ONCE or len(found) >= GATEWAYS_AT_ONCE:
            return found
        start = (gateways[-1].gateway + b"\x00",)


def forget_needs(command: ForgetClients) -> Generator[Stage, View, None]:
    """The gateway and the clients."""
    gateway = gateway_key(command.gateway)
    keys = [(DELTA_REPLICA, (gateway, *client)) for client in command.clients]
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), *keys])


def forget(view: View, command: ForgetClients, now: Now) -> DecisionResult:
    """Forget clients that were not active since. A client without a recorded time gets the present time instead."""
    gateway = gateway_of(view, command.gateway)
    count = 0
    for client in command.clients:
        row = view.get(DELTA_REPLICA, (gateway_key(command.gateway), *client))
        if row is None or gateway is None:
            continue
        if command.before_ms is not None and row.used_at == 0:
            view.put(DELTA_REPLICA, row._replace(used_at=hour_of(now.ms)))
        elif command.before_ms is None or row.used_at < command.before_ms:
            view.delete(DELTA_REPLICA, (row.gateway, row.client, row.subject))
            count += 1
    if gateway is not None and count:
        changed = gateway._replace(replicas=gateway.replicas - count, forgotten_at=gateway.high_water)
        view.put(DELTA_GATEWAY, changed)
    return DecisionResult(ClientsForgotten(count))


def trim_needs(command: TrimLog) -> Generator[Stage, View, None]:
    """The gateway and the rows of the log."""
    gateway = gateway_key(command.gateway)
    keys = [(DELTA_LOG, (gateway, position)) for position in command.positions]
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), *keys])


def trim(view: View, command: TrimLog) -> DecisionResult:
    """Remove the beginning of the log; from then on a cursor before its new beginning is refused."""
    gateway = gateway_of(view, command.gateway)
    assert gateway is not None, "a log belongs to a gateway"
    entries = 0
    for position in command.positions:
        row = view.get(DELTA_LOG, (gateway.gateway, position))
        if row is not None:
            entries += row.op > 0
            view.delete(DELTA_LOG, (gateway.gateway, position))
    cut = max(gateway.cut, *command.positions)
    view.put(DELTA_GATEWAY, gateway._replace(cut=cut, entries=gateway.entries - entries))
    return DecisionResult(LogTrimmed(cut))
