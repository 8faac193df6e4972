"""The contract of stored tokens: create, rotate, revoke, and delete those that ended long ago.

A command has the hash of a token and never the token. A command that is repeated changes nothing and gets its first
outcome: a creation or a rotation is recognized by the hash, a revocation by the token that is revoked already. After a
crash the change is stored as a whole, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now, utc_text
from semel.kernel.errors import Refusal
from semel.server.auth.token_table import (
    FIRST_HEAD,
    HEAD_KEY,
    NEVER,
    TOKEN,
    TOKEN_HEAD,
    TOPIC,
    TokenHeadRow,
    TokenRow,
    ended_before,
    of_digest,
)
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key

TOKENS_LOCK = Lock(b"auth:tokens")
SWEPT_AT_ONCE = 100


class CreateToken(NamedTuple):
    """Command: store a token under a new id."""

    id: bytes
    digest: bytes
    name: bytes
    roles: bytes
    scopes: bytes | None
    expires_at: int | None


class RotateToken(NamedTuple):
    """Command: store a successor, and end the token after an overlap.

    Without `expires_at` the successor lives for as long as the token was made for.
    """

    id: bytes
    successor: bytes
    digest: bytes
    overlap_ms: int
    expires_at: int | None


class RevokeToken(NamedTuple):
    """Command: end a token at once."""

    id: bytes


class SweepTokens(NamedTuple):
    """Command: delete those of these tokens that ended long ago."""

    ids: tuple[bytes, ...]


TokenCommand = CreateToken | RotateToken | RevokeToken | SweepTokens


class TokenChanged(NamedTuple):
    """The outcome of a command: the rows as they are stored now, the one that was asked about first."""

    rows: tuple[TokenRow, ...]
    version: int
    is_change: bool
    """False for a repeated command, which changed nothing."""


class TokenLimits(NamedTuple):
    """Bounds of the stored tokens."""

    stored: int = 1_000
    retention_ms: int = 30 * 86_400_000
    """The time for which a token that has ended stays listed."""


class TokenContract:
    """The contract of stored tokens."""

    name = "tokens"

    def __init__(self, limits: TokenLimits) -> None:
        self._limits = limits

    def locks(self, command: TokenCommand) -> Sequence[Lock]:
        """One lock for all tokens."""
        return (TOKENS_LOCK,)

    def needs(self, command: TokenCommand) -> Generator[Stage, View, None]:
        """The head, the token, the one with the same hash, and the one that could make room."""
        if isinstance(command, SweepTokens):
            yield Stage([(TOKEN_HEAD, HEAD_KEY), *((TOKEN, (one,)) for one in command.ids)])
        elif isinstance(command, RevokeToken):
            yield Stage([(TOKEN_HEAD, HEAD_KEY), (TOKEN, (command.id,))])
        else:
            added = command.successor if isinstance(command, RotateToken) else command.id
            keys: list[tuple[AnyTable, Key]] = [(TOKEN_HEAD, HEAD_KEY), (TOKEN, (command.id,)), (TOKEN, (added,))]
            yield Stage(keys, [of_digest(command.digest), ended_before(NEVER, 1)])

    def order(self, command: TokenCommand) -> Order | None:
        """No order but that of arrival."""
        return None

    def decide(self, view: View, command: TokenCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        match command:
            case CreateToken():
                return _create(view, command, now, self._limits)
            case RotateToken():
                return _rotate(view, command, now, self._limits)
            case RevokeToken():
                return _revoke(view, command, now)
            case _:
                return _sweep(view, command, now.expiry_ms - self._limits.retention_ms)

    def chores(self, reading: Reading) -> Sequence[TokenCommand]:
        """The deletion of tokens that ended long ago."""
        before = reading.now.expiry_ms - self._limits.retention_ms
        found = reading.keys(ended_before(before, SWEPT_AT_ONCE))
        return [SweepTokens(tuple(one for (one,) in found))] if found else []


def _create(view: View, command: CreateToken, now: Now, limits: TokenLimits) -> DecisionResult:
    known = _with_digest(view, command.digest)
    if known is not None:
        same = (known.name, known.roles, known.scopes, known.expires_at) == command[2:]
        if not same or has_ended(known, now.ms):
            return DecisionResult(Refusal("TOKEN_EXISTS", "A token with this sha256 is or was stored: make a new one."))
        return DecisionResult(TokenChanged((known,), _head(view).version, is_change=False))
    refused = _make_room(view, command.expires_at, now, limits)
    if refused is not None:
        return DecisionResult(refused)
    ends_at = NEVER if command.expires_at is None else command.expires_at
    row = TokenRow(*command[:5], now.ms, command.expires_at, ends_at, None, None)
    head = _add(view, row)
    return DecisionResult(TokenChanged((row,), head.version, is_change=True), signals=(TOPIC,))


def _rotate(view: View, command: RotateToken, now: Now, limits: TokenLimits) -> DecisionResult:
    old = view.get(TOKEN, (command.id,))
    if old is None:
        return DecisionResult(_unknown(command.id))
    known = _with_digest(view, command.digest)
    if known is not None and known.id == old.successor:
        return DecisionResult(TokenChanged((known, old), _head(view).version, is_change=False))
    if known is not None:
        return DecisionResult(Refusal("TOKEN_EXISTS", "A token with this sha256 is or was stored: make a new one."))
    if has_ended(old, now.ms):
        return DecisionResult(Refusal("TOKEN_ENDED", f"The token {_told(old.id)} {end_of(old)}: create a new one."))
    if old.successor is not None:
        said = f"The token {_told(old.id)} was rotated before: its successor is {_told(old.successor)}."
        return DecisionResult(Refusal("TOKEN_ROTATED", said))
    life = None if old.expires_at is None else old.expires_at - old.created_at
    expires_at = command.expires_at if command.expires_at is not None or life is None else now.ms + life
    refused = _make_room(view, expires_at, now, limits)
    if refused is not None:
        return DecisionResult(refused)
    ends_at = NEVER if expires_at is None else expires_at
    new = TokenRow(command.successor, command.digest, *old[2:5], now.ms, expires_at, ends_at, None, None)
    head = _add(view, new)
    kept = old._replace(ends_at=min(old.ends_at, now.ms + command.overlap_ms), successor=new.id)
    view.put(TOKEN, kept)
    return DecisionResult(TokenChanged((new, kept), head.version, is_change=True), signals=(TOPIC,))


def _revoke(view: View, command: RevokeToken, now: Now) -> DecisionResult:
    row, head = view.get(TOKEN, (command.id,)), _head(view)
    if row is None:
        return DecisionResult(_unknown(command.id))
    if row.revoked_at is not None:
        return DecisionResult(TokenChanged((row,), head.version, is_change=False))
    row = row._replace(revoked_at=now.ms, ends_at=min(row.ends_at, now.ms))
    view.put(TOKEN, row)
    head = head._replace(version=head.version + 1)
    view.put(TOKEN_HEAD, head)
    return DecisionResult(TokenChanged((row,), head.version, is_change=True), signals=(TOPIC,))


def _sweep(view: View, command: SweepTokens, before: int) -> DecisionResult:
    rows = [row for one in command.ids if (row := view.get(TOKEN, (one,))) is not None and row.ends_at < before]
    for row in rows:
        view.delete(TOKEN, (row.id,))
    if rows:
        head = _head(view)
        view.put(TOKEN_HEAD, head._replace(stored=head.stored - len(rows)))
    return DecisionResult(len(rows))


def _make_room(view: View, expires_at: int | None, now: Now, limits: TokenLimits) -> Refusal | None:
    """Make room for one more token; the refusal if it would have expired, or if all that are stored are in force."""
    if expires_at is not None and expires_at <= now.ms:
        return Refusal("INVALID_REQUEST", "expires_at is in the past: give a later time.")
    if _head(view).stored >= limits.stored and not _free(view, now):
        said = f"The store has {limits.stored} tokens in force: revoke one, or raise max_stored_tokens."
        return Refusal("TOKEN_LIMIT", said)
    return None


def _free(view: View, now: Now) -> bool:
    """Delete the token that ended first; False if none has ended."""
    ended = [row for row in view.range(ended_before(NEVER, 1)) if has_ended(row, now.expiry_ms)]
    for row in ended:
        view.delete(TOKEN, (row.id,))
        head = _head(view)
        view.put(TOKEN_HEAD, head._replace(stored=head.stored - 1))
    return bool(ended)


def _add(view: View, row: TokenRow) -> TokenHeadRow:
    view.insert(TOKEN, row)
    head = _head(view)
    head = TokenHeadRow(head.name, head.version + 1, head.created + 1, head.stored + 1)
    view.put(TOKEN_HEAD, head)
    return head


def _head(view: View) -> TokenHeadRow:
    return view.get(TOKEN_HEAD, HEAD_KEY) or FIRST_HEAD


def _with_digest(view: View, digest: bytes) -> TokenRow | None:
    found: Sequence[TokenRow] = view.range(of_digest(digest))
    return found[0] if found else None


def _unknown(token_id: bytes) -> Refusal:
    return Refusal("TOKEN_NOT_FOUND", f"There is no token {_told(token_id)}: `semel token list` shows all.")


def _told(token_id: bytes) -> str:
    return token_id.decode("ascii", "replace")


def has_ended(row: TokenRow, now_ms: int) -> bool:
    """Whether a token is revoked, or over at this time."""
    return row.revoked_at is not None or row.ends_at <= now_ms


def end_of(row: TokenRow) -> str:
    """How a token has ended, in words."""
    if row.revoked_at is not None:
        return f"was revoked at {utc_text(row.revoked_at)}"
    return f"ended at {utc_text(row.ends_at)}"
