"""Bugs in the five surfaces."""

from __future__ import annotations

from bench.planted.bug import bug

SURFACES = (
    bug(
        "streams-key-with-another-body-replayed",
        "a reused key with another body is refused",
        "contracts/streams/rules/append.py",
        "    if verdict is Verdict.MISMATCH:\n",
        "    if verdict is Verdict.GAP:\n",
        "tests/streams/test_idempotency_key.py",
    ),
    bug(
        "streams-receipt-of-a-former-stream",
        "a key belongs to one life of a stream",
        "contracts/streams/rules/append.py",
        "    row = view.get(RECEIPT, (command.scope, command.key))\n"
        "    return row if row is not None and row.id == stream.id else None\n",
        "    return view.get(RECEIPT, (command.scope, command.key))\n",
        "tests/streams/test_idempotency_key.py",
    ),
    bug(
        "streams-closed-stream-appended-to",
        "a closed stream takes no more content",
        "contracts/streams/rules/append.py",
        "    if not stream.closed:\n        return None\n",
        "    if not stream.closed or command.content.data:\n        return None\n",
        "tests/streams",
    ),
    bug(
        "events-id-with-other-content-acknowledged",
        "an id that is committed with other content is refused",
        "contracts/events/rules/submit.py",
        "    if row.digest == item.digest:\n",
        "    if row is not None:\n",
        "tests/events/test_equality.py",
        "tests/events/test_submit.py",
    ),
    bug(
        "events-seam-skips",
        "pages of history and live events join without a gap",
        "server/events/looks.py",
        "            self._subscriber.subscribe(page.sync_to, frozenset(asked.subscription))\n",
        "            at = max(page.sync_to, self._hub.feed.position)\n"
        "            self._subscriber.subscribe(at, frozenset(asked.subscription))\n",
        "tests/events/test_seam.py",
    ),
    bug(
        "events-digest-without-partitions",
        "the same id with other partitions is another event",
        "contracts/events/rules/equality.py",
        """    return fingerprint(b'{"event":%s,"partitions":%s}' % (printed, partitions))\n""",
        """    return fingerprint(b'{"event":%s}' % printed)\n""",
        "tests/events/test_equality.py",
        "tests/events/test_digest.py",
    ),
    bug(
        "jobs-late-worker-believed",
        "a worker that lost its lease cannot conclude the job",
        "contracts/jobs/rules/report.py",
        "    if not is_current(secret, job, command.token):\n"
        "        return fenced(secret, job, command.token)\n"
        "    if job.phase == LEASED:\n",
        "    if job.phase == LEASED:\n",
        "tests/jobs/test_leases.py",
    ),
    bug(
        "jobs-second-outcome-taken-for-the-first",
        "the first accepted outcome is final",
        "contracts/jobs/rules/report.py",
        "    if job.ended_by in _OWN[job.phase, command.ok] and job.report == command.digest:\n",
        "    if job.ended_by in _OWN[job.phase, command.ok]:\n",
        "tests/jobs/test_leases.py",
        "tests/jobs/test_bad_reports.py",
        "tests/jobs/test_retries.py",
    ),
    bug(
        "jobs-token-of-every-lease-the-same",
        "a token is that of one lease",
        "contracts/jobs/rules/tokens.py",
        '    return digest(secret, job_id + epoch.to_bytes(8, "big"), sha256)[:TOKEN_BYTES]\n',
        "    return digest(secret, job_id, sha256)[:TOKEN_BYTES]\n",
        "tests/jobs/test_leases.py",
    ),
    bug(
        "ledger-sequence-gap-executed",
        "a ledger's sequence has no hole",
        "contracts/ledger/rules/judgement.py",
        "        return self.sequence == self.last + 1\n",
        "        return self.sequence is not None and self.sequence > self.last\n",
        "tests/ledger/test_rows.py",
    ),
    bug(
        "ledger-reused-sequence-replayed",
        "another payload under a taken sequence is refused",
        "contracts/ledger/rules/judgement.py",
        "    return case.is_old and past is not None and past.hash == case.hash and (not case.key or not past.key)\n",
        "    return case.is_old and past is not None and (not case.key or not past.key)\n",
        "tests/ledger/test_rows.py",
    ),
    bug(
        "ledger-chain-unlinked",
        "each block names the hash of the one before",
        "contracts/ledger/rules/blocks.py",
        "    previous = tip.tip_hash if tip.height else ZERO\n",
        "    previous = ZERO\n",
        "tests/ledger/test_chain.py",
    ),
    bug(
        "deltas-later-write-loses",
        "the later write of a column wins, in whatever order they arrive",
        "contracts/deltas/rules/rows.py",
        "        if known is None or is_after(stamp, known.stamp):\n",
        "        if known is None or not is_after(known.stamp, stamp) or True:\n",
        "tests/deltas_rules/test_rows.py",
    ),
    bug(
        "deltas-tie-broken-by-arrival",
        "equal times are decided by the author, everywhere alike",
        "contracts/deltas/rules/rows.py",
        "        return _code_units(one.client) > _code_units(other.client)\n",
        "        return True\n",
        "tests/deltas_rules/test_rows.py",
        "tests/deltas_model/test_permutations.py",
    ),
    bug(
        "deltas-deleted-columns-come-back",
        "a value older than the last tombstone is gone",
        "contracts/deltas/rules/rows.py",
        "        for name in removed:\n            del state.cells[name]\n",
        "",
        "tests/deltas_rules/test_rows.py",
        "tests/deltas_model/test_permutations.py",
    ),
)
