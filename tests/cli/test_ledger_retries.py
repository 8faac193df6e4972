"""What `semel ledger` does when answers are lost, chains are long, or something else answers; from a script."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.cli.command import Semel
from tests.cli.scripted import Line, Scripted, scripted
from tests.client.slow_ledger import SlowLedger, b64, request_of, set_entity

PLACE = "7001/9001"
GONE = Line(0)


def answer(facts: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Line:
    own = {"Content-Type": "application/json", "Retry-After": "0", **(headers or {})}
    return Line(status, own, json.dumps(facts).encode())


def problem(status: int, code: str, retry: str) -> Line:
    return answer({"code": code, "detail": f"This is {code}.", "status": status, "retry": retry}, status)


SUCCESS = {"success": {"txId": {"id": b64(bytes(16))}, "blockHeight": "7", "assignedSequence": "3"}}
COMMITTED = answer(SUCCESS)
REPEATED = answer(SUCCESS, headers={"Idempotency-Replayed": "true"})


def key_of(body: Any) -> str:
    return str(UUID(bytes=b64decode(body["idempotencyKey"])))


def bodies(server: Scripted) -> list[Any]:
    return [json.loads(seen.body) for seen in server.seen]


def test_the_same_request_until_there_is_an_answer() -> None:
    passing = (problem(503, "UNAVAILABLE", "same_key"), problem(429, "RESOURCE_EXHAUSTED", "later"))
    with scripted(GONE, *passing, REPEATED) as server:
        done = Semel(server.url)("ledger", "write", PLACE, "--client", "app", "--set", "a=1")
    assert done.err == f"The connection to {server.url} was lost before the answer came. Trying again.\n"
    sent = bodies(server)
    assert sent == [sent[0]] * 4
    assert done.out == (f"Already committed (replayed): {'0' * 32} at height 7, sequence 3; key {key_of(sent[0])}\n")


def test_tries_are_bounded_and_the_identity_is_told() -> None:
    with scripted(GONE) as server:
        failed = Semel(server.url).here("ledger", "write", PLACE, "--client", "a", "--set", "a=1", "--retries", "1")
    key = key_of(bodies(server)[0])
    assert (failed.code, len(server.seen)) == (1, 2)
    assert failed.err.endswith(f" It may be committed: run this again with --key {key} to execute it exactly once.\n")
    with scripted(GONE) as server:
        args = ["--sequence", "4", "--set", "a=1", "--retries", "0"]
        failed = Semel(server.url).here("ledger", "write", PLACE, "--client", "a", *args)
    assert "run this again with --sequence 4 to" in failed.err


def test_a_refusal_is_not_tried_again() -> None:
    with scripted(problem(400, "INVALID_ARGUMENT", "never")) as server:
        failed = Semel(server.url).here("ledger", "write", PLACE, "--client", "a", "--set", "a=1")
    assert (failed.code, len(server.seen)) == (1, 1)
    assert failed.err == "Error: This is INVALID_ARGUMENT. [INVALID_ARGUMENT]\n"


def test_makings_have_one_key() -> None:
    made = answer({"slug": {"slug": "5"}}, headers={"Idempotency-Replayed": "true"})
    with scripted(GONE, made) as server:
        done = Semel(server.url).here("ledger", "org", "create", "shop", "--json")
    keys = {seen.headers["Idempotency-Key"] for seen in server.seen}
    assert (done.facts["replayed"], {done.facts["key"]}) == (True, keys)


@pytest.mark.parametrize("args", [("org", "create", "shop"), ("vault", "create", "7001")], ids=" ".join)
def test_the_key_of_a_making_is_told_when_nobody_knows(args: tuple[str, ...]) -> None:
    """Whoever repeats the command without it makes another one, which counts for ever."""
    with scripted(GONE) as server:
        failed = Semel(server.url).here("ledger", *args, "--retries", "1")
    key = server.seen[0].headers["Idempotency-Key"]
    assert (failed.code, len(server.seen)) == (1, 2)
    assert failed.err.endswith(f" It may be created: run this again with --key {key} to create it exactly once.\n")
    with scripted(problem(409, "FAILED_PRECONDITION", "never")) as server:
        refused = Semel(server.url).here("ledger", *args)
    assert refused.err == "Error: This is FAILED_PRECONDITION. [FAILED_PRECONDITION]\n"


@pytest.mark.parametrize(
    "args",
    [
        ("write", PLACE, "--client", "a", "--set", "a=1", "--retries", "0"),
        ("read", PLACE, "a"),
        ("read", PLACE, "--prefix", ""),
        ("state", PLACE, "a"),
        ("block", PLACE),
        ("block", PLACE, "3"),
        ("block", PLACE, "--watch"),
        ("org", "list"),
        ("vault", "list", "7001"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"blocks": 1, "height": 2, "value": 3, "success": 4}'], ids=str)
def test_something_else_answers(args: tuple[str, ...], body: bytes) -> None:
    with scripted(Line(200, {"Content-Type": "text/html"}, body)) as server:
        failed = Semel(server.url).here("ledger", *args)
    assert (failed.code, failed.raw) == (1, b"")
    sentences = ("does not speak this protocol: check the URL.", "The server's answer is incomplete")
    assert any(one in failed.err for one in sentences), failed.err
    assert failed.err.count("\n") == 1


ORGANIZATION: dict[str, Any] = {
    "slug": {"slug": "5"},
    "status": "ORGANIZATION_STATUS_ACTIVE",
    "entries": "0",
    "ttlSeconds": "1",
}
ORGANIZATION |= {"evictionInterval": "1", "fence": False}


def test_what_steers_a_terminal_is_not_printed() -> None:
    facts = {"organizations": [{**ORGANIZATION, "name": "\x1b[31mred"}], "nextPageToken": ""}
    with scripted(answer(facts)) as server:
        shown = Semel(server.url).here("ledger", "org", "list")
    assert (shown.code, "\\x1b[31mred" in shown.out) == (0, True)


def test_pages_are_followed_and_do_not_go_round() -> None:
    pages = [
        answer({"entities": [{"key": key, "value": "", "version": "1"}], "nextPageToken": token})
        for key, token in (("1", "t"), ("2", ""))
    ]
    with scripted(*pages) as server:
        shown = Semel(server.url).here("ledger", "read", PLACE, "--prefix", "x", "--json")
    assert [json.loads(line)["key"] for line in shown.out.splitlines()] == ["1", "2"]
    assert [seen.path.partition("?")[2] for seen in server.seen] == [
        "prefix=x&limit=1000",
        "prefix=x&limit=1000&pageToken=t",
    ]
    with scripted(pages[0]) as server:
        failed = Semel(server.url).here("ledger", "read", PLACE, "--prefix", "x")
    assert (failed.code, len(server.seen)) == (1, 2)


def chain(length: int) -> SlowLedger:
    ledger = SlowLedger()
    for number in range(1, length + 1):
        ledger.commit(request_of(1, "app", number, "a", set_entity("k", b"")), index=number, seconds=number)
    return ledger


def told(ledger: SlowLedger, height: int) -> dict[str, Any]:
    success = ledger.written(height)["success"]
    return {name: success[name] for name in ("transaction", "blockHeight", "blockHeader", "txProof")}


def test_a_proof_that_does_not_check_is_not_saved(tmp_path: Path) -> None:
    ledger, output = chain(3), tmp_path / "proof"
    wrong = told(ledger, 3)
    wrong["transaction"]["actor"] = "somebody"
    other = told(ledger, 3)
    for document, place, sentence in (
        (wrong, PLACE, "does not have the hash of"),
        (other, "7001", "The header is of vault 9001"),
        ({}, PLACE, "answer.blockHeader is missing"),
    ):
        with scripted(answer(document)) as server:
            failed = Semel(server.url).here("ledger", "proof", place, "0" * 32, "-o", str(output))
        assert failed.code == 1
        assert f"The server's proof is not valid: {sentence}" in failed.err.replace("The transaction does", "does")
        assert not output.exists()


def test_a_proof_of_a_read_that_does_not_check_is_not_saved(tmp_path: Path) -> None:
    ledger, output = chain(3), tmp_path / "proof"
    changed, unsaid, other = (ledger.read(b"k", 3) for _ in range(3))
    changed["value"] = b64(b"x")
    del unsaid["value"]
    for document, args, sentence in (
        (changed, (PLACE, "k"), "The answer's value is not the one in its proof."),
        (unsaid, (PLACE, "k"), "The answer has no value, but its proof has one that does not expire."),
        (other, (PLACE, "l"), "The state proof is for another key."),
        (other, ("7001", "k"), "The header is of vault 9001"),
    ):
        with scripted(answer(document)) as server:
            failed = Semel(server.url).here("ledger", "read", *args, "--proof", str(output))
        assert (failed.code, failed.raw, output.exists()) == (1, b"", False)
        assert f"The server's proof is not valid: {sentence}" in failed.err


def test_a_value_that_the_server_withholds_is_not_called_absent(tmp_path: Path) -> None:
    ledger, output = SlowLedger(), tmp_path / "proof"
    ledger.commit(request_of(1, "app", 1, "a", set_entity("k", b"v", expiresAt="100")), index=1, seconds=99)
    document = ledger.read(b"k", 1)
    del document["value"]
    with scripted(answer(document, 404)) as server:
        run = Semel(server.url).here("ledger", "read", PLACE, "k", "--proof", str(output))
    assert (run.code, run.raw) == (1, b"")
    assert "k is there after block 1, and was not told: it expires at 100, in seconds since 1970." in run.err
    shown = Semel(server.url).here("ledger", "verify", str(output), "--untrusted")
    assert "k has a value of 1 bytes, which the answer left out, set by block 1." in shown.out
    facts = Semel(server.url).here("ledger", "verify", str(output), "--untrusted", "--json").facts
    assert (facts["present"], facts["withheld"]) == (True, True)


def test_a_proof_of_a_write_that_does_not_check_is_not_saved(tmp_path: Path) -> None:
    """The transaction may well be committed, and that is said, too."""
    ledger, output = chain(3), tmp_path / "proof"
    right, changed = ledger.written(3), ledger.written(3)
    changed["success"]["transaction"]["actor"] = "somebody"
    args = ["ledger", "write", PLACE, "--client", "app", "--sequence", "3", "--proof", str(output)]
    for document, value, sentence in (
        (changed, "", "does not have the hash of"),
        (right, "another", "The transaction does not have the operations of the request."),
        (SUCCESS, "", "answer.success.blockHeader is missing"),
    ):
        with scripted(answer(document)) as server:
            failed = Semel(server.url).here(*args, "--set", f"k={value}")
        assert (failed.code, failed.raw, output.exists()) == (1, b"", False)
        assert "Committed " in failed.err
        assert ", by the server's account. No proof was saved: The server's proof is not valid: " in failed.err
        assert sentence in failed.err
    with scripted(answer(right)) as server:
        assert Semel(server.url).here(*args, "--set", "k=").code == 0
    assert json.loads(output.read_text()) == right


FENCED: dict[str, Any] = {"code": "WRITE_ERROR_CODE_ALREADY_COMMITTED", "message": "Done.", "assignedSequence": "3"}


def test_a_sequence_whose_operations_are_forgotten_is_not_called_committed() -> None:
    """The server does not know whether they were these operations."""
    with scripted(answer({"error": FENCED})) as server:
        run = Semel(server.url).here("ledger", "write", PLACE, "--client", "app", "--sequence", "3", "--set", "k=")
    assert (run.code, run.raw, len(server.seen)) == (1, b"", 1)
    assert run.err == "Error: Done. [WRITE_ERROR_CODE_ALREADY_COMMITTED]\n"


def test_an_answer_without_a_proof_saves_none(tmp_path: Path) -> None:
    output = tmp_path / "proof"
    error: dict[str, Any] = {
        "code": "WRITE_ERROR_CODE_ALREADY_COMMITTED",
        "message": "Committed.",
        "assignedSequence": "3",
    }
    error |= {"committedBlockHeight": "7", "committedTxId": {"id": b64(bytes(16))}}
    with scripted(answer({"error": error})) as server:
        run = Semel(server.url).here("ledger", "write", PLACE, "--client", "app", "--set", "k=", "--proof", str(output))
    assert (run.code, output.exists()) == (0, False)
    assert "This answer has no proof" in run.err


def test_headers_of_compacted_blocks_come_from_whole_blocks(tmp_path: Path) -> None:
    """The proof of a block without its body is refused; its header is still told."""
    ledger, output = chain(4), tmp_path / "proof"
    blocks = [answer({"blocks": [{"header": header}]}) for header in ledger.headers[1:]]
    lines = [answer(told(ledger, 1))]
    for block in blocks:
        lines += [problem(409, "FAILED_PRECONDITION", "never"), block]
    with scripted(*lines) as server:
        run = Semel(server.url).here("ledger", "proof", PLACE, "0" * 32, "-o", str(output), "--trusted-height", "4")
    assert (run.code, run.err) == (0, "")
    trust = f"4:{ledger.hashes[3].hex()}"
    proved = Semel(server.url).here("ledger", "verify", str(output), "--trust", trust)
    assert "is covered by the trusted block 4" in proved.out


def test_a_chain_with_fewer_headers_than_asked_for_is_refused(tmp_path: Path) -> None:
    ledger, output = chain(4), tmp_path / "proof"
    short = {"chainProof": {"headers": ledger.headers[2:]}}
    with scripted(answer(told(ledger, 4)), answer(short)) as server:
        run = Semel(server.url).here("ledger", "proof", PLACE, "0" * 32, "-o", str(output), "--trusted-height", "1")
    assert (run.code, output.exists()) == (1, False)
    assert "The server's answer is incomplete (ValueError: headers are missing)." in run.err


def test_watching_refuses_a_hole() -> None:
    notices = [
        {"height": str(height), "blockHash": {"value": b64(bytes(32))}, "timestamp": "2026-11-18T00:00:00Z"}
        for height in (2, 4)
    ]
    events = b"".join(b"data: %s\n\n" % json.dumps(notice).encode() for notice in notices)
    with scripted(Line(200, {"Content-Type": "text/event-stream"}, events)) as server:
        run = Semel(server.url).here("ledger", "block", PLACE, "2", "--watch", "--json")
    assert (run.code, json.loads(run.out)) == (1, notices[0])
    assert "The server announced block 4 instead of 3." in run.err
