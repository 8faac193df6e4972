"""Bugs in the clients, in the verifier of proofs and in the commands."""

from __future__ import annotations

from bench.planted.bug import bug

CLIENTS = (
    bug(
        "client-lost-answer-called-settled",
        "a caller is told when a lost answer leaves the outcome open",
        "client/calling.py",
        "                is_unsettled = is_unsettled or error.is_unsettled\n",
        "                is_unsettled = error.is_unsettled\n",
        "tests/client/test_calling.py",
    ),
    bug(
        "replica-applies-a-page-twice",
        "a page is applied once, from where it was asked for",
        "client/deltas/replica.py",
        "            if self.cursor != page.since:\n                return None\n",
        "",
        "tests/client/test_deltas_refusals.py",
    ),
    bug(
        "replica-drops-an-acknowledged-change",
        "an acknowledged change stays until the server has told it back",
        "client/deltas/replica.py",
        "            self.outbox.acknowledge(batch, through)\n",
        "            self.outbox.acknowledge(batch, through)\n            self.outbox.passed(through)\n",
        "tests/client/test_deltas_client.py",
    ),
    bug(
        "verifier-takes-any-bucket",
        "a proof of absence is about the bucket of its key",
        "client/proofs/state.py",
        "    if root != state.bucket_root:\n",
        "    if root is None:\n",
        "tests/client/test_proofs.py",
        "tests/client/test_proofs_bits.py",
    ),
    bug(
        "verifier-takes-a-future-version",
        "a proof tells of nothing later than its block",
        "client/proofs/state.py",
        "    if state.entry.version > header.height:\n",
        "    if state.entry.version < 0:\n",
        "tests/client/test_proofs.py",
        "tests/client/test_proofs_bits.py",
    ),
)
