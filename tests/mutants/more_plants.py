"""The plants of the library, its outbox and proxy, clients and workers, the stores and access."""

from __future__ import annotations

import ssl
from collections.abc import Generator
from contextlib import nullcontext, suppress
from typing import Any
from uuid import uuid4

from tests.mutants.plant import Plant, Unwritten, always, answered, asked, instead, the

# -- Once --------------------------------------------------------------------------------------------------------------


def with_first_arguments(wanted: Any, found: Any) -> tuple[Any, ...]:
    return wanted._replace(fingerprint=bytes(found[0][0])) if found else wanted, found


def kept(error: Exception | None = None) -> Generator[Any, Any, None]:
    """A block that raised is released, and not rolled back."""
    yield the("semel.once.rules:OnceStep.RELEASE")
    if error is not None:
        raise error


def with_ended_lease(claim: Any, row: Any) -> tuple[Any, ...]:
    known, state, result, owner, _, *rest = row
    return claim, (known, state, result, owner, 0, *rest)


def stored_as_final(original: Any) -> Any:
    def broken(self: Any, request: Any, answer: Any) -> Generator[Any, Any, None]:
        if answer.status < 500:
            yield from original(self, request, answer)
            return
        request.is_answered = True
        yield from the("semel.once.calls:stored")(request.claim, "done", the("semel.once.exchange:packed")(answer))

    return broken


ONCE = (
    Plant(
        "once-other-arguments-replayed",
        "a key that is used with other arguments is refused",
        "semel.once.rules:judged",
        asked(with_first_arguments),
        ("tests/once/test_transactions.py",),
    ),
    Plant(
        "once-failed-block-keeps-its-receipt",
        "a block that raised leaves neither effect nor receipt",
        "semel.once.rules:undone",
        instead(kept),
        ("tests/once/test_transactions.py",),
    ),
    Plant(
        "once-result-not-kept",
        "every retry gets the first result",
        "semel.once.rules:finished",
        asked(lambda receipts, wanted, result: (receipts, wanted, None)),
        ("tests/once/test_transactions.py",),
    ),
    Plant(
        "once-unknown-outcome-run-again",
        "an unknown outcome is called unknown",
        "semel.once.calls:_on_crash",
        always("retry"),
        ("tests/once/test_function_rules.py",),
    ),
    Plant(
        "once-key-released-after-an-effect",
        "a function that may have had an effect is not run again",
        "semel.once.calls:is_open",
        always(False),
        ("tests/once/test_failures.py",),
    ),
    Plant(
        "once-running-call-called-ended",
        "a retry waits while the first call runs",
        "semel.once.claims:judged",
        asked(with_ended_lease),
        ("tests/once/test_functions.py",),
    ),
    Plant(
        "once-other-request-replayed",
        "a key that is used for another request is refused",
        "semel.once.http_rules:HttpRules.claim",
        answered(lambda claim, *_: claim._replace(fingerprint=bytes(32))),
        ("tests/once/test_middleware.py",),
    ),
    Plant(
        "once-failure-called-final",
        "a failure after an effect leaves the outcome open, and is not replayed",
        "semel.once.http_rules:HttpRules.answered",
        stored_as_final,
        ("tests/once/test_middleware.py",),
    ),
)


# -- Outbox and proxy --------------------------------------------------------------------------------------------------


def posted_anyway(original: Any) -> Any:
    def broken(statements: Any, message: Any, *rest: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from original(statements, message, *rest))
        except the("semel.once.errors:KeyMismatch"):
            return the("semel.once.outbox_store:Posted")(message.key, fresh=False)

    return broken


def done_without_answer(original: Any) -> Any:
    def broken(delivery: Any, leased: Any, *rest: Any) -> Any:
        if delivery.status is None and delivery.is_seen:
            return the("semel.once.messages:MessageFate")(the("semel.once.messages:MessageState.DONE"))
        return original(delivery, leased, *rest)

    return broken


