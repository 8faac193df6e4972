"""What `semel ledger` does when answers are lost, chains are long, or something else answers; from a script."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def bodies(server: Scripted) -> list[Any]:
    return [json.loads(seen.body) for seen in server.seen]


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


def test_an_answer_whose_proof_does_not_check_is_not_printed_and_no_proof_is_saved(tmp_path: Path) -> None:
    """What is found out: `tests/client/test_proofs*.py`. A transaction may be committed, and that is said, too."""
    ledger, output = chain(3), tmp_path / "proof"
    transaction, value, write = told(ledger, 3), ledger.read(b"k", 3), ledger.written(3)
    transaction["transaction"]["actor"] = write["success"]["transaction"]["actor"] = "somebody"
    value["value"] = b64(b"x")
    save = ["--proof", str(output)]
    account = "Committed .*, by the server's account. No proof was saved: "
    for document, args, sentence in (
        (transaction, ["proof", PLACE, "0" * 32, "-o", str(output)], ".*does not have the hash of"),
        (told(ledger, 3), ["proof", "7001", "0" * 32, "-o", str(output)], "The header is of vault 9001"),
        (value, ["read", PLACE, "k", *save], "The answer's value is not the one in its proof."),
        (ledger.read(b"k", 3), ["read", PLACE, "l", *save], "The state proof is for another key."),
        (write, ["write", PLACE, "--client", "app", "--sequence", "3", "--set", "k=", *save], ".*the hash of"),
        (SUCCESS, ["write", PLACE, "--client", "app", "--set", "k=", *save], "answer.success.blockHeader is missing"),
    ):
        with scripted(answer(document)) as server:
            failed = Semel(server.url).here("ledger", *args)
        assert (failed.code, failed.raw, output.exists()) == (1, b"", False)
        said = f"{account if args[0] == 'write' else ''}The server's proof is not valid: {sentence}"
        assert re.search(said, failed.err), failed.err


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
