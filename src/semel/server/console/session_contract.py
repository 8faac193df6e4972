"""The contract of one-time links and console sessions: make a link, exchange its code, end a session, delete the ended.

A command has the hash of a code or a token and never the code or the token. One lock protects all rows, so of many
exchanges of one code, on one node or on several, the first that is decided gets the session, and all others find no
such code. A link whose answer was lost, and a code whose exchange was lost, are of no use to anyone and end at their
time: the person asks for another link.

The number of rows is bounded. A principal at its bound loses the oldest link of its own that was not used, else its
oldest session, because a tab that was closed without signing out cannot be ended in another way; the bound of all
refuses.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.server.console.session_table import (
    CONSOLE_HEAD,
    CONSOLE_SESSION,
    FIRST_HEAD,
    HEAD_KEY,
    LATEST,
    TOPIC,
    ConsoleHeadRow,
    ConsoleSessionRow,
    ended_before,
    of_actor,
    of_digest,
)
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key

SESSIONS_LOCK = Lock(b"console:sessions")
SWEPT_AT_ONCE = 100


class SessionLimits(NamedTuple):
    """Bounds of links and sessions."""

    link_ms: int = 60_000
    """For how long a link can be used, in milliseconds."""
    session_ms: int = 8 * 3_600_000
    """The longest life of a session, in milliseconds; the credential behind it may end it earlier."""
    stored: int = 1_000
    """Links and sessions in all."""
    of_principal: int = 50
    """Links and sessions of one principal."""


class CreateLink(NamedTuple):
    """Command: store a link for a caller."""

    id: bytes
    digest: bytes
    actor: bytes
    credential: bytes
    rights: bytes
    claims: bytes | None
    signing_key: bytes | None
    expires_at: int | None


class OpenSession(NamedTuple):
    """Command: exchange a code for a session."""

    code: bytes
    """The SHA-256 of the code."""
    digest: bytes
    """The SHA-256 of the session's token."""


class EndSession(NamedTuple):
    """Command: end a link or a session at once."""

    id: bytes


class SweepSessions(NamedTuple):
    """Command: delete those of these links and sessions that have ended."""

    ids: tuple[bytes, ...]


SessionCommand = CreateLink | OpenSession | EndSession | SweepSessions


class SessionChanged(NamedTuple):
    """The outcome of a command."""

    row: ConsoleSessionRow | None
    """The row as it is stored now, or as it was before it ended; None if there is none."""
    version: int
    gone: ConsoleSessionRow | None = None
    """The link or session that made room for a new link."""


