"""Stored tokens without a server: for the first one, and when no administrator's token is left.

A data folder is held alone meanwhile, so its server must be stopped. A database is changed beside its nodes, which see
the change within seconds. Each change is one write through the engine. After a crash it is stored or it is not; `list`
tells.

Its line goes to the audit log of the data folder. Over a database a node may be writing there as well: each line is
appended with one write, so none of them is torn. On a machine without the data folder nothing is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import orjson

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.kernel.errors import Refusal, Refused
from semel.server.auth.stored_tokens import read_state
from semel.server.auth.token_contract import (
    RevokeToken,
    TokenChanged,
    TokenCommand,
    TokenContract,
    TokenLimits,
)
from semel.server.auth.token_wire import parse_create, parse_rotate, token_facts
from semel.server.offline_store import opened, snapshot_of
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.token_calls import change_facts, new_token_id, note_change
from semel.server.settings import ServerSettings
from semel.store.migrations import pending
from semel.store.open import inspect_store, shown
from semel.store.protocol import Store, StoreBusyError, StoreError
from semel.surfaces.registry import SCOPE_RULES
from semel.surfaces.schema import MIGRATIONS

ACTOR = "system:offline"


class OfflineTokens:
    """The stored tokens of the store that the settings name. Raises `StoreError`, `EngineError` and `Refused`."""

    def __init__(self, settings: ServerSettings) -> None:
        if settings.store_url.startswith("memory:"):
            raise StoreError("A memory store is empty at every start: it keeps no token.")
        self._settings = settings
        self._world = SystemWorld()

    def list(self) -> list[dict[str, Any]]:
        """All stored tokens, also beside a running server."""
        with snapshot_of(self._settings.store_url) as snapshot:
            state, now_ms = read_state(snapshot), snapshot.now_ms
        rows = [] if state is None else sorted(state.rows.values(), key=lambda row: (row.created_at, row.id))
        return [token_facts(row, now_ms) for row in rows]

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store a token; a store that does not exist yet is created."""
        draft = parse_create(orjson.dumps(body), SCOPE_RULES)
        return self._change("create", draft.command)

    def rotate(self, token_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store the successor of a token."""
        draft = parse_rotate(orjson.dumps(body))
        return self._change("rotate", lambda successor: draft.command(token_id.encode(), successor))

    def revoke(self, token_id: str) -> dict[str, Any]:
        """End a token."""
        return self._change("revoke", lambda _: RevokeToken(token_id.encode()))

    def _change(self, call: str, make: Callable[[bytes], TokenCommand]) -> dict[str, Any]:
        command = make(new_token_id(self._world.random_bytes(8)))
        with closing(self._opened()) as store:
            changed = asyncio.run(self._submitted(store, call, command))
        if isinstance(changed, Refusal):
            raise Refused.of(changed)
        return change_facts(changed, self._world.wall_ms())

    def _opened(self) -> Store:
        url = self._settings.store_url
        version = inspect_store(url, ()).version
        if version and pending(MIGRATIONS, version, shown(url)):
            raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")
        try:
            return opened(url)
        except StoreBusyError as error:
            raise StoreError(f"{error} Change its tokens through the server: leave out --offline.") from error

    async def _submitted(self, store: Store, call: str, command: TokenCommand) -> TokenChanged | Refusal:
        settings = self._settings
        contract = TokenContract(TokenLimits(settings.max_stored_tokens, settings.stored_token_retention_ms))
        engine = Engine(store, self._world)
        try:
            changed: TokenChanged | Refusal = await engine.submit(Write(contract, command))
        finally:
            await engine.stop()
        if isinstance(changed, TokenChanged) and changed.is_change and settings.folder.is_dir():
            audit = AuditLog(settings.logs, self._world, settings.audit_file_bytes)
            note_change(audit, call, changed, ACTOR, "")
            audit.close()
        return changed
