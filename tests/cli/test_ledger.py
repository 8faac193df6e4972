"""`semel ledger` against a real server, as a script and a person use it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import SECONDS, Finished, Semel
from tests.harness.server import RunningServer

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
NOBODY = "http://127.0.0.1:9"


def refused(run: Finished, sentence: str, code: int = 1) -> None:
    assert (run.code, run.raw) == (code, b"")
    assert sentence in run.err


def objects(run: Finished) -> list[dict[str, Any]]:
    assert run.code == 0, run.err
    return [json.loads(line) for line in run.out.splitlines()]


@pytest.fixture
def ledger(semel: Semel) -> Callable[..., Finished]:
    return lambda *args, stdin=b"": semel.here("ledger", *args, stdin=stdin)


Ledger = Callable[..., Finished]


@pytest.fixture
def org(ledger: Ledger) -> str:
    return str(ledger("org", "create", "shop", "--json").facts["slug"]["slug"])


@pytest.fixture
def place(ledger: Ledger, org: str) -> str:
    return str(ledger("vault", "create", org, "--json").facts["place"])


def written(ledger: Ledger, place: str, *args: str) -> dict[str, Any]:
    success = ledger("write", place, "--client", "app", "--json", *args).facts["success"]
    assert isinstance(success, dict)
    return success


def hash_at(ledger: Ledger, place: str, height: int) -> str:
    """HEIGHT:HASH."""
    return ledger("block", place, str(height), "--hashes").out.split()[1]


def test_organizations(semel: Semel, ledger: Ledger) -> None:
    made = semel.here("ledger", "org", "create", "Ä shop", "--key", "org-1")
    found = re.fullmatch(r"Made organization (\d+) \(Ä shop\); key org-1\n", made.out)
    assert found is not None
    org = found[1]
    again = ledger("org", "create", "Ä shop", "--key", "org-1")
    assert again.out == f"Already created (replayed): organization {org} (Ä shop); key org-1\n"
    refused(ledger("org", "create", "another", "--key", "org-1"), "[FAILED_PRECONDITION]")
    assert UUID7.fullmatch(ledger("org", "create", "b", "--json").facts["key"])
    assert [one["name"] for one in objects(ledger("org", "list", "--all", "--json")) if one["slug"]["slug"] == org] == [
        "Ä shop"
    ]
    assert re.search(rf"^{org}  Ä shop +active  0$", ledger("org", "list", "--all").out, re.MULTILINE)
    assert len(objects(ledger("org", "list", "--limit", "1", "--json"))) == 1
    shown = ledger("org", "show", org).out.split("\n")
    assert shown[:3] == [f"org       {org}", "name      Ä shop", "status    active"]
    changed = ledger("org", "set", org, "--ttl", "60", "--eviction-interval", "7", "--fence", "--status", "suspended")
    assert changed.out.split("\n")[2:-1] == [
        "status    suspended",
        "entries   1",
        "ttl       60 s",
        "eviction  every 7 entries",
        "fence     on",
    ]
    assert ledger("org", "set", org, "--no-fence", "--status", "active", "--json").facts["fence"] is False
    refused(ledger("org", "show", "7"), "[NOT_FOUND]")


@pytest.mark.parametrize("kind", ["org", "vault"])
def test_nothing_is_deleted_without_a_yes(semel: Semel, ledger: Ledger, place: str, kind: str) -> None:
    name = place if kind == "vault" else place.partition("/")[0]
    refused(semel.here("ledger", kind, "delete", name), "give --yes if standard input is not a terminal", 2)
    assert (
        f"Would delete {'vault' if kind == 'vault' else 'organization'} {name}"
        in ledger(kind, "delete", name, "--dry-run").out
    )
    declined = semel.on_terminal("ledger", kind, "delete", name, typed=b"n\n")
    assert (declined.code, "Delete it?" in declined.out) == (1, True)
    written(ledger, place, "--set", "a=1")
    agreed = semel.on_terminal("ledger", kind, "delete", name, typed=b"y\n")
    assert (agreed.code, "Deleted" in agreed.out) == (0, True)
    refused(ledger("read", place, "a"), "[NOT_FOUND]")
    assert "status" in ledger(kind, "show", name).out


def test_vaults(ledger: Ledger, org: str) -> None:
    place = ledger("vault", "create", org, "--retain", "3", "--key", "v", "--json").facts["place"]
    assert place.startswith(f"{org}/")
    again = ledger("vault", "create", org, "--retain", "3", "--key", "v")
    assert again.out == f"Already created (replayed): vault {place}; key v\n"
    other = re.fullmatch(r"Made vault (\S+); key \S+\n", ledger("vault", "create", org).out)
    assert other is not None
    assert {one["vault"]["slug"] for one in objects(ledger("vault", "list", org, "--json"))} == {
        place.partition("/")[2],
        other[1].partition("/")[2],
    }
    assert re.search(rf"^{place}  active  0       the last 3  [0-9a-f]{{64}}$", ledger("vault", "list", org).out, re.M)
    changed = ledger("vault", "set", place, "--status", "read-only")
    assert changed.out.split("\n")[:4] == [
        f"vault       {place}",
        "status      read-only",
        "height      0",
        "keeps       the last 3",
    ]
    refused(ledger("write", place, "--client", "c", "--set", "a=1"), "[PERMISSION_DENIED]")
    assert ledger("vault", "set", place, "--status", "active", "--json").facts["status"] == "VAULT_STATUS_ACTIVE"


def test_a_write_is_carried_out_once(semel: Semel, ledger: Ledger, place: str) -> None:
    first = semel.here("ledger", "write", place, "--client", "app", "--set", "a=1", "--if-absent")
    found = re.fullmatch(r"Committed ([0-9a-f]{32}) at height 1, sequence 1; key (\S+)\n", first.out)
    assert (first.code, first.err, found is not None) == (0, "", True)
    assert found is not None
    assert UUID7.fullmatch(found[2])
    again = semel.here("ledger", "write", place, "--client", "app", "--set", "a=1", "--if-absent", "--key", found[2])
    assert again.out == f"Already committed (replayed): {found[1]} at height 1, sequence 1; key {found[2]}\n", (
        "the condition is not judged again"
    )
    numbered = ledger("write", place, "--client", "app", "--sequence", "2", "--set", "a=2")
    assert re.fullmatch(r"Committed [0-9a-f]{32} at height 2, sequence 2\n", numbered.out)
    moved = ledger(
        "write", place, "--client", "app", "--sequence", "3", "--set", "a=1", "--if-absent", "--key", found[2]
    )
    assert moved.code == 0
    assert moved.out.startswith(f"Already committed as sequence 1, height 1, transaction {found[1]}. ")
    facts = ledger("write", place, "--client", "app", "--sequence", "2", "--set", "a=2", "--json").facts
    assert (facts["replayed"], facts["key"], facts["success"]["blockHeight"]) == (True, None, "2")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--sequence", "9", "--set", "a=1"], "[WRITE_ERROR_CODE_SEQUENCE_GAP]"),
        (["--sequence", "1", "--set", "a=other"], "[WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED]"),
        (["--set", "a=1", "--if-absent"], "[WRITE_ERROR_CODE_KEY_EXISTS] a is at version 1."),
        (["--set", "b=1", "--if-exists"], "[WRITE_ERROR_CODE_KEY_NOT_FOUND] b is not there."),
        (["--set", "a=1", "--if-version", "7"], "[WRITE_ERROR_CODE_VERSION_MISMATCH] a is at version 1."),
        (["--set", "a=1", "--if-value", "x"], "[WRITE_ERROR_CODE_VALUE_MISMATCH] a is at version 1."),
        (["--relate", "doc#1", "viewer", "user:1"], "[INVALID_ARGUMENT]"),
    ],
    ids=["gap", "reused", "exists", "not there", "version", "value", "name"],
)
def test_a_refused_write_says_why(ledger: Ledger, place: str, args: list[str], sentence: str) -> None:
    written(ledger, place, "--sequence", "1", "--set", "a=1")
    run = ledger("write", place, "--client", "app", *args)
    refused(run, sentence)
    assert run.err.count("\n") == 1


def test_operations_happen_in_the_order_of_the_line(ledger: Ledger, place: str, tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"\x00\xff\n")
    line = ["--delete", "a", "--set", "a=1=2", "--if-absent", "--relate", "doc:1", "viewer", "user:1"]
    line += ["--set-file", f"b={tmp_path / 'content'}", "--expires", "4102444800", "--delete", "c"]
    line += [
        "--unrelate",
        "doc:1",
        "viewer",
        "user:1",
        "--set",
        "a=3",
        "--if-value",
        "1=2",
        "--set",
        "d=",
        "--set",
        "a=4",
    ]
    line += ["--if-exists"]
    written(ledger, place, *line)
    (block,) = objects(ledger("block", place, "--json"))
    relationship = {"resource": "doc:1", "relation": "viewer", "subject": "user:1"}
    assert block["transactions"][0]["operations"] == [
        {"deleteEntity": {"key": "a"}},
        {"setEntity": {"key": "a", "value": "MT0y", "condition": {"notExists": True}}},
        {"createRelationship": relationship},
        {"setEntity": {"key": "b", "value": "AP8K", "expiresAt": "4102444800"}},
        {"deleteEntity": {"key": "c"}},
        {"deleteRelationship": relationship},
        {"setEntity": {"key": "a", "value": "Mw==", "condition": {"valueEquals": "MT0y"}}},
        {"setEntity": {"key": "d", "value": ""}},
        {"setEntity": {"key": "a", "value": "NA==", "condition": {"mustExists": True}}},
    ]
    shown = ledger("block", place, "1").out.split("\n")
    assert re.fullmatch(rf"{place} 1:[0-9a-f]{{64}}", shown[0])
    assert shown[3:-1] == [
        "  by       client:anonymous as app, sequence 1",
        "  delete   a",
        "  set      a = 1=2",
        "  relate   doc:1 viewer user:1",
        "  set      b = (3 bytes)",
        "  delete   c",
        "  unrelate doc:1 viewer user:1",
        "  set      a = 3",
        "  set      d = (empty)",
        "  set      a = 4",
    ]
    assert ledger("read", place, "b").raw == b"\x00\xff\n"


def test_a_file_of_operations(ledger: Ledger, place: str, tmp_path: Path) -> None:
    lines = [json.dumps({"setEntity": {"key": f"k{number}", "value": "MQ=="}}) for number in range(7)]
    (tmp_path / "ops").write_text("\n\n".join(lines))
    assert written(ledger, place, "--file", str(tmp_path / "ops"))["blockHeight"] == "1"
    key = "01a1e2f5-cf49-7da5-806b-a7a9c5e968d5"
    first = ledger("write", place, "--client", "b", "--file", str(tmp_path / "ops"), "--split", "3", "--key", key)
    assert (first.code, first.err) == (0, f"Continue an interrupted run with --key {key}.\n")
    counts, last = first.out.split("; the last is ")
    assert counts == "Committed 3 transactions, 0 already committed (replayed)"
    assert re.fullmatch(rf"\w+ at height 4, sequence 3; key {key}\n", last)
    again = ledger("write", place, "--client", "b", "--file", str(tmp_path / "ops"), "--split", "3", "--key", key)
    assert again.out.startswith("Committed 0 transactions, 3 already committed (replayed); the last is ")
    numbered = ["write", place, "--client", "c", "--sequence", "1", "--file", "-", "--split", "1", "--json"]
    told = objects(ledger(*numbered, stdin="\n".join(lines).encode()))
    assert [(one["line"], one["success"]["assignedSequence"]) for one in told] == [
        (number, str(number)) for number in range(1, 8)
    ]


def test_a_file_stops_where_it_fails_and_goes_on_there(ledger: Ledger, place: str) -> None:
    good, once = (
        '{"deleteEntity": {"key": "a"}}',
        '{"setEntity": {"key": "b", "value": "", "condition": {"notExists": true}}}',
    )
    written(ledger, place, "--set", "b=1")
    stdin = f"{good}\n{once}\n{good}\n".encode()
    command = ["write", place, "--client", "x", "--sequence", "1", "--file", "-", "--split", "1"]
    run = ledger(*command, stdin=stdin)
    assert run.code == 1
    assert "Transaction 2, up to line 2: " in run.err
    assert (
        "1 transaction before it is committed: run this again with --sequence 1, and nothing is executed twice."
        in run.err
    )
    written(ledger, place, "--delete", "b")
    again = ledger(*command, stdin=stdin)
    assert again.out.startswith("Committed 2 transactions, 1 already committed (replayed)")
    refused(ledger(*command, stdin=b"[]\n"), "Line 1 is not an operation")
    refused(ledger(*command[:-2], stdin=b"\n"), "The file has no operations in it.")


def test_reading(semel: Semel, ledger: Ledger, place: str) -> None:
    written(ledger, place, "--set", "a/b=one", "--set", "c=2", "--expires", "4102444800")
    written(ledger, place, "--set", "a/b=two")
    assert semel.here("ledger", "read", place, "a/b").raw == b"two"
    assert ledger("read", place, "a/b", "--at-height", "1").raw == b"one"
    assert ledger("read", place, "a/b", "--json").facts == {"value": "dHdv", "blockHeight": "2", "version": "2"}
    refused(ledger("read", place, "z"), "There is no entity of this key. [NOT_FOUND]")
    refused(ledger("read", place, "a/b", "--at-height", "9"), "[INVALID_ARGUMENT]")
    assert ledger("read", place, "--prefix", "").out.split("\n")[1:-1] == [
        "a/b  2        never       two",
        "c    1        4102444800  2",
    ]
    assert [one["key"] for one in objects(ledger("read", place, "--prefix", "a", "--json"))] == ["a/b"]
    none = ledger("read", place, "--prefix", "q")
    assert (none.code, none.out, none.err) == (0, "", "No entities match.\n")


def test_where_a_client_stands(ledger: Ledger, place: str) -> None:
    assert ledger("state", place, "app/1 ä").out == f"app/1 ä is not known in {place}; the next sequence is 1\n"
    tx_id = ledger("write", place, "--client", "app/1 ä", "--set", "a=1").out.split()[1]
    about = f"(transaction {tx_id} at height 1)"
    assert ledger("state", place, "app/1 ä").out == f"app/1 ä has committed up to 1 in {place} {about}; the next is 2\n"
    assert ledger("state", place, "app/1 ä", "--json").facts["lastCommittedSequence"] == "1"


def test_blocks(ledger: Ledger, place: str) -> None:
    refused(ledger("block", place), f"There are no blocks in {place} yet.")
    for number in range(1, 6):
        written(ledger, place, "--set", f"a={number}")
    names = ledger("block", place, "1..99", "--hashes").out.splitlines()
    assert [name.split(":")[0] for name in names] == [f"{place} {number}" for number in range(1, 6)]
    assert [one["header"]["height"] for one in objects(ledger("block", place, "2..4", "--json"))] == ["2", "3", "4"]
    assert objects(ledger("block", place, "5", "--json"))[0]["blockHash"] == names[4].split(":")[1]
    assert ledger("block", place, "--hashes").out == f"{names[4]}\n"
    refused(ledger("block", place, "6"), "[NOT_FOUND]")


def test_watching_goes_on_over_a_restart(semel: Semel, ledger: Ledger, place: str, server: RunningServer) -> None:
    for number in range(2):
        written(ledger, place, "--set", f"a={number}")
    watch = semel.start("ledger", "block", place, "2", "--watch")
    try:
        assert watch.stdout is not None
        lines = [watch.stdout.readline()]
        written(ledger, place, "--set", "a=3")
        lines.append(watch.stdout.readline())
        server.restart()
        written(ledger, place, "--set", "a=4")
        lines.append(watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        assert watch.wait(SECONDS) == 0
    finally:
        watch.kill()
        watch.communicate()
    names = ledger("block", place, "2..4", "--hashes").out.splitlines()
    assert [line.decode().partition("  ")[0] for line in lines] == names


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """The command where nothing can be reached."""

    def run(*args: str, stdin: bytes = b"") -> Finished:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", None)
            return Semel(NOBODY).here("ledger", *args, stdin=stdin)

    return run


def test_a_write_is_proved_offline(ledger: Ledger, offline: Ledger, place: str, tmp_path: Path) -> None:
    proof = str(tmp_path / "proof.json")
    for number in range(1, 6):
        written(ledger, place, "--set", f"a={number}", "--proof", proof)
        trust = hash_at(ledger, place, number)
        proved = offline("verify", proof, "--trust", trust)
        assert (proved.code, proved.err) == (0, "")
        assert proved.out.startswith(f"Proved. Block {number} of {place} is trusted: transaction ")
    facts = offline("verify", proof, "--trust", hash_at(ledger, place, 5), "--json").facts
    assert (facts["proved"], facts["client"], facts["sequence"], facts["place"]) == (True, "app", "5", place)
    tx_id = facts["transaction"]
    refused(offline("verify", proof, "--trust", hash_at(ledger, place, 4)), "Not proved: No header links the trusted")
    refused(offline("verify", proof, "--trust", "5:" + "0" * 64), "Not proved: The header at height 5 has the hash ")
    saved = ledger("proof", place, tx_id, "-o", proof, "--trusted-height", "2")
    assert saved.out == f"{proof}: valid if block {hash_at(ledger, place, 2)} of {place} is trusted\n"
    assert "is built on the trusted block 2: " in offline("verify", proof, "--trust", hash_at(ledger, place, 2)).out
    assert ledger("proof", place, tx_id, "-o", proof, "--json").facts["trust"] == hash_at(ledger, place, 5)
    early = ledger("block", place, "2", "--json").facts["transactions"][0]["id"]["id"]
    ledger("proof", place, early, "-o", proof, "--trusted-height", "5")
    assert "is covered by the trusted block 5: " in offline("verify", proof, "--trust", hash_at(ledger, place, 5)).out
    out = ledger("proof", place, early, "-o", "-")
    assert offline("verify", "-", "--trust", hash_at(ledger, place, 2), stdin=out.raw).code == 0
    refused(ledger("proof", place, "0" * 32, "-o", proof), "[NOT_FOUND]")


def test_values_and_their_absence_are_proved_offline(
    ledger: Ledger, offline: Ledger, place: str, tmp_path: Path
) -> None:
    proof = str(tmp_path / "proof.json")
    written(ledger, place, "--set", "a=1", "--relate", "doc:1", "viewer", "user:1")
    written(ledger, place, "--delete", "a")
    assert ledger("read", place, "a", "--at-height", "1", "--proof", proof).raw == b"1"
    assert offline("verify", proof, "--trust", hash_at(ledger, place, 1), "--key", "a").out == (
        f"Proved. Block 1 of {place} is trusted: a has a value of 1 bytes set by block 1.\n"
    )
    refused(offline("verify", proof, "--trust", hash_at(ledger, place, 1), "--key", "b"), "for another key")
    assert ledger("read", place, "a", "--at-height", "1", "--proof", proof, "--trusted-height", "2").code == 0
    assert "is covered by the trusted block 2" in offline("verify", proof, "--trust", hash_at(ledger, place, 2)).out
    gone = ledger("read", place, "a", "--proof", proof, "--trusted-height", "1")
    refused(gone, "a does not exist after block 2.")
    absent = offline("verify", proof, "--trust", hash_at(ledger, place, 1), "--json").facts
    assert (absent["proved"], absent["key"], absent["present"], absent["height"]) == (True, "a", False, "2")


def test_e4_relationships_and_their_absence_are_proved_offline(
    ledger: Ledger, offline: Ledger, place: str, tmp_path: Path
) -> None:
    proof, triple = str(tmp_path / "proof.json"), ("doc:1", "viewer", "user:1")
    written(ledger, place, "--set", "a=1", "--relate", *triple)
    written(ledger, place, "--unrelate", *triple)
    first, second = hash_at(ledger, place, 1), hash_at(ledger, place, 2)
    made = ledger("proof", place, "--relationship", *triple, "--at-height", "1", "-o", proof)
    assert made.out == (
        f"{proof}: valid if block {first} of {place} is trusted; the relationship is there after block 1\n"
    )
    proved = offline("verify", proof, "--trust", first, "--relationship", *triple)
    shown = "the relationship doc:1 viewer user:1 is there, created by block 1"
    assert proved.out == f"Proved. Block 1 of {place} is trusted: {shown}.\n"
    refused(offline("verify", proof, "--trust", first, "--relationship", *triple[:2], "user:2"), "for another key")
    out = ledger("proof", place, "--relationship", *triple, "-o", "-")
    absent = offline("verify", "-", "--trust", second, "--json", stdin=out.raw).facts
    told = [absent[name] for name in ("kind", "present", "subject", "height")]
    assert told == ["relationship", False, "user:1", "2"]


def test_what_a_proof_must_be_about(ledger: Ledger, offline: Ledger, place: str, tmp_path: Path) -> None:
    proof, request = tmp_path / "proof.json", tmp_path / "request.json"
    written(ledger, place, "--set", "a=1", "--proof", str(proof))
    trust = ["--trust", hash_at(ledger, place, 1)]
    body = {"clientId": "app", "operations": [{"setEntity": {"key": "a", "value": "MQ=="}}], "includeTxProof": True}
    request.write_text(json.dumps(body))
    assert offline("verify", str(proof), *trust, "--place", place, "--request", str(request)).code == 0
    request.write_text(json.dumps({**body, "clientId": "other"}))
    refused(offline("verify", str(proof), *trust, "--request", str(request)), "client of the transaction differs")
    refused(offline("verify", str(proof), *trust, "--place", place.partition("/")[0]), "The header is of vault ")
    refused(offline("verify", str(proof), *trust, "--key", "a"), "not a proof of a key")
    block = tmp_path / "block.json"
    shown = ledger("block", place, "1", "--json").facts
    shown.pop("blockHash")
    block.write_text(json.dumps({"block": shown}))
    assert "these are all of it: one transaction" in offline("verify", str(block), *trust).out


def test_a_key_that_is_no_text_is_a_sentence(semel: Semel, ledger: Ledger, place: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    written(ledger, place, "--set", "a=1")
    assert ledger("read", place, "a", "--proof", str(proof)).raw == b"1"
    run = semel.here("ledger", "verify", str(proof), "--untrusted", "--key", os.fsdecode(b"\xff"))
    refused(run, "Error: Not proved: The requested key cannot be encoded as UTF-8.")
    assert run.err.count("\n") == 1


def test_a_file_of_trusted_blocks(ledger: Ledger, offline: Ledger, place: str, tmp_path: Path) -> None:
    proof, trusted = tmp_path / "proof.json", tmp_path / "trusted"
    for number in range(3):
        written(ledger, place, "--set", f"a={number}", "--proof", str(proof))
    names = ledger("block", place, "1..3", "--hashes").out
    trusted.write_text(f"# written down on Monday\n\n1/2 3:{'0' * 64}\n{names}")
    assert offline("verify", str(proof), "--trust-file", str(trusted)).code == 0
    trusted.write_text(f"{names}3:{'0' * 64}\n")
    refused(
        offline("verify", str(proof), "--trust-file", str(trusted)), "Not proved: The header at height 3 has the hash"
    )
    trusted.write_text(names.splitlines()[0])
    refused(
        offline("verify", str(proof), "--trust-file", str(trusted)),
        f"leads to block 3 of {place}, which is not a trusted",
    )
    for content, sentence in ((b"3:abc\n", "Line 1 of"), (b"# none\n", "names no block"), (b"\xff", "is not text")):
        trusted.write_bytes(content)
        refused(offline("verify", str(proof), "--trust-file", str(trusted)), sentence)
    loose = offline("verify", str(proof), "--untrusted")
    assert loose.out.startswith(f"It fits together, and stands if {hash_at(ledger, place, 3)} is real. Block 3: ")


def test_a_changed_file_is_found_out(ledger: Ledger, offline: Ledger, place: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    written(ledger, place, "--set", "a=1", "--proof", str(proof))
    trust = ["--trust", hash_at(ledger, place, 1)]
    text = proof.read_text()
    for old, new, sentence in (
        ('"MQ=="', '"Mg=="', "does not have the hash of"),
        ('"blockHeight": "1"', '"blockHeight": "01"', "not a number of 64 bits"),
        ("{", "", "not JSON"),
    ):
        proof.write_text(text.replace(old, new))
        run = offline("verify", str(proof), *trust)
        refused(run, "Not proved: ")
        assert (sentence in run.err, run.err.count("\n")) == (True, 1)
    proof.unlink()
    refused(offline("verify", str(proof), *trust), "cannot be read: No such file or directory.")
