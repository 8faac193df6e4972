"""How much is remembered of epochs, and what is said of those that are forgotten."""

from __future__ import annotations

import pytest

from semel.kernel.errors import Refused
from semel.store.memory import MemoryStore
from semel.store.protocol import Changes, Snapshot
from semel.surfaces.deltas.rules.gateways import KEPT_GAPS, empty_gateway, first_position, leapt, refuse_lost
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, EpochRow, load_pairs
from semel.surfaces.streams.rules.offsets import KEPT_EPOCHS, Offset, entered, offset_at, position_of
from semel.surfaces.streams.tables import StreamRow

NOW = 1_000_000


def stream(tail: int) -> StreamRow:
    return StreamRow(b"", b"", b"", b"", None, None, None, 0, 0, 0, tail, 0, None, None, None, None)


def snapshot_of(epoch: int) -> Snapshot:
    store = MemoryStore((EPOCH,), lambda: NOW)
    tx = store.begin(())
    tx.flush(Changes({EPOCH: [EpochRow(*EPOCH_KEY, epoch, b"")]}, {}, {}))
    tx.commit()
    return store.read()


def test_c_epoch_a_stream_forgets_its_oldest_epochs_and_refuses_their_offsets() -> None:
    row, last = stream(1), KEPT_EPOCHS + 3
    for epoch in range(1, last + 1):
        row = entered(row, epoch)._replace(tail=epoch + 1)
    assert len(load_pairs(row.past_epochs)) == KEPT_EPOCHS
    with snapshot_of(last) as rows:
        assert position_of(rows, row, Offset(last, last + 1), NOW) == last + 1
        assert position_of(rows, row, Offset(4, 5), NOW) == 5
        with pytest.raises(Refused) as told:
            position_of(rows, row, Offset(1, 2), NOW)
        assert told.value.refusal.headers == ((b"stream-next-offset", offset_at(row, 0)),)


def test_c_epoch_the_end_of_an_epoch_is_its_last_offset() -> None:
    row = entered(stream(10), 7)._replace(tail=20)
    with snapshot_of(7) as rows:
        for offset, position in ((Offset(0, 10), 10), (Offset(7, 11), 11), (Offset(7, 20), 20), (Offset(7, 21), 20)):
            assert position_of(rows, row, offset, NOW) == position, offset
        for offset in (Offset(0, 11), Offset(0, 20), Offset(0, 21), Offset(6, 5), Offset(8, 15), Offset(NOW, 1)):
            with pytest.raises(Refused):
                position_of(rows, row, offset, NOW)
        assert position_of(rows, row, Offset(NOW + 1, 1), NOW) == 20, "no clock has been there yet"


def test_c_epoch_a_gateway_joins_its_oldest_gaps_and_forgets_none_of_their_numbers() -> None:
    row, last = empty_gateway(b"g", b"g"), KEPT_GAPS + 3
    agreed, firsts = [], []
    for epoch in range(1, last + 1):
        agreed.append(row.high_water)
        row = leapt(row, epoch)
        firsts.append(row.high_water)
        row = row._replace(high_water=row.high_water + 5)
    assert len(load_pairs(row.gaps)) == KEPT_GAPS
    with snapshot_of(last) as rows:
        for low, high in zip(agreed, firsts, strict=True):
            for number in (low + 1, high - 1):
                with pytest.raises(Refused):
                    refuse_lost(rows, row, number)
        for number in (0, agreed[-1], firsts[-1], row.high_water):
            refuse_lost(rows, row, number)


def test_c_epoch_a_gateway_leaps_above_every_number_of_its_time() -> None:
    row = empty_gateway(b"g", b"g")
    assert leapt(row, 0) is row
    assert leapt(row, NOW).high_water == first_position(NOW) > (NOW + 5_000) << 16
    ahead = row._replace(high_water=first_position(NOW) + 9)
    assert leapt(ahead, NOW).high_water == first_position(NOW) + 10