OUTBOX = (
    Plant(
        "outbox-other-message-called-posted",
        "a key that was used for another message is refused",
        "semel.once.outbox_store:posted",
        posted_anyway,
        ("tests/once/test_outbox.py",),
    ),
    Plant(
        "outbox-order-ignored",
        "messages of one order are delivered one after the other",
        "semel.once.message_table:MessageStatements.add",
        asked(lambda self, message, now: (self, message._replace(order_by=None), now)),
        ("tests/once/test_outbox.py",),
    ),
    Plant(
        "outbox-lost-answer-called-delivered",
        "a message is sent until its receiver has answered",
        "semel.once.messages:judged",
        done_without_answer,
        ("tests/once/test_outbox.py",),
    ),
    Plant(
        "outbox-new-key-for-each-attempt",
        "every attempt has the key of its message",
        "semel.once.delivery:sent_headers",
        answered(lambda headers, *_: headers | {"Idempotency-Key": f'"{uuid4()}"'}),
        ("tests/once/test_outbox.py",),
    ),
    Plant(
        "outbox-sent-after-its-key-is-forgotten",
        "a message that may have arrived is not sent again when its receiver may have forgotten the key",
        "semel.once.messages:fate_before",
        always(None),
        ("tests/once/test_messages.py",),
    ),
)


def untraced() -> Any:
    return the("aiohttp:TraceConfig")()


def same_scope_for_all(names: tuple[str, ...]) -> Any:
    return lambda incoming: "all"


def with_credentials(kept: Any, fields: Any) -> Any:
    return [*kept, *(field for field in fields if field[0].lower() == b"proxy-authorization")]


PROXY = (
    Plant(
        "proxy-callers-share-keys",
        "the keys of two callers are two keys",
        "semel.proxy.app:scope_of",
        instead(same_scope_for_all),
        ("tests/proxy/test_keys.py",),
    ),
    Plant(
        "proxy-sent-request-called-unsent",
        "a request that may have been sent is not sent again",
        "semel.proxy.forward:_departure",
        instead(untraced),
        ("tests/proxy/test_keys.py",),
    ),
    Plant(
        "proxy-unknown-outcome-sent-again",
        "an unknown outcome is called unknown, unless its route may be repeated",
        "semel.proxy.settings:policy_for",
        answered(lambda policy, *_: policy and "retry"),
        ("tests/proxy/test_kills.py",),
    ),
    Plant(
        "proxy-passes-on-what-is-for-itself",
        "credentials for the proxy end at the proxy",
        "semel.proxy.headers:passed_on",
        answered(with_credentials),
        ("tests/proxy/test_routes.py",),
    ),
)


# -- Workers, replicas and other clients -------------------------------------------------------------------------------


def never_known(original: Any) -> Any:
    async def broken(self: Any, step_key: str) -> Any:
        step = await original(self, step_key)
        return step.__class__(False, None, False)

    return broken


async def held_for_ever(self: Any) -> bool:
    return True


async def sent_once(self: Any, report: Any) -> Any:
    try:
        return await self._send(report)
    except the("semel.client.errors:RefusedError"):
        return the("semel.client.worker.attempt:WorkerEnding.DROPPED")


WORKER = (
    Plant(
        "worker-begins-after-its-lease",
        "a job whose lease has ended is not begun",
        "semel.client.worker.attempt:WorkerAttempt._is_held",
        instead(held_for_ever),
        ("tests/client/test_worker_leases.py",),
    ),
    Plant(
        "worker-step-done-again",
        "a step that is stored is not done again",
        "semel.client.worker.job:Steps.ask",
        never_known,
        ("tests/client/test_worker.py",),
    ),
    Plant(
        "worker-claim-without-an-id",
        "a claim whose answer was lost is repeated, and gets the same leases",
        "semel.client.jobs.lease_calls:fresh_name",
        always(None),
        ("tests/client/test_lost_answers.py",),
    ),
    Plant(
        "worker-report-not-repeated",
        "a report is repeated until the server has answered",
        "semel.client.worker.attempt:WorkerAttempt._deliver",
        instead(sent_once),
        ("tests/client/test_worker_faults.py",),
    ),
)


