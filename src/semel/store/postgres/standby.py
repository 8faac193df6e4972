"""Whether commits would wait for a standby that is not there or stands still, and what the clock of the database says.

A commit waits for as long as the named synchronous standbys are away, so a node that knows of it should not be sent
writes. A standby that hangs stays connected for a minute by default (`wal_sender_timeout`), and one whose replay is
paused for ever; commits wait for it all the same. So the confirmed position is followed from look to look: a standby
that is behind and confirms nothing for `STALL_SECONDS` stands still. A healthy one that gets nothing new confirms
nothing either, but is not behind; its death is known by its silence, after `SILENT_SECONDS`.

A user without the right to see the states of standbys (`pg_monitor`) sees only how many are connected.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from semel.store.postgres.connection import UNSYNCED, PgConnection
from semel.store.postgres.pipeline import BROKEN, Filled, Rows
from semel.store.postgres.statements import PgStatements
from semel.store.postgres.usage import usage_of
from semel.store.protocol import AnyTable, StoreError, StoreHealth
from semel.store.usage import StoreUsage

_ASK = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8, current_setting('synchronous_standby_names'),
    current_setting('fsync'),
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NOT NULL),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::int8 END,
    (SELECT coalesce(string_agg(confirmed || ' ' || silent, ',' ORDER BY confirmed DESC), '') FROM (
        SELECT coalesce(pg_wal_lsn_diff(
            CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN replay_lsn ELSE flush_lsn END,
            '0/0')::int8, 0) AS confirmed,
            coalesce(extract(epoch FROM clock_timestamp() - reply_time), 0)::int8 AS silent
        FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous)
"""
STALL_SECONDS = 3.0
"""A synchronous standby that is behind and has confirmed nothing for this time stands still."""
SILENT_SECONDS = 35
"""One that has sent nothing for this time is dead: the database asks for a sign of life after 30 s by default."""
_NUMBER = re.compile(r"^\s*(?:(?:FIRST|ANY)\s+)?([0-9]+)\s*\(", re.IGNORECASE)


class StandbyFacts(NamedTuple):
    """The standbys of a server, and whether it syncs its own disk."""

    names: str
    fsync: str
    connected: int
    visible: int
    """Those whose state this user may see."""
    synchronous: int
    written: int = 0
    """The end of the log on the disk of the primary, in bytes."""
    progress: str = ""
    """For each synchronous standby its confirmed position and the seconds since it was heard of, furthest first."""

    @property
    def wanted(self) -> int:
        """The number of standbys that a commit waits for; 0 if it waits for none."""
        if not self.names.strip():
            return 0
        named = _NUMBER.match(self.names)
        return 1 if named is None else int(named[1])


def standby_flaw(facts: StandbyFacts) -> str:
    """Why a commit would wait; empty if it would not."""
    wanted = facts.wanted
    there = facts.synchronous if facts.visible else facts.connected
    if there >= wanted:
        return ""
    return f"commits wait for {wanted} synchronous standby{'s' if wanted > 1 else ''}, and {there} are connected"


class StallWatch:
    """Follows how far the standbys that commits wait for have confirmed the log."""

    def __init__(self) -> None:
        self._confirmed = -1
        self._since = 0.0
        """When the confirmed position last moved, or was the end of the log."""

    def flaw(self, facts: StandbyFacts, now: float) -> str:
        """Why a commit would wait for a standby that is connected; empty if it would not, as far as one can tell."""
        progress = [tuple(map(int, one.split())) for one in facts.progress.split(",") if one]
        if not facts.wanted or len(progress) < facts.wanted:
            self._confirmed = -1
            return ""
        confirmed, silent = progress[facts.wanted - 1]
        if confirmed != self._confirmed or confirmed >= facts.written:
            self._confirmed, self._since = confirmed, now
        still = int(now - self._since)
        if now - self._since >= STALL_SECONDS:
            behind = facts.written - confirmed
            return f"commits wait for a synchronous standby that is {behind:,} bytes behind and still for {still} s"
        if silent >= SILENT_SECONDS:
            return f"commits would wait for a synchronous standby that was not heard of for {silent} s"
        return ""


class StandbyWatch:
    """Asks on a connection of its own."""

    def __init__(self, line: PgConnection) -> None:
        self._line = line
        self._guard = threading.Lock()
        self._stall = StallWatch()

    def health(self) -> StoreHealth:
        """The clock, whether commits reach the disk, and what is wrong with the standbys. Raises `StoreError`."""
        clock_ms, *facts = self._ask((_ASK, ()))[0][0]
        found = StandbyFacts(*facts)
        unsafe = "" if found.fsync == "on" else UNSYNCED
        return StoreHealth(clock_ms, unsafe, standby_flaw(found), self._stall.flaw(found, time.monotonic()))

    def usage(self, statements: Mapping[AnyTable, Iterable[PgStatements]]) -> StoreUsage:
        """What the database takes, and the lag of its replicas. Raises `StoreError`.

        Readers of a node begin with a commit, which waits for the standby whose lag is asked for; this does not.
        """
        return usage_of(self._ask, statements)

    def _ask(self, *questions: Filled) -> Sequence[Rows]:
        with self._guard:
            try:
                self._line.open(time.monotonic())
                return self._line.exchange(list(questions))
            except BROKEN as error:
                self._line.drop()
                raise StoreError("The database does not answer.") from error
            except StoreError:
                self._line.drop()
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._guard:
            self._line.drop()
