"""A write whose answer was lost, or that the server was too busy for: sent again as it was, a bounded number of times,
and the identity under which a person can go on is told.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.cli.command import Semel
from tests.cli.scripted import Line, Seen, scripted

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
GONE = Line(0)
AT = "2026-01-01T00:00:00.000Z"


def answer(facts: Any, status: int = 200, **headers: str) -> Line:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Line(status, {"Content-Type": "application/json", "Retry-After": "0", **named}, json.dumps(facts).encode())


def refusal(status: int, code: str, retry: str = "never") -> Line:
    """A refusal in the form of every surface at once."""
    text = f"This is {code}."
    form = {"status": status, "code": code, "detail": text, "retry": retry, "ok": False, "error": code, "message": text}
    return answer(form, status)


class Write(NamedTuple):
    """A command that writes once."""

    line: str
    good: Line
    """What the server answers; a replay where that has a form of its own."""
    key: Callable[[Seen], str]
    """The identity in a request."""
    advice: str
    """What is told when nobody knows."""


def in_header(seen: Seen) -> str:
    return seen.headers["Idempotency-Key"]


def in_body(*path: str | int) -> Callable[[Seen], str]:
    def key(seen: Seen) -> str:
        found: Any = json.loads(seen.body)
        for one in path:
            found = found[one]
        return str(found)

    return key


def as_uuid(seen: Seen) -> str:
    return str(UUID(bytes=b64decode(json.loads(seen.body)["idempotencyKey"])))


JOB = {"job_id": "job_" + "0" * 32, "request_id": "r", "dedup": True, "status": "accepted", "state": "queued"}
COMMITTED = {"success": {"txId": {"id": "AAAAAAAAAAAAAAAAAAAAAA=="}, "blockHeight": "7", "assignedSequence": "3"}}
EVENT = {"id": "e", "status": "committed", "committed_id": 3, "status_updated_at": 1_760_000_000_000}
CREATE = "It may be created: run this again with --key {} to create it exactly once."
WRITES = {
    "streams": Write(
        "streams append s text --type text/plain",
        Line(204, {"Stream-Next-Offset": "0000000000000000_0000000000000001"}),
        in_header,
        "It may be stored: run this again with --key {} to store it exactly once.",
    ),
    "events": Write(
        """events submit p --event {"type":"t"} --id e --client-id me""",
        answer({"results": [EVENT]}),
        in_body("events", 0, "id"),
        "It may be committed: run this again with --id {} to commit it exactly once.",
    ),
    "jobs": Write(
        "jobs submit k",
        answer({"ok": True, "attempt": 0, "revision": 0, "created_utc": AT, **JOB}),
        in_body("idempotency_key"),
        "It may be queued: run this again with --key {} to queue it exactly once.",
    ),
    "ledger": Write(
        "ledger write 7001/9001 --client app --set a=1",
        answer(COMMITTED, Idempotency_Replayed="true"),
        as_uuid,
        "It may be committed: run this again with --key {} to execute it exactly once.",
    ),
    "organization": Write(
        "ledger org create shop", answer({"slug": {"slug": "5"}}, Idempotency_Replayed="true"), in_header, CREATE
    ),
    "vault": Write(
        "ledger vault create 7001",
        answer({"vault": {"slug": "5"}, "organization": {"slug": "7001"}}, Idempotency_Replayed="true"),
        in_header,
        CREATE,
    ),
}
EACH = pytest.mark.parametrize("name", WRITES)


@EACH
def test_the_same_request_until_there_is_an_answer(name: str) -> None:
    write = WRITES[name]
    busy = (
        refusal(503, "OVERLOADED", "same_key"),
        refusal(429, "RATE_LIMITED", "later"),
        refusal(500, "X", "same_key"),
    )
    with scripted(GONE, *busy, write.good) as server:
        done = Semel(server.url).here(*write.line.split())
    assert done.code == 0, done.err
    assert done.err.startswith(f"The connection to {server.url} was lost before the answer came. Trying again.\n")
    assert len({(seen.method, seen.path, seen.body, write.key(seen)) for seen in server.seen}) == 1
    assert (len(server.seen), name == "events" or bool(UUID7.fullmatch(write.key(server.seen[0])))) == (5, True)


@EACH
def test_tries_are_bounded_and_the_identity_is_told(name: str) -> None:
    write = WRITES[name]
    with scripted(GONE) as server:
        failed = Semel(server.url).here(*write.line.split(), "--retries", "2")
    assert (failed.code, failed.raw, len(server.seen)) == (1, b"", 3)
    assert failed.err.endswith(f" {write.advice.format(write.key(server.seen[0]))}\n")


@EACH
@pytest.mark.parametrize("status", [400, 401, 403, 409, 410, 413])
def test_a_definite_refusal_is_not_tried_again(name: str, status: int) -> None:
    with scripted(refusal(status, "NO")) as server:
        run = Semel(server.url).here(*WRITES[name].line.split())
    assert (run.code, run.raw, run.err, len(server.seen)) == (1, b"", "Error: This is NO. [NO]\n", 1)