def moved_too_far(original: Any) -> Any:
    def broken(self: Any, event: Any) -> Any:
        found = original(self, event)
        at = self._position
        self._position = at.__class__(at.epoch, at.committed_id + 1)
        return found

    return broken


def as_news(self: Any, page: Any) -> tuple[Any, ...]:
    cursor = self.progress.cursor
    return self, page._replace(entries=[one._replace(at=max(one.at, cursor + 1)) for one in page.entries])


CLIENT = (
    Plant(
        "client-unknown-outcome-called-definite",
        "an unknown outcome is called unknown",
        "semel.client.retry:_last",
        instead(lambda error, is_unsettled, identity: error),
        ("tests/client/test_faults.py",),
    ),
    Plant(
        "client-follower-skips-an-event",
        "a follower goes on behind the last event that it handed over",
        "semel.client.events.follow:AsyncEventFollower._new",
        moved_too_far,
        ("tests/client/events/test_follow.py",),
    ),
    Plant(
        "client-replica-applies-a-late-page",
        "a page that comes late changes nothing that is known already",
        "semel.client.deltas.replica:LocalReplica.apply",
        asked(as_news),
        ("tests/client/test_deltas_pulls.py::test_an_entry_that_comes_again_does_not_bring_a_deleted_row_back",),
    ),
    Plant(
        "client-proof-of-another-state-taken",
        "a proof is checked offline, up to the root of its state",
        "semel.client.proofs.state:_match_roots",
        always(None),
        ("tests/client/test_proofs_bits.py",),
    ),
)


# -- Stores ------------------------------------------------------------------------------------------------------------


def one_short(statement: Any, *_: Any) -> Any:
    sql, values = statement
    return sql, [*values[:-1], max(1, values[-1] - 1)]


def believed(original: Any) -> Any:
    """A commit of SQLite that fails is told as a success."""

    def broken(self: Any) -> Any:
        with suppress(the("semel.store.protocol:StoreBrokenError")):
            original(self)
        self._store._broken = False
        return ()

    return broken


def unsynced(connection: Any, *_: Any) -> Any:
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def committed_locally(filled: Any, *_: Any) -> Any:
    sql, values = filled
    return sql.replace("ELSE 'on'", "ELSE 'off'"), values


def set_anyway(self: Any, row: Any) -> Any:
    values = list(row)
    values[self.table.position(self.column)] = self.value
    return row._make(values)


STORE = (
    Plant(
        "store-sqlite-page-is-one-row-short",
        "a list has every row, in every store",
        "semel.store.sqlite.statements:SqliteStatements.scan",
        answered(one_short),
        ("tests/store/test_conformance_model.py",),
        one_store=True,
    ),
    Plant(
        "store-sqlite-deleted-row-stays-in-memory",
        "a row that was deleted is gone, in every store",
        "semel.store.sqlite.row_cache:CachedRows.flush",
        asked(lambda self, changes: (self, changes._replace(deletes={}))),
        ("tests/store/test_row_cache.py",),
        one_store=True,
    ),
    Plant(
        "store-sqlite-backwards-is-forwards",
        "a list backwards has the last rows first, in every store",
        "semel.store.sqlite.statements:SqliteStatements._ordered",
        asked(lambda self, select, wanted: (self, select, wanted._replace(reverse=False))),
        ("tests/store/test_conformance_model.py",),
        one_store=True,
    ),
    Plant(
        "store-postgres-nothing-stored-as-zero",
        "a row is read as it was written, in every store",
        "semel.store.postgres.pipeline:number_array",
        asked(lambda values: ([0 if value is None else value for value in values],)),
        ("tests/store/test_conformance.py::test_a_commit_keeps_every_row",),
        one_store=True,
    ),
    Plant(
        "store-postgres-updates-one-row-of-many",
        "what a write changes is stored, in every store",
        "semel.store.postgres.statements:PgStatements.update",
        asked(lambda self, rows: (self, rows[:1])),
        ("tests/store/test_conformance.py::test_sets_of_any_size",),
        one_store=True,
    ),
    Plant(
        "store-failed-commit-called-stored",
        "a commit that failed, or whose answer was lost, is told as what became of it",
        "semel.store.sqlite.store:_SqliteTx.commit",
        believed,
        ("tests/store/test_sqlite.py",),
        also=(("semel.store.postgres.transaction:PgTransaction._fate", always(True)),),
    ),
    Plant(
        "store-commit-not-synced",
        "an acknowledged commit is on disk",
        "semel.store.sqlite.store:SqliteFileStore._connect",
        answered(unsynced),
        ("tests/store/test_sqlite.py",),
        also=(("semel.store.postgres.commit_fate:CommitMark.write", answered(committed_locally)),),
    ),
    Plant(
        "store-soft-change-falls",
        "a lease that was extended is not shortened: a soft change only ever goes upwards",
        "semel.store.protocol:Touch.raised",
        instead(set_anyway),
        ("tests/engine/test_soft_changes.py",),
    ),
)


