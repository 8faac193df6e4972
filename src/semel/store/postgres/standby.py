"""Whether commits would wait for a standby that is not there, and what the clock of the database says.

A commit waits for as long as the named synchronous standbys are away, so a node that knows of it should not be sent
writes. A user without the right to see the states of standbys (`pg_monitor`) sees only how many are connected.
"""

from __future__ import annotations

import re
import threading
import time
from typing import NamedTuple

from semel.store.postgres.connection import PgConnection
from semel.store.postgres.pipeline import BROKEN
from semel.store.protocol import StoreError, StoreHealth

_ASK = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8, current_setting('synchronous_standby_names'),
    current_setting('synchronous_commit'),
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NOT NULL),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
"""
_NUMBER = re.compile(r"^\s*(?:(?:FIRST|ANY)\s+)?([0-9]+)\s*\(", re.IGNORECASE)


class StandbyFacts(NamedTuple):
    """The standbys of a server."""

    names: str
    synchronous_commit: str
    connected: int
    visible: int
    """Those whose state this user may see."""
    synchronous: int


def standby_flaw(facts: StandbyFacts) -> str:
    """Why a commit would wait; empty if it would not."""
    if not facts.names.strip() or facts.synchronous_commit in ("off", "local"):
        return ""
    named = _NUMBER.match(facts.names)
    wanted = 1 if named is None else int(named[1])
    there = facts.synchronous if facts.visible else facts.connected
    if there >= wanted:
        return ""
    return f"commits wait for {wanted} synchronous standby{'s' if wanted > 1 else ''}, and {there} are connected"


class StandbyWatch:
    """Asks on a connection of its own."""

    def __init__(self, line: PgConnection) -> None:
        self._line = line
        self._guard = threading.Lock()

    def health(self) -> StoreHealth:
        """The clock, and what is wrong with the standbys. Raises `StoreError`."""
        with self._guard:
            try:
                self._line.open(time.monotonic())
                clock_ms, *facts = self._line.exchange([(_ASK, ())])[0][0]
            except BROKEN as error:
                self._line.drop()
                raise StoreError("The database does not answer.") from error
            except StoreError:
                self._line.drop()
                raise
        return StoreHealth(clock_ms, standby_flaw(StandbyFacts(*facts)))

    def close(self) -> None:
        """Close the connection."""
        with self._guard:
            self._line.drop()