class SessionContract:
    """The contract of links and sessions."""

    name = "console"

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits

    def locks(self, command: SessionCommand) -> Sequence[Lock]:
        """One lock for all links and sessions."""
        return (SESSIONS_LOCK,)

    def needs(self, command: SessionCommand) -> Generator[Stage, View, None]:
        """The head, the row, and those that could make room."""
        match command:
            case CreateLink():
                own = of_actor(command.actor, self._limits.of_principal)
                keys: list[tuple[AnyTable, Key]] = [(CONSOLE_HEAD, HEAD_KEY), (CONSOLE_SESSION, (command.id,))]
                yield Stage(keys, [own, ended_before(LATEST, 1)])
            case OpenSession():
                yield Stage([(CONSOLE_HEAD, HEAD_KEY)], [of_digest(command.code)])
            case EndSession():
                yield Stage([(CONSOLE_HEAD, HEAD_KEY), (CONSOLE_SESSION, (command.id,))])
            case SweepSessions():
                yield Stage([(CONSOLE_HEAD, HEAD_KEY), *((CONSOLE_SESSION, (one,)) for one in command.ids)])

    def order(self, command: SessionCommand) -> Order | None:
        """No order but that of arrival."""
        return None

    def decide(self, view: View, command: SessionCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        match command:
            case CreateLink():
                return _create(view, command, now, self._limits)
            case OpenSession():
                return _open(view, command, now, self._limits)
            case EndSession():
                return _end(view, command)
            case _:
                return _sweep(view, command, now.expiry_ms)

    def chores(self, reading: Reading) -> Sequence[SessionCommand]:
        """The deletion of links and sessions that have ended."""
        found = reading.keys(ended_before(reading.now.expiry_ms, SWEPT_AT_ONCE))
        return [SweepSessions(tuple(one for (one,) in found))] if found else []


def _create(view: View, command: CreateLink, now: Now, limits: SessionLimits) -> DecisionResult:
    own: Sequence[ConsoleSessionRow] = view.range(of_actor(command.actor, limits.of_principal))
    gone = _least(own, now.expiry_ms) if len(own) >= limits.of_principal else None
    if gone is not None:
        _delete(view, gone)
    first: Sequence[ConsoleSessionRow] = view.range(ended_before(LATEST, 1))
    if _head(view).stored >= limits.stored and first and first[0].ends_at <= now.expiry_ms:
        _delete(view, first[0])
    head = _head(view)
    if head.stored >= limits.stored:
        said = f"The server has {limits.stored} console links and sessions: sign out of one, or try again later."
        return DecisionResult(Refusal("CONSOLE_LIMIT", said))
    ends_at = _earlier(now.ms + limits.link_ms, command.expires_at)
    row = ConsoleSessionRow(*command, now.ms, None, ends_at)
    view.insert(CONSOLE_SESSION, row)
    head = head._replace(stored=head.stored + 1)
    view.put(CONSOLE_HEAD, head)
    return DecisionResult(SessionChanged(row, head.version, gone), signals=() if gone is None else (TOPIC,))


def _least(own: Sequence[ConsoleSessionRow], now_ms: int) -> ConsoleSessionRow:
    """What makes room: what has ended, else the oldest link, else the oldest session, behind which is a person."""
    return min(own, key=lambda row: (row.ends_at > now_ms, row.opened_at is not None, row.created_at))


def _open(view: View, command: OpenSession, now: Now, limits: SessionLimits) -> DecisionResult:
    found: Sequence[ConsoleSessionRow] = view.range(of_digest(command.code))
    if not found or not is_link(found[0], now.ms):
        return DecisionResult(SessionChanged(None, _head(view).version))
    ends_at = _earlier(now.ms + limits.session_ms, found[0].expires_at)
    row = found[0]._replace(digest=command.digest, opened_at=now.ms, ends_at=ends_at)
    view.put(CONSOLE_SESSION, row)
    head = _head(view)
    head = head._replace(version=head.version + 1)
    view.put(CONSOLE_HEAD, head)
    return DecisionResult(SessionChanged(row, head.version), signals=(TOPIC,))


def _end(view: View, command: EndSession) -> DecisionResult:
    row = view.get(CONSOLE_SESSION, (command.id,))
    if row is None:
        return DecisionResult(SessionChanged(None, _head(view).version))
    head = _delete(view, row)
    return DecisionResult(SessionChanged(row, head.version), signals=(TOPIC,))


def _sweep(view: View, command: SweepSessions, now_ms: int) -> DecisionResult:
    rows = [view.get(CONSOLE_SESSION, (one,)) for one in command.ids]
    ended = [row for row in rows if row is not None and row.ends_at < now_ms]
    for row in ended:
        _delete(view, row)
    return DecisionResult(len(ended))


def _delete(view: View, row: ConsoleSessionRow) -> ConsoleHeadRow:
    view.delete(CONSOLE_SESSION, (row.id,))
    head = _head(view)
    head = head._replace(version=head.version + 1, stored=head.stored - 1)
    view.put(CONSOLE_HEAD, head)
    return head


def _head(view: View) -> ConsoleHeadRow:
    return view.get(CONSOLE_HEAD, HEAD_KEY) or FIRST_HEAD


def _earlier(ms: int, other: int | None) -> int:
    return ms if other is None else min(ms, other)


def is_link(row: ConsoleSessionRow, now_ms: int) -> bool:
    """Whether a code can be exchanged at this time."""
    return row.opened_at is None and now_ms < row.ends_at
