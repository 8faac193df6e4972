"""Retention: forgets inactive clients, and cuts the log behind the checkpoint if an operator says so.

A checkpoint is made from the merged rows on request, so it covers all of the log, whatever of it is left. Rows,
tombstones and the ids of deltas stay: a delta counts once for ever, and a cursor that would miss something is refused.
Nothing is removed from a gateway whose rows no checkpoint can carry (`Coverage`).

The cursors of a forgotten client have no aliases any more. It may have written before, so from then on an unknown
client gets its own entries as those of others.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from semel.contracts.deltas.commands import Forget, Forgotten, Trim, Trimmed
from semel.contracts.deltas.limits import Policy
from semel.contracts.deltas.model import Delta
from semel.contracts.deltas.refusals import Flaw
from semel.contracts.deltas.rules.gateways import COUNT_KEY, gateway_of
from semel.contracts.deltas.rules.replicas import hour_of
from semel.contracts.deltas.rules.rows import load_state
from semel.contracts.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_LOG,
    DELTA_REPLICA,
    DELTA_ROW,
    DeltaGatewayRow,
    gateway_key,
)
from semel.engine.contract import Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.hlc import join
from semel.store.protocol import Range
from semel.store.table import Key

FORGOTTEN_AT_ONCE = 100
"""Clients that one write forgets."""
TRIMMED_AT_ONCE = 32
"""Rows of the log that one write removes; one may be large."""
TRIMS_A_ROUND = 16
"""Such writes of one gateway before the others have their turn."""
GATEWAYS_AT_ONCE = 100
COVERED_AT_ONCE = 2_000
"""Limit of rows of a gateway that one round reads."""

_HALF = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f]")
"""In a text only half of a surrogate pair is escaped like this."""


def is_tellable(text: str) -> bool:
    """Whether an id can be part of a checkpoint, from its text: half of a surrogate pair cannot."""
    return "\\ud" not in text or _HALF.search(text) is None


def untellable_flaws(fresh: Sequence[tuple[int, Delta]]) -> list[Flaw]:
    """Flaws of ids that no checkpoint can carry; refused where logs are cut, since new clients could not get them."""
    message = "An id holds half of a surrogate pair, which a checkpoint cannot tell; this server keeps no whole log."
    return [
        Flaw(index, delta.id.hex(), "VALIDATION_ERROR", message, 422)
        for index, delta in fresh
        if not (is_tellable(delta.row) and is_tellable(delta.client))
    ]


class Coverage:
    """Which gateways have a checkpoint for all of their rows; checked once for each process, in slices.

    While logs are cut no row comes in that cannot be told, so what was found stays true.
    """

    def __init__(self) -> None:
        self._after: dict[bytes, Key | None] = {}
        """The key at which the check of a gateway continues; None where all rows are covered."""
        self._without: set[bytes] = set()

    def covers(self, reading: Reading, gateway: DeltaGatewayRow) -> bool:
        """Whether a checkpoint covers everything; False also when that is not known yet."""
        key = gateway.gateway
        if gateway.cut or key in self._without:
            return bool(gateway.cut)
        after = self._after.get(key, ())
        if after is None:
            return True
        start = (after[0], after[1] + b"\x00") if after else ()
        rows = reading.range(Range(DELTA_ROW, "", (key,), COVERED_AT_ONCE, start=start))
        for row in rows:
            text = row.row_id.decode()
            if not (is_tellable(text) and is_tellable(load_state(text, row.state).last.client)):
                self._without.add(key)
                return False
        self._after[key] = (rows[-1].table_name, rows[-1].row_key) if len(rows) == COVERED_AT_ONCE else None
        return self._after[key] is None


def chores(reading: Reading, policy: Policy, coverage: Coverage) -> list[Forget | Trim]:
    """The retention writes that are due: a limited number of small ones."""
    found: list[Forget | Trim] = []
    if policy.client_ttl_ms:
        found += _unheard(reading, reading.now.expiry_ms - policy.client_ttl_ms)
    if policy.keep_log_ms:
        found += _behind(reading, reading.now.expiry_ms - policy.keep_log_ms, coverage)
    return found


def _unheard(reading: Reading, before_ms: int) -> list[Forget]:
    if before_ms <= 0:
        return []
    rows = reading.range(Range(DELTA_REPLICA, "used", (), FORGOTTEN_AT_ONCE, stop=(before_ms,)))
    by_gateway: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for row in rows:
        if row.used_at < before_ms:  # else it was heard of meanwhile, which is not stored yet
            by_gateway.setdefault(row.gateway, []).append((row.client, row.subject))
    found = []
    for key, clients in by_gateway.items():
        gateway = reading.get(DELTA_GATEWAY, (key,))
        if gateway is not None:
            found.append(Forget(gateway.name.decode(), tuple(clients), before_ms))
    return found


def _behind(reading: Reading, before_ms: int, coverage: Coverage) -> list[Trim]:
    if before_ms <= 0:
        return []
    found: list[Trim] = []
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
                    Trim(name, tuple(positions[place : place + TRIMMED_AT_ONCE]))
                    for place in range(0, len(positions), TRIMMED_AT_ONCE)
                ]
        if len(gateways) < GATEWAYS_AT_ONCE or len(found) >= GATEWAYS_AT_ONCE:
            return found
        start = (gateways[-1].gateway + b"\x00",)


def forget_needs(command: Forget) -> Generator[Stage, View, None]:
    """The gateway and the clients."""
    gateway = gateway_key(command.gateway)
    keys = [(DELTA_REPLICA, (gateway, *client)) for client in command.clients]
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), *keys])


def forget(view: View, command: Forget, now: Now) -> Outcome:
    """Forget clients that were not active since. A client without a recorded time gets the present one instead."""
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
    return Outcome(Forgotten(count))


def trim_needs(command: Trim) -> Generator[Stage, View, None]:
    """The gateway and the rows of the log."""
    gateway = gateway_key(command.gateway)
    keys = [(DELTA_LOG, (gateway, position)) for position in command.positions]
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), *keys])


def trim(view: View, command: Trim) -> Outcome:
    """Remove the beginning of the log; from then on a cursor before its end is refused."""
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
    return Outcome(Trimmed(cut))
