"""The console sessions of a store in the memory of a node, for the check of each request.

A session is another name for the credential of the caller who asked for its link, and for nothing else: each request
looks up that credential by its hash and has the principal that is found, with the end of the session. So a session
never has more rights than its credential, writes the same actor into audit lines, uses the same quotas, and is over as
soon as the credential is revoked, expires or leaves the token file. If name, roles, scopes or claims of the credential
have changed since the link was made, the session is over, too.

A stored token (`semel token create`) could not carry this: it has a name, roles and scopes of its own and no tie to
another credential, it cannot be of the kind `user` of a JWT or have claims, only an administrator may make one, and the
list of tokens would show a row for every sign-in. So links and sessions have a small table of their own, which points
at the credential. A JWT is not known by its hash, and the store must not hold it: the row has its claims and the hash
of the key that signed it, and counts while that key does.

A session that begins or ends on this node counts here before its caller is answered. Another node reads it after its
notification, or within `POLL_SECONDS`; a request with a session that is not known yet makes it read at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.clock import World
from semel.server.auth.principals import (
    AuthOutcome,
    KnownCaller,
    Principal,
    Principals,
    UnauthorizedError,
    unauthorized,
)
from semel.server.auth.revocation import Revocation
from semel.server.auth.verifiers import SignedClaims
from semel.server.console.session_contract import EndSession, SessionChanged, SessionContract
from semel.server.console.session_table import (
    CONSOLE_HEAD,
    CONSOLE_SESSION,
    FIRST_HEAD,
    HEAD_KEY,
    TOPIC,
    ConsoleSessionRow,
)
from semel.store.protocol import Range

POLL_SECONDS = 2.0
"""Longest time until a node of a shared store sees a change whose notification was lost, in seconds."""
MAX_SLEEP_SECONDS = 60.0
MAX_READ = 10_000
"""More rows than a store can have."""
OVER = "This console session is over: run `semel console` for a new link, or sign in with a token."


class ConsoleState(NamedTuple):
    """All sessions at one version."""

    version: int
    rows: Mapping[bytes, ConsoleSessionRow]
    """By the hash of the token."""


def read_sessions(reading: Reading, known: int = -1) -> ConsoleState | None:
    """All sessions; None if the version is the known one."""
    head = reading.get(CONSOLE_HEAD, HEAD_KEY) or FIRST_HEAD
    if head.version == known:
        return None
    rows: Iterable[ConsoleSessionRow] = reading.range(Range(CONSOLE_SESSION, "", (), MAX_READ))
    return ConsoleState(head.version, {row.digest: row for row in rows if row.opened_at is not None})


class HeldSession:
    """One session, and the credential behind it as it was last found."""

    def __init__(self, row: ConsoleSessionRow) -> None:
        self.row = row
        self.revocation = Revocation()
        """Comes with the end of the session, or with that of its credential."""
        self.parent: Principal | None = None
        self.principal: Principal | None = None

    def follow(self, parent: Principal) -> Principal:
        """The principal of the session: that of the credential, with the end of the session."""
        self.leave()
        ends_at = self.row.ends_at if parent.expires_at_ms is None else min(self.row.ends_at, parent.expires_at_ms)
        self.parent, principal = parent, replace(parent, expires_at_ms=ends_at, revocation=self.revocation)
        self.principal = principal
        if parent.revocation is not None:
            parent.revocation.watch(self.revocation.come)
        return principal

    def leave(self) -> None:
        """Watch the credential no longer."""
        if self.parent is not None and self.parent.revocation is not None:
            self.parent.revocation.unwatch(self.revocation.come)

    def end(self) -> None:
        """The session is over: end what is open with it."""
        self.leave()
        self.revocation.come()


class ConsoleSessions:
    """Judges the tokens of console sessions; used on the event loop only."""

    def __init__(self, engine: Engine, principals: Principals, world: World, contract: SessionContract) -> None:
        self._engine = engine
        self._principals = principals
        self._world = world
        self._contract = contract
        self._version = -1
        self._floor = -1
        """The latest change of this node: an older state is not taken."""
        self._held: dict[bytes, HeldSession] = {}
        self._turn = asyncio.Lock()
        self._begun = 0
        self._done = 0
        """The number of the latest read that ended well."""

    def judge(self, digest: bytes, now_ms: int) -> KnownCaller:
        """The caller of a session's token, by its hash; `UnauthorizedError` if the session or its credential is
        over.
        """
        held = self._held.get(digest)
        if held is None or held.revocation.has_come or now_ms >= held.row.ends_at:
            raise unauthorized(OVER, b"invalid_token")
        found = self.behind(held.row, now_ms, held.parent)
        principal = held.principal
        if principal is None or found.principal is not held.parent:
            principal = held.follow(found.principal)
        return KnownCaller(principal, found.outcome)

    def behind(self, row: ConsoleSessionRow, now_ms: int, known: Principal | None = None) -> KnownCaller:
        """The caller of the credential behind a link or a session; `UnauthorizedError` if that is over or has changed.

        `known` is the principal that was found to be unchanged before.
        """
        outcome = AuthOutcome.BAD
        try:
            found = self._credential(row, now_ms)
        except UnauthorizedError as refused:
            found, outcome = None, refused.outcome
        if found is None or (found.principal is not known and rights_of(found.principal) != row.rights):
            said = "The credential of this console session has ended or changed: sign in with one that is valid."
            raise unauthorized(said, b"invalid_token", outcome)
        return found

    def _credential(self, row: ConsoleSessionRow, now_ms: int) -> KnownCaller | None:
        if row.claims is None or row.signing_key is None:
            return self._principals.find(row.credential, now_ms)
        return self._principals.find_signed(SignedClaims(row.claims, row.signing_key), now_ms)

    def session(self, digest: bytes) -> ConsoleSessionRow | None:
        """The session with this hash, whether its credential is valid or not; None if this node knows none."""
        held = self._held.get(digest)
        return None if held is None else held.row

    def lacks(self, digest: bytes) -> bool:
        """Whether another node may have begun a session with this hash that this one has not read yet."""
        return self._engine.is_shared and digest not in self._held

    def begin(self, changed: SessionChanged) -> None:
        """Take a session that this node has begun; what else has changed is read next."""
        if changed.row is not None and changed.version > self._version:
            self._pass(changed.version)
            self._hold(changed.row)

    def end(self, row: ConsoleSessionRow, version: int) -> None:
        """Take the end of a session, by a command of this node."""
        self._pass(version)
        held = self._held.pop(row.digest, None)
        if held is not None:
            held.end()

    def _pass(self, version: int) -> None:
        """A change of this node has this version."""
        self._floor = max(self._floor, version)
        if version == self._version + 1:
            self._version = version

    def load(self, state: ConsoleState) -> None:
        """Take the sessions of the store as they were read."""
        if state.version <= self._version or state.version < self._floor:
            return
        self._version = state.version
        for digest in self._held.keys() - state.rows.keys():
            self._held.pop(digest).end()
        for digest, row in state.rows.items():
            if digest not in self._held:
                self._hold(row)

    def _hold(self, row: ConsoleSessionRow) -> None:
        """Keep a session, and watch its credential from now on; that of a JWT cannot be revoked."""
        held = self._held[row.digest] = HeldSession(row)
        held.revocation.watch(self._wake)
        if row.claims is None:
            with suppress(UnauthorizedError):  # each request with it is refused
                held.follow(self.behind(row, self._world.wall_ms()).principal)

    def _wake(self) -> None:
        self._engine.signals.send((TOPIC,))

    async def refresh(self) -> None:
        """Read what other nodes have changed before this call; waiting callers share one read. Raises `EngineError`."""
        called_at = self._begun
        async with self._turn:
            if self._done > called_at:
                return
            self._begun += 1
            number, known = self._begun, self._version
            state = await self._engine.read(lambda reading: read_sessions(reading, known))
            if state is not None:
                self.load(state)
            self._done = number

    async def run(self) -> None:
        """Follow the changes of all nodes until cancelled."""
        watch = self._engine.signals.watch(TOPIC, is_own=True)
        try:
            while True:
                watch.arm()
                try:
                    await self.refresh()
                    await self._end_revoked()
                except EngineError as error:  # it is tried again; the known sessions stay in force
                    self._engine.observer.store_failure(error)
                    await asyncio.sleep(POLL_SECONDS)
                await watch.wait(POLL_SECONDS if self._engine.is_shared else MAX_SLEEP_SECONDS)
        finally:
            watch.close()

    async def _end_revoked(self) -> None:
        """Delete the sessions whose credential was revoked here: one that comes back does not bring them back."""
        for held in [one for one in self._held.values() if one.revocation.has_come]:
            await self._engine.submit(Write(self._contract, EndSession(held.row.id)))
            self._held.pop(held.row.digest, None)


def rights_of(principal: Principal) -> bytes:
    """A hash of everything that a principal is and may, apart from its end."""
    scopes = None if principal.scopes is None else [tuple(scope) for scope in principal.scopes]
    namespaces = None if principal.namespaces is None else sorted(principal.namespaces)
    roles, claims = sorted(role.value for role in principal.roles), sorted(principal.claims.items())
    facts = (principal.kind, principal.name, principal.client_id, roles, scopes, claims, namespaces)
    return sha256(repr(facts).encode()).digest()
