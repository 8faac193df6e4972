"""Bugs in the clients, in the verifier of proofs and in the commands."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

CLIENTS = (
    bug(
        "client-lost-answer-called-settled",
        "a caller is told when a lost answer leaves the outcome open",
        "client/retry.py",
        "                is_unsettled = is_unsettled or error.is_unsettled\n",
        "                is_unsettled = error.is_unsettled\n",
        "tests/client/test_calling.py",
    ),
    bug(
        "replica-takes-a-page-of-another-beginning",
        "a page counts only from where the replica stands",
        "client/deltas/replica.py",
        "            if page.since > cursor or not self.progress.agrees(page.epoch):\n",
        "            if not self.progress.agrees(page.epoch):\n",
        "tests/client/test_deltas_refusals.py",
    ),
    bug(
        "replica-drops-an-acknowledged-change",
        "an acknowledged change is part of what the server has told",
        "client/deltas/replica.py",
        "                base = settled(self._base(place), sorted(own.get(place, ()), key=_time), receipt.at)\n",
        "                base = self._base(place)\n",
        "tests/client/test_deltas_client.py",
    ),
    bug(
        "replica-lets-a-late-page-overwrite",
        "for each column what was said as of the highest position counts",
        "client/deltas/rows.py",
        "        if at >= (base.bare_at if known is None else known.at):\n",
        "        if at >= 0:\n",
        "tests/client/test_deltas_rows.py",
    ),
    bug(
        "replica-ignores-a-new-epoch",
        "a replica begins anew when its server was restored",
        "client/deltas/state.py",
        "        return known in (None, str(epoch))\n",
        "        return True\n",
        "tests/epoch/test_deltas_replica.py",
    ),
    bug(
        "replica-never-hears-of-its-later-life",
        "an older copy of a file is told what its later life wrote",
        "client/deltas/state.py",
        "            self.own_after = first - 1\n",
        "            self.own_after = 0\n",
        "tests/client/test_deltas_live.py",
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
