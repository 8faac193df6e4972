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
        "known-head-ignores-what-follows-the-key",
        "a head is known by every byte but its key, also on a connection that sent it before",
        "server/http/head_shapes.py",
        "                    and data.startswith(after, stop)\n",
        "",
        "tests/streams/shapes/test_shapes.py",
    ),
    bug(
        "known-head-ignores-the-length-of-the-body",
        "a body has the length that its head says, also on a connection that sent such a head before",
        "server/http/head_shapes.py",
        "                    and len(data) - body_at == shape.length\n",
        "",
        "tests/streams/shapes/test_shapes.py",
    ),
    bug(
        "plain-batch-answers-without-commit",
        "plain writes are on disk before their callers are answered",
        "engine/plain_batch.py",
        "            yield tx.commit\n",
        "            pass\n",
        "tests/streams/rules/test_plain_append.py",
        "tests/engine/test_loop_lane.py",
    ),
)
