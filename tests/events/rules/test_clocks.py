"""The timers of a connection: who is cut off for not reading, and who is only slow."""

from __future__ import annotations

import asyncio
from typing import cast

from semel.server.websocket.connection_limits import ConnectionTimers, ConversationLimits
from semel.server.websocket.conversation import Conversation


class Listener:
    """Counts what it is told."""

    is_watched = True
    is_occupied = True

    def __init__(self) -> None:
        self.stalls = 0

    def stalled(self) -> None:
        self.stalls += 1

    def never_connected(self) -> None:
        raise AssertionError("the idle time has not passed")


def stalls_of(sizes: list[int]) -> int:
    """How often a client is cut off whose unsent bytes are these, one look after the other."""

    async def scenario() -> int:
        listener = Listener()
        limits = ConversationLimits(inbox_bytes=0, ping_seconds=20, stall_seconds=0.005)
        clocks = ConnectionTimers(cast(Conversation, listener), limits)
        left = [*sizes]
        clocks.filled(lambda: left.pop(0))
        for _ in range(1_000):
            if listener.stalls or not left:
                break
            await asyncio.sleep(0.005)
        clocks.stop()
        return listener.stalls

    return asyncio.run(scenario())


def test_one_who_reads_slowly_but_steadily_stays() -> None:
    assert stalls_of([900, 800, 700, 600, 500]) == 0


def test_one_who_reads_nothing_is_cut_off() -> None:
    assert stalls_of([900, 800, 800, 800]) == 1