# -- Restore, backup, move and epochs ----------------------------------------------------------------------------------


def frame_unchecked(self: Any, *kinds: bytes) -> tuple[bytes, bytes]:
    kind, length = the("semel.store.backup_file:_HEAD").unpack(self._read(5))
    content = self._read(length)
    self._last = self._read(32)
    return kind, content


RESTORE = (
    Plant(
        "restore-keeps-the-epoch",
        "a restore begins a new epoch of every log",
        "semel.server.offline_backup:_raised",
        asked(lambda tx: (Unwritten(tx),)),
        ("tests/cli/test_backup.py",),
    ),
    Plant(
        "restore-takes-a-damaged-backup",
        "a damaged backup is refused",
        "semel.store.backup_file:BackupReader._frame",
        instead(frame_unchecked),
        ("tests/store/test_backup.py",),
    ),
    Plant(
        "restore-move-leaves-no-mark",
        "no server starts on a store that was moved",
        "semel.server.offline_backup:marked_as_moved",
        instead(lambda url: nullcontext()),
        ("tests/backup/test_move.py",),
    ),
    Plant(
        "restore-lost-cursor-served",
        "a cursor of a history that a restore has lost is refused",
        "semel.surfaces.events.rules.epochs:cursor_status",
        answered(lambda status, *_: status._replace(reset=None)),
        ("tests/epoch/test_events_restored.py",),
    ),
)


# -- Access ------------------------------------------------------------------------------------------------------------


def known_anywhere(self: Any, known: Any) -> Any:
    module = "semel.server.auth.principals"
    return the(f"{module}:KnownCaller")(known, the(f"{module}:AuthOutcome.ACTIVE"))


def from_any_time(original: Any) -> Any:
    def broken(self: Any, *given: Any) -> None:
        self._version = self._floor = -1
        original(self, *given)

    return broken


def of_any_host(context: ssl.SSLContext, *_: Any) -> ssl.SSLContext:
    context.check_hostname = False
    return context


ACCESS = (
    Plant(
        "access-credential-known-in-every-namespace",
        "a credential that is limited to namespaces is unknown in every other one",
        "semel.server.auth.principals:Principals._here",
        instead(known_anywhere),
        ("tests/namespaces/test_credentials.py",),
    ),
    Plant(
        "access-scope-ignored",
        "a credential reaches what its scope names, and nothing else",
        "semel.server.auth.principals:Principal.may",
        instead(lambda self, role, surface, name: self.has(role)),
        ("tests/server/auth/test_principals.py",),
    ),
    Plant(
        "access-revoked-token-comes-back",
        "a token that was revoked counts no longer",
        "semel.server.auth.stored_tokens:StoredTokens.load",
        from_any_time,
        ("tests/server/auth/test_stored_tokens.py",),
    ),
    Plant(
        "access-keys-of-another-host",
        "keys of JWTs are taken from the host of their URL alone",
        "semel.server.auth.issuer_tls:trust_of",
        answered(of_any_host),
        ("tests/server/auth/test_jwks_tls.py",),
    ),
)

MORE: tuple[Plant, ...] = (*ONCE, *OUTBOX, *PROXY, *WORKER, *CLIENT, *STORE, *RESTORE, *ACCESS)
