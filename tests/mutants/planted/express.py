"""Bugs in the shortcuts of plain writes: the express decision, head shapes, and the lane of the event loop."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

EXPRESS = (
    bug(
        "express-key-twice-in-a-batch",
        "a key counts once, also within one batch",
        "surfaces/streams/rules/plain_append.py",
        "            if place in receipts or place in seen:\n",
        "            if place in receipts:\n",
        "tests/streams/rules/test_plain_append.py",
    ),
    bug(
        "express-closed-stream-taken",
        "a closed stream takes no more content",
        "surfaces/streams/rules/plain_append.py",
        "    if row is None or row.closed or ",
        "    if row is None or ",
        "tests/streams/rules/test_plain_append.py",
    ),
    bug(
        "express-lock-of-another-write-ignored",
        "a plain write whose lock another write of the batch needs is decided by the rules",
        "engine/loop_lane.py",
        "        return [one for one in plain if not one.gone and one.lock not in held]\n",
        "        return [one for one in plain if not one.gone]\n",
        "tests/engine/test_loop_lane.py",
    ),
    bug(
        "shape-hides-a-header",
        "a head with a header that is acted on is parsed each time",
        "surfaces/streams/http_writes.py",
        "        if any(field in fields.one for field in VARYING) or ",
        "        if ",
        "tests/streams/shapes/test_shapes.py",
    ),
    bug(
        "shape-takes-two-requests-for-one",
        "a body has the length that its head says",
        "server/http/head_shapes.py",
        "        if shape is None or len(data) - head.body_at != shape.length:\n",
        "        if shape is None:\n",
        "tests/streams/shapes/test_shapes.py",
    ),
    bug(
        "ledger-plain-remembered-key-executed",
        "a key that is remembered is not executed again by the short way",
        "surfaces/ledger/rules/plain_write.py",
        "    if name and view.get(LEDGER_KEY, (*place, client, name)) is not None:\n",
        "    if False:\n",
        "tests/ledger/rules/test_plain_write.py",
    ),
    bug(
        "ledger-plain-past-lost",
        "the short way keeps what an entity was before",
        "surfaces/ledger/rules/plain_write.py",
        "    if old is not None:\n",
        "    if False:\n",
        "tests/ledger/rules/test_plain_write.py",
    ),
    bug(
        "ledger-plain-quota-ignored",
        "an organization with a limit of bytes is left to the full rules",
        "surfaces/ledger/rules/plain_write.py",
        "org.before.quota_bytes or org.before.quota_writes:\n",
        "org.before.quota_writes:\n",
        "tests/ledger/rules/test_plain_write.py",
    ),
    bug(
        "ledger-page-cache-before-commit",
        "pages of the tree enter the cache only after their commit",
        "surfaces/ledger/rules/write.py",
        "    rows.store()\n    return DecisionResult(ManyAnswers(",
        "    rows.store()\n    cache.take(rows.tree)\n    return DecisionResult(ManyAnswers(",
        "tests/ledger/rules/test_page_cache.py",
    ),
    bug(
        "ledger-identity-twice-in-a-group",
        "a transaction that is in a group already goes to the next one",
        "surfaces/ledger/write_queue.py",
        "            and by_sequence not in self._identities\n",
        "",
        "tests/ledger/rules/test_write_queue.py",
    ),
    bug(
        "ledger-plain-body-long-key",
        "a plain body has no other key than the full parser accepts",
        "surfaces/ledger/wire/plain_bodies.py",
        "    if named is None or len(named) not in (0, KEY_BYTES) or None in operations:\n",
        "    if named is None or None in operations:\n",
        "tests/ledger/wire/test_plain_bodies.py",
    ),
)
