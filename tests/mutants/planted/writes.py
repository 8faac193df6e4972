"""Bugs in the life of a write: its look-up, who is told of it, and its counted retries."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_ACCESS = "tests/server/writes/test_access.py"
_HIDDEN = "a write that a caller may not read does not exist for it"
_COUNTED = "a retry that is answered from its receipt is counted"

WRITES = (
    bug(
        "writes-a-stream-of-another-tenant-is-found",
        _HIDDEN,
        "surfaces/streams/find.py",
        "    may = query.caller.may(Role.READ, SURFACE, name)\n",
        "    may = query.caller.has(Role.READ)\n",
        _ACCESS,
    ),
    bug(
        "writes-an-event-of-another-tenant-is-found",
        _HIDDEN,
        "surfaces/events/find.py",
        "    return may_read and (query.place is None or query.place in names)\n",
        "    return query.place is None or query.place in names\n",
        _ACCESS,
    ),
    bug(
        "writes-a-job-of-another-principal-is-found",
        _HIDDEN,
        "surfaces/jobs/find.py",
        "        if job is not None and may_see(query.caller, job) and query.place in (None, job.principal):\n",
        "        if job is not None and query.place in (None, job.principal):\n",
        _ACCESS,
    ),
    bug(
        "writes-a-key-of-another-principal-is-found",
        _HIDDEN,
        "surfaces/jobs/find.py",
        "        if query.place in (None, own) or is_admin(caller):\n",
        "        if True:\n",
        _ACCESS,
    ),
    bug(
        "writes-a-place-of-another-tenant-is-found",
        _HIDDEN,
        "surfaces/ledger/find.py",
        "if reaches(query.caller, Role.READ, place) and _is_readable(reading, place)]\n",
        "if _is_readable(reading, place)]\n",
        _ACCESS,
    ),
    bug(
        "writes-sync-rules-do-not-hide-a-delta",
        _HIDDEN,
        "surfaces/deltas/find.py",
        "    if not gateway.rules or query.caller.may(Role.ADMIN, SURFACE, gateway.name):\n",
        "    if query.caller.may(Role.READ, SURFACE, gateway.name):\n",
        _ACCESS,
    ),
    bug(
        "writes-the-audit-log-has-the-identity",
        "no log has the identity of a look-up",
        "server/http/request.py",
        "        if self.raw_path.startswith(WRITES_PATH):\n",
        "        if self.raw_path == WRITES_PATH:\n",
        _ACCESS,
    ),
    bug(
        "writes-a-key-of-a-deleted-stream-is-found",
        "a receipt belongs to the stream that it was written in",
        "surfaces/streams/find.py",
        "            if scope in living and receipt.id == living[scope].id and reading",
        "            if scope in living and reading",
        "tests/server/writes/test_identities.py",
    ),
    bug(
        "writes-a-look-up-that-ends-early-is-called-complete",
        "an answer that lacks scopes says so",
        "surfaces/streams/find.py",
        "                budget.end(HINT)\n",
        "                pass\n",
        "tests/server/writes/test_budget.py",
    ),
    bug(
        "writes-the-budget-is-not-given-back",
        "only scopes that were tried count",
        "server/writes/lookup.py",
        "        self._left += count\n",
        "        pass\n",
        "tests/server/writes/test_budget.py",
    ),
    bug(
        "writes-retries-of-known-heads-are-not-noted",
        _COUNTED,
        "surfaces/streams/shaped_append.py",
        "        if replayed:\n            self.note_retry()\n",
        "",
        "tests/server/writes/test_retries.py",
    ),
    bug(
        "writes-retries-through-fronts-are-not-noted",
        _COUNTED,
        "surfaces/streams/shaped_append.py",
        "        if answer.replayed:\n            self.note_retry()\n",
        "",
        "tests/server/writes/test_retries.py",
    ),
    bug(
        "writes-retries-of-messages-are-not-noted",
        _COUNTED,
        "surfaces/events/requests.py",
        "        self._service.note_retries(answer, self.principal, self._remote)\n",
        "",
        "tests/server/writes/test_retries.py",
    ),
    bug(
        "writes-every-delta-of-a-push-counts-as-a-retry",
        "a first attempt is no retry",
        "surfaces/deltas/rules/push.py",
        "    return tuple([delta.id for delta in command.deltas if delta.id not in new])\n",
        "    return tuple([delta.id for delta in command.deltas])\n",
        "tests/server/writes/test_retries.py",
    ),
    bug(
        "writes-nodes-replace-the-counts-of-others",
        "counts of several nodes are added",
        "server/writes/retry_table.py",
        "RetryRow(surface, one.key, total + one.total, since, until, _dumped(last))",
        "RetryRow(surface, one.key, one.total, since, until, _dumped(last))",
        "tests/server/writes/test_retry_log.py",
    ),
    bug(
        "writes-counting-retries-syncs-the-disk",
        "a duplicate costs no sync",
        "engine/batch.py",
        "    durable = bool(plain) or not all(one.write.is_soft for one in submissions)\n",
        "    durable = True\n",
        "tests/server/writes/test_retry_log.py",
    ),
    bug(
        "writes-a-stop-forgets-the-last-retries",
        "an orderly stop stores what was counted",
        "server/process.py",
        "            await context.retries.finish()\n",
        "",
        "tests/server/writes/test_retries.py",
    ),
)
