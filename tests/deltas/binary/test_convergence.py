"""Several clients write at once over WebSocket and end with the same rows, whatever is broadcast meanwhile."""

from __future__ import annotations

from functools import partial
from itertools import cycle

import pytest

from tests.deltas.binary.peers import Peer, visible
from tests.deltas.wire import Deltas, fresh
from tests.harness.together import at_once

STEPS = 40


@pytest.mark.each_store
@pytest.mark.parametrize("seed", range(1, 7))
def test_clients_end_with_the_same_rows(deltas: Deltas, seed: int) -> None:
    gateway = fresh("gw")
    ports = cycle(node.port for node in deltas.nodes)
    peers = [Peer(next(ports), gateway, name, seed) for name in ("ann", "bob", "cyd")]
    try:
        at_once([partial(peer.run, STEPS) for peer in peers])
        for _ in range(20):
            moved = [peer.settle() for peer in peers]
            if not any(moved):
                break
        fresh_rows = {row: cells for (_, row), cells in deltas.rows(gateway).items()}
        assert [peer.failures for peer in peers] == [[], [], []]
        for peer in peers:
            assert visible(peer.rows) == fresh_rows
    finally:
        for peer in peers:
            peer.close()
