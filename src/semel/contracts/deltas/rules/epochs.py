"""Epochs of a gateway: after a restore its clock jumps beyond every stamp that a lost history can have used.

A cursor of this dialect is a number of the gateway's clock, and clients send it back as it is: it cannot name an epoch.
But no number that was ever given out is ahead of the time by more than the drift that is allowed. So in a new epoch the
gateway goes on above the time of the raise and that drift, and the numbers it has leapt over are a gap: a cursor in
there is of the lost future, and is refused.

A raise touches no gateway. Each leaps when it is next looked at, which always has the same result, and writes that down
at its next change.
"""

from __future__ import annotations

from semel.contracts.deltas.refusals import Refusal, RefusedDeltas
from semel.contracts.deltas.tables import DELTA_GATEWAY, DeltaGatewayRow, gateway_key
from semel.contracts.epoch import Pair, Rows, dump_pairs, epoch_of, load_pairs
from semel.kernel.hlc import MAX_DRIFT_MS, join

KEPT_GAPS = 64
"""Gaps that a gateway remembers apart; the oldest are joined, with what lies between them."""

LOST = Refusal(
    "CURSOR_EXPIRED",
    "This cursor is of changes that a restore has lost; take the checkpoint, or pull from 0.",
)


def first_position(epoch: int) -> int:
    """Above every number that any history of a gateway has given out before that epoch."""
    return join(epoch + MAX_DRIFT_MS + 1, 0)


def leapt(gateway: DeltaGatewayRow, epoch: int) -> DeltaGatewayRow:
    """The gateway as it is in that epoch."""
    if gateway.epoch == epoch:
        return gateway
    first = max(first_position(epoch), gateway.high_water + 1)
    gaps = (*load_pairs(gateway.gaps), Pair(gateway.high_water, first))
    if len(gaps) > KEPT_GAPS:
        gaps = (Pair(gaps[0].first, gaps[1].second), *gaps[2:])
    return gateway._replace(high_water=first, epoch=epoch, gaps=dump_pairs(gaps))


def present_gateway(rows: Rows, name: str) -> DeltaGatewayRow | None:
    """The gateway of a name in the epoch of the store, if it has been used."""
    gateway = rows.get(DELTA_GATEWAY, (gateway_key(name),))
    return None if gateway is None else leapt(gateway, epoch_of(rows))


def refuse_lost(rows: Rows, gateway: DeltaGatewayRow | None, since: int) -> None:
    """Refuse a cursor of another history; 0 is the beginning of every one.

    A gateway that is not there may have been made in the lost future.
    """
    if gateway is None:
        epoch = epoch_of(rows)
        gaps: tuple[Pair, ...] = (Pair(0, first_position(epoch)),) if epoch else ()
    else:
        gaps = load_pairs(gateway.gaps)
    if any(agreed < since < first for agreed, first in gaps):
        raise RefusedDeltas.of(LOST)
