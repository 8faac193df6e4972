"""The tokens of the store in the memory of a node, for the check of each request.

A change that this node commits counts here before its caller is answered. A change of another node is read after its
notification, and without one within `POLL_SECONDS`. While the store cannot be read, the tokens that were read last stay
in force. A token that ends in any way takes its live connections with it.

The version of TOKEN_HEAD orders all changes: a read that began before a later change of this node is discarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.clock import World
from semel.server.auth.principals import Principal, Principals, ScopeRules
from semel.server.auth.revocation import Revocation
from semel.server.auth.rotation import TokenStanding
from semel.server.auth.token_contract import TokenChanged, has_ended
from semel.server.auth.token_fields import TokenFieldError
from semel.server.auth.token_table import FIRST_HEAD, HEAD_KEY, NEVER, TOKEN, TOKEN_HEAD, TOPIC, TokenRow
from semel.server.auth.token_wire import holder_of
from semel.store.protocol import Range, Snapshot

POLL_SECONDS = 2.0
"""Longest time until a node of a shared store sees a change whose notification was lost, in seconds."""
MAX_SLEEP_SECONDS = 60.0
MAX_READ = 10_000
"""More rows than a store can have."""

_log = logging.getLogger("semel.server")


class TokenState(NamedTuple):
    """All stored tokens at one version."""

    version: int
    has_any: bool
    """Whether a token was ever created."""
    rows: Mapping[bytes, TokenRow]
    """By id."""


def read_state(rows: Reading | Snapshot, known: int = -1) -> TokenState | None:
    """All stored tokens; None if the version is the known one."""
    head = rows.get(TOKEN_HEAD, HEAD_KEY) or FIRST_HEAD
    if head.version == known:
        return None
    found: Iterable[TokenRow] = rows.range(Range(TOKEN, "", (), MAX_READ))
    return TokenState(head.version, head.created > 0, {row.id: row for row in found})


class StoredTokens:
    """Keeps the tokens of the store in `principals`; used on the event loop only."""

    def __init__(self, engine: Engine, principals: Principals, rules: ScopeRules, world: World) -> None:
        self._engine = engine
        self._table = principals.tokens
        self._rotation = principals.rotation
        self._namespaces = frozenset({principals.namespace})
        self._rules = rules
        self._world = world
        self._version = -1
        self._floor = -1
        """The latest change of this node: an older state is not taken."""
        self._rows: Mapping[bytes, TokenRow] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a token counts no longer as it did."""

    def load(self, state: TokenState, holders: Mapping[bytes, Principal | None] = MappingProxyType({})) -> None:
        """Take the tokens of the store as they were read; `holders` are principals that were made of some, by id."""
        if state.version <= self._version or state.version < self._floor:
            return
        gone = [row for token_id, row in self._rows.items() if token_id not in state.rows]
        changed = [row for token_id, row in state.rows.items() if self._rows.get(token_id) != row]
        self._version, self._rows = state.version, state.rows
        self._guard(has_any=state.has_any)
        self._apply(changed, gone, holders)

    def take(self, change: TokenChanged) -> None:
        """Take the outcome of a command of this node; other changes since the last read are read next."""
        if change.version < self._version:
            return
        self._floor = max(self._floor, change.version)
        if change.version == self._version + 1:
            self._version = change.version
        self._rows = {**self._rows, **{row.id: row for row in change.rows}}
        self._guard(has_any=True)
        self._apply(change.rows, ())

    def holds(self, digest: bytes) -> bool:
        """Whether another credential of the server has this hash."""
        rotation = self._rotation
        is_configured = rotation is not None and rotation.standing(digest, 0) is not TokenStanding.UNKNOWN
        return is_configured or digest in self._table.of_file

    async def refresh(self) -> None:
        """Read what other nodes have changed. Raises `EngineError`."""
        read = await self._engine.read(partial(self._read, known=self._version, rows=self._rows))
        if read is not None:
            self.load(*read)

    def _read(
        self, reading: Reading, known: int, rows: Mapping[bytes, TokenRow]
    ) -> tuple[TokenState, Mapping[bytes, Principal | None]] | None:
        """Read the tokens and make the principals of those that have changed; runs in a reader thread."""
        state = read_state(reading, known)
        if state is None:
            return None
        return state, {one: self._holder(row) for one, row in state.rows.items() if rows.get(one) != row}

    async def run(self) -> None:
        """Follow the changes of all nodes until cancelled, and end tokens at their time."""
        watch = self._engine.signals.watch(TOPIC, is_own=True)
        try:
            while True:
                watch.arm()
                try:
                    await self.refresh()
                except Exception as error:  # noqa: BLE001 - it is tried again; the known tokens stay in force
                    self._engine.observer.store_failure(error)
                    await asyncio.sleep(POLL_SECONDS)
                self._end_due()
                await watch.wait(self._pause())
        finally:
            watch.close()

    def _pause(self) -> float:
        now_ms = self._world.wall_ms()
        ends = (row.ends_at for row in self._rows.values() if now_ms < row.ends_at < NEVER)
        left = (min(ends, default=NEVER) - now_ms) / 1_000
        return min(max(left, 0.001), POLL_SECONDS if self._engine.is_shared else MAX_SLEEP_SECONDS)

    def _end_due(self) -> None:
        """Revoke the tokens whose time is over: a connection may be older than the end of its token."""
        now_ms = self._world.wall_ms()
        due = [row for row in self._rows.values() if row.digest in self._table.of_store and has_ended(row, now_ms)]
        if due:
            self._apply(due, ())

    def _guard(self, *, has_any: bool) -> None:
        if has_any and not self._table.is_guarded:
            self._table.guard()
            _log.info("the store has tokens: every caller needs a credential")

    def _apply(
        self,
        changed: Iterable[TokenRow],
        gone: Iterable[TokenRow],
        holders: Mapping[bytes, Principal | None] = MappingProxyType({}),
    ) -> None:
        """Let these rows count; the cost is that of the changes, apart from joining both sources."""
        now_ms, of_store, ended = self._world.wall_ms(), dict(self._table.of_store), list[Principal]()
        for row in gone:
            ended.extend(filter(None, (of_store.pop(row.digest, None),)))
        for row in changed:
            before = of_store.pop(row.digest, None)
            after = None
            if not has_ended(row, now_ms):
                after = holders[row.id] if row.id in holders else self._holder(row)
            if after is not None and before is not None and _is_same(before, after):
                after, before = replace(after, revocation=before.revocation), None  # its connections live on
            if after is not None:
                of_store[row.digest] = after
            ended.extend(filter(None, (before,)))
        self._table.of_store = of_store
        self._table.join(ended)
        self.on_change()

    def _holder(self, row: TokenRow) -> Principal | None:
        try:
            holder = holder_of(row, self._rules)
            return replace(holder, namespaces=self._namespaces, revocation=Revocation())
        except (TokenFieldError, ValueError):
            _log.error("a stored token cannot be used by this version", extra={"token_id": row.id.decode()})
            return None


def _is_same(before: Principal, after: Principal) -> bool:
    """Whether two principals of one token differ at most in their end."""
    return replace(before, expires_at_ms=after.expires_at_ms) == after
