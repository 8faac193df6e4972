"""Stored tokens without a server: for the first one, and when no administrator's token is left.

A data folder is held alone meanwhile, so its server must be stopped. A database is changed beside its nodes, which see
the change within seconds. Each change is one write through the engine. After a crash it is stored or it is not; `list`
tells.

Its audit line continues the chain of the data folder. Over a database a node may be writing there, so the line goes to
an audit log of its own, in the folder `offline` of the data folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.kernel.errors import Refusal, Refused
from semel.server.audit_setup import open_audit
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
from semel.server.ops.token_calls import change_facts, new_token_id, note_change
from semel.server.settings import ServerSettings
from semel.store.migrations import pending
from semel.store.open import inspect_store, shown
from semel.store.protocol import Store, StoreBusyError, StoreError
from semel.store.sqlite.data_folder import LockFile, make_folder
from semel.store.sqlite.store import LOCK_NAME
from semel.surfaces.registry import SCOPE_RULES
from semel.surfaces.schema import MIGRATIONS

ACTOR = "system:offline"
OFFLINE_FOLDER = "offline"
"""The folder of the audit log of commands over a database, inside the data folder."""


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
        with closing(self._opened()) as store, self._audited(store) as audited:
            changed = asyncio.run(self._submitted(store, call, command, audited))
        if isinstance(changed, Refusal):
            raise Refused.of(changed)
        return change_facts(changed, self._world.wall_ms())

    def _opened(self) -> Store:
        url = self._settings.store_url
        version = inspect_store(url, ()).version
        if version and pending(MIGRATIONS, version):
            raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")
        try:
            return opened(url)
        except StoreBusyError as error:
            raise StoreError(f"{error} Change its tokens through the server: leave out --offline.") from error

    @contextmanager
    def _audited(self, store: Store) -> Iterator[ServerSettings | None]:
        """The settings of an audit log that no other process writes; None on a machine without the data folder."""
        data = Path(self._settings.data)
        if not data.is_dir():
            yield None
        elif not store.is_shared:
            yield self._settings
        else:
            own = data / OFFLINE_FOLDER
            make_folder(own)
            lock = LockFile(own / LOCK_NAME)
            try:
                yield replace(self._settings, data=str(own))
            finally:
                lock.release()

    async def _submitted(
        self, store: Store, call: str, command: TokenCommand, audited: ServerSettings | None
    ) -> TokenChanged | Refusal:
        settings = self._settings
        contract = TokenContract(TokenLimits(settings.max_stored_tokens, settings.stored_token_retention_ms))
        engine = Engine(store, self._world)
        try:
            if audited is None:
                return await _changed(engine, contract, command)
            audit, keeper = open_audit(audited, store, engine, self._world)
            try:
                await keeper.begin()
                changed = await _changed(engine, contract, command)
                if isinstance(changed, TokenChanged) and changed.is_change:
                    note_change(audit, call, changed, ACTOR, "")
                await keeper.finish()
            finally:
                audit.close()
            return changed
        finally:
            await engine.stop()


async def _changed(engine: Engine, contract: TokenContract, command: TokenCommand) -> TokenChanged | Refusal:
    changed: TokenChanged | Refusal = await engine.submit(Write(contract, command))
    return changed
