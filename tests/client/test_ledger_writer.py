"""The durable writer of the ledger: what is written down, sent, told and forgotten."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel.client import Client, OutcomeUnknown, Patience
from semel.client.errors import (
    FencedSequenceError,
    FileInUseError,
    InvalidArgumentError,
    KeyCollisionError,
    LocalFileError,
    NoAnswerError,
    RefusedError,
    SequenceGapError,
    WriteConditionError,
    refusal,
)
from semel.client.ledger import intent_sender
from semel.client.ledger.intent_file import NOT_TOLD, RETURNED, IntentFile, NewIntent
from semel.client.ledger.operations import DeleteKey, IfAbsent, SetKey, write_body
from semel.client.ledger.trusted_head import TrustedHead
from semel.client.ledger.values import CommittedWrite
from semel.client.ledger.writer import AsyncLedgerWriter, LedgerWriter, UnsettledWriteError
from semel.client.proofs import ProofError
from tests.client.both import BOTH, client_of, network_of
from tests.client.cut_network import CutNetwork
from tests.client.forging_proxy import ForgingProxy
from tests.client.ledger_place import VaultRoom, new_place
from tests.harness.server import RunningServer, free_port
from tests.harness.share import due

ONE_TRY = {"patience": Patience(tries=1)}


def sequences(room: VaultRoom, client: str = "w") -> list[int]:
    """The sequences of a client, in the order of the chain."""
    return [sequence for name, sequence, _ in room.transactions() if name == client]


@BOTH
async def test_sequences_are_counted_over_restarts_and_a_refusal_uses_none(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = new_place(server.url)
    room.write("w", 1, "before", "MQ==")  # the server is asked where the client stands
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(room.org, room.vault)
        for life in range(2):
            writer = place.writer("w", tmp_path / "w.db")
            assert await writer.settle() == []
            first = await writer.write([SetKey("k", str(life))], note="n")
            with pytest.raises(WriteConditionError):
                await writer.write([SetKey("k", "1", IfAbsent())])
            second = await writer.write([SetKey("k", str(life))])
            assert (first.sequence, second.sequence) == (2 + 2 * life, 3 + 2 * life)
            assert (writer.last_sequence, writer.pending, writer.recovered) == (second.sequence, 0, [])
            await writer.close()
        assert sequences(room) == [1, 2, 3, 4, 5]


@BOTH
@pytest.mark.parametrize("side", ["request", "answer"])
async def test_a_transaction_without_an_answer_is_sent_before_the_next_one(
    server: RunningServer, kind: str, side: str, tmp_path: Path
) -> None:
    room, network = new_place(server.url), CutNetwork(network_of(kind))
    async with client_of(kind, server.url, network=network, **ONE_TRY) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("k", "1")])
        setattr(network, f"{side}_left", 30)
        with pytest.raises(OutcomeUnknown):
            await writer.write([SetKey("k", "2")], note="lost")
        assert (writer.pending, writer.recovered) == (1, [])
        setattr(network, f"{side}_left", 30)
        with pytest.raises(UnsettledWriteError, match="Transaction 2 of w has no answer yet"):
            await writer.write([SetKey("k", "3")], note="not taken")
        assert (await writer.write([SetKey("k", "4")])).sequence == 3
        [told] = writer.recovered
        assert (told.note, told.sequence, told.is_committed, told.outcome.sequence) == ("lost", 2, True, 2)
        assert json.loads(told.operations) == [{"setEntity": {"key": "k", "value": "Mg=="}}]
        await writer.close()
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        assert [one.note for one in await writer.settle()] == ["lost"]
        await writer.forget_recovered()
        assert writer.recovered == []
        await writer.close()
    values = [one[2][0]["setEntity"]["value"] for one in room.transactions()]
    assert (sequences(room), values) == ([1, 2, 3], ["MQ==", "Mg==", "NA=="])


@BOTH
@pytest.mark.parametrize("side", ["request", "answer"])
async def test_sequences_have_no_hole_wherever_the_line_is_cut(
    server: RunningServer, kind: str, side: str, tmp_path: Path
) -> None:
    room, network = new_place(server.url), CutNetwork(network_of(kind))
    async with client_of(kind, server.url, network=network) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("k", "0000")])
        before = network.sent, network.received
        await writer.write([SetKey("k", "0001")])
        sizes = {"request": network.sent - before[0], "answer": network.received - before[1]}
        places = due(range(sizes[side]), 23)
        for number, at in enumerate(places, start=2):
            setattr(network, f"{side}_left", at)
            assert (await writer.write([SetKey("k", f"{number:04}")])).sequence == number + 1
        assert network.cuts == len(places)
        await writer.close()
    assert sequences(room) == list(range(1, len(places) + 3))


@BOTH
async def test_without_a_server_nothing_is_kept(kind: str, tmp_path: Path) -> None:
    async with client_of(kind, f"http://127.0.0.1:{free_port()}", **ONE_TRY) as client:
        writer = client.ledger.place(1, 2).writer("w", tmp_path / "w.db")
        with pytest.raises(NoAnswerError) as lost:
            await writer.write([SetKey("k", "1")])
        assert (lost.value.is_unsettled, writer.pending, await writer.settle()) == (False, 0, [])
        await writer.close()


@BOTH
async def test_the_refusal_of_a_place_says_nothing_about_what_was_sent_before(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room, network = new_place(server.url), CutNetwork(network_of(kind))
    async with client_of(kind, server.url, network=network, **ONE_TRY) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("k", "0")])
        network.answer_left = 30
        with pytest.raises(OutcomeUnknown):
            await writer.write([SetKey("k", "1")])
        room.set_status("READ_ONLY")
        with pytest.raises(UnsettledWriteError, match="read only"):
            await writer.write([SetKey("k", "2")])
        room.set_status("ACTIVE")
        assert [one.is_committed for one in await writer.settle()] == [True]
        room.set_status("READ_ONLY")
        with pytest.raises(RefusedError, match="read only"):  # never sent before: it is final
            await writer.write([SetKey("k", "3")])
        assert writer.pending == 0
        await writer.close()
    assert sequences(room) == [1, 2]


def doubtful(path: Path, sequence: int) -> dict[str, Any]:
    """The body of a refused transaction in a file, as it was sent."""
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT key, operations FROM semel_intent WHERE sequence = ? AND outcome IS NOT NULL"
        [(key, operations)] = database.execute(query, (sequence,)).fetchall()
    body: dict[str, Any] = json.loads(write_body("w", sequence, key, operations))
    return body


@BOTH
async def test_a_copy_that_arrives_after_its_refusal_is_told_and_moves_the_next_one(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room, network, path = new_place(server.url), CutNetwork(network_of(kind)), tmp_path / "w.db"
    room.write("other", 1, "k", "MQ==")
    async with client_of(kind, server.url, network=network) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", path)
        await writer.write([SetKey("a", "1")])
        network.request_left = 300  # the first attempt stays on its way, the second is refused
        with pytest.raises(WriteConditionError):
            await writer.write([SetKey("k", "late", IfAbsent())], note="late")
        assert writer.recovered == []
        late = doubtful(path, 2)
        room.write("other", 2, "k", "MQ==", operations=[{"deleteEntity": {"key": "k"}}])
        assert room.send(late).status_code == 200
        assert (await writer.write([SetKey("b", "1")])).sequence == 3
        [told] = writer.recovered
        assert (told.note, told.sequence, told.is_committed) == ("late", 2, True)
        await writer.close()
    assert sequences(room) == [1, 2, 3]


def test_a_late_copy_of_many_is_told_and_executes_nothing_twice(server: RunningServer, tmp_path: Path) -> None:
    room, network, path = new_place(server.url), CutNetwork(network_of("blocking")), tmp_path / "w.db"
    room.write("other", 1, "k", "MQ==")

    def arrive(point: str) -> None:
        """The first attempt, which stayed on its way, is executed after its first transaction was refused."""
        if point != "renumbered" or len(sequences(room)) > 1:
            return
        room.write("other", 2, "k", "MQ==", operations=[{"deleteEntity": {"key": "k"}}])
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT key, operations FROM semel_intent ORDER BY number DESC LIMIT 3").fetchall()
        for sequence, (key, operations) in enumerate(reversed(rows), start=2):
            answer = room.send(json.loads(write_body("w", sequence, key, operations)))
            assert answer.status_code == 200, answer.text

    with (
        Client(server.url, network=network) as client,
        LedgerWriter(client.ledger.place(room.org, room.vault), "w", path, reach=arrive) as writer,
    ):
        writer.write([SetKey("a", "1")])
        network.request_left = 400
        results = writer.write_all([[SetKey("k", "late", IfAbsent())], [SetKey("b", "1")], [SetKey("c", "1")]])
        assert isinstance(results[0], WriteConditionError)
        assert [one.sequence for one in results[1:] if isinstance(one, CommittedWrite)] == [3, 4]
        [told] = writer.recovered
        assert (told.sequence, told.is_committed) == (2, True)
        assert writer.write([SetKey("d", "1")]).sequence == 5
    assert sequences(room) == [1, 2, 3, 4, 5]


@BOTH
async def test_a_sequence_that_another_writer_took_stops_the_writer_until_it_adopts_the_count(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("a", "1")])
        for sequence, value in ((2, "Mg=="), (3, "NQ==")):
            room.write("w", sequence, "a", value)
        with pytest.raises(KeyCollisionError):
            await writer.write([SetKey("a", "4")])
        assert (await writer.adopt_server_sequence(), writer.pending) == (3, 0)
        assert (await writer.write([SetKey("a", "5")])).sequence == 4
        await writer.close()
        count = IntentFile(tmp_path / "w.db", f"w in {room.org}/{room.vault}")
        count.begin(9)  # as if the server had lost what it had committed
        count.close()
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        with pytest.raises(SequenceGapError) as gap:
            await writer.write([SetKey("a", "6")])
        assert (gap.value.last_sequence, writer.pending) == (4, 0)
        await writer.adopt_server_sequence()
        assert (await writer.write([SetKey("a", "7")])).sequence == 5
        await writer.close()


@BOTH
async def test_equal_operations_of_another_writer_are_not_taken_for_its_own(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("a", "1")])
        await client.ledger.place(room.org, room.vault).write([SetKey("a", "2")], client="w", key="1" * 32)
        with pytest.raises(KeyCollisionError, match="under another key"):
            await writer.write([SetKey("a", "2")])
        await writer.close()


@BOTH
@pytest.mark.parametrize("most", [1_000, 4])
async def test_many_transactions_are_settled_each_and_refusals_leave_no_hole(
    server: RunningServer, kind: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intent_sender, "MOST_TRANSACTIONS", most)
    room = new_place(server.url)
    async with client_of(kind, server.url) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("k", "0")])
        some = [[SetKey("k", str(number), IfAbsent() if number % 7 == 3 else None)] for number in range(40)]
        results = await writer.write_all(some)
        refused = [number for number, one in enumerate(results) if isinstance(one, WriteConditionError)]
        assert refused == [number for number in range(40) if number % 7 == 3]
        committed = [one.sequence for one in results if isinstance(one, CommittedWrite)]
        assert committed == list(range(2, 42 - len(refused)))
        assert (writer.pending, writer.recovered) == (0, [])
        for wrong in ([], [[SetKey("k", "1")]] * 10_001):
            with pytest.raises(InvalidArgumentError):
                await writer.write_all(wrong)
        await writer.close()
    assert sequences(room) == list(range(1, 42 - len(refused)))


@BOTH
@pytest.mark.parametrize("side", ["request", "answer"])
async def test_what_was_settled_before_an_unknown_outcome_is_told(
    server: RunningServer, kind: str, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intent_sender, "MOST_TRANSACTIONS", 4)
    room, network = new_place(server.url), CutNetwork(network_of(kind))
    async with client_of(kind, server.url, network=network, **ONE_TRY) as client:
        writer = client.ledger.place(room.org, room.vault).writer("w", tmp_path / "w.db")
        await writer.write([SetKey("k", "0")])
        before = network.sent, network.received
        await writer.write_all([[SetKey("k", "0")]] * 4)
        one = {"request": network.sent - before[0], "answer": network.received - before[1]}[side]
        setattr(network, f"{side}_left", one + 60)
        with pytest.raises(OutcomeUnknown):
            await writer.write_all([[SetKey("k", str(number))] for number in range(12)], note="n")
        assert ([one.sequence for one in writer.recovered], writer.pending) == ([6, 7, 8, 9], 8)
        assert [one.outcome.sequence for one in await writer.settle()] == list(range(6, 18))
        await writer.close()
    assert sequences(room) == list(range(1, 18))


@BOTH
async def test_an_answer_that_is_not_proved_is_none(kind: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as own, ForgingProxy(own.url) as proxy:
        room = new_place(own.url)
        async with client_of(kind, proxy.url) as client:
            place = client.ledger.place(room.org, room.vault, head=TrustedHead())
            writer = place.writer("w", tmp_path / "w.db")
            await writer.write([SetKey("k", "1")])

            def forge(path: str, facts: Any) -> Any:
                if "success" in facts:
                    facts["success"]["transaction"]["actor"] = "client:eve"
                return facts

            proxy.forge = forge
            for _ in range(2):
                with pytest.raises(ProofError):
                    await writer.write([SetKey("k", "2")])
                assert writer.pending == 1
            proxy.forge = None
            assert [one.sequence for one in await writer.settle()] == [2]
            await writer.close()
        assert sequences(room) == [1, 2]


@BOTH
async def test_the_file_is_of_one_client_one_place_and_one_process(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.db"
    async with client_of(kind, server.url) as client:
        place = client.ledger.place(1, 2)
        writer = place.writer("w", path)
        with pytest.raises(FileInUseError):
            place.writer("w", path)
        await writer.close()
        await writer.close()
        for vault, name in ((2, "other"), (3, "w")):
            with pytest.raises(LocalFileError, match="is the file of w in 1/2"):
                client.ledger.place(1, vault).writer(name, path)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE semel_meta SET value = '9' WHERE name = 'format'")
        with pytest.raises(LocalFileError, match="has format 9"):
            place.writer("w", path)
        (tmp_path / "text").write_text("not a database, but some text that is long enough to be read as one" * 20)
        for wrong in (tmp_path / "text", tmp_path / "none" / "w.db", tmp_path):
            with pytest.raises(LocalFileError):
                place.writer("w", wrong)


def test_outcomes_are_read_from_the_file_as_they_were(tmp_path: Path) -> None:
    file = IntentFile(tmp_path / "w.db", "w")
    fenced = refusal(409, {"error": {"code": "WRITE_ERROR_CODE_ALREADY_COMMITTED", "message": "Forgotten."}})
    assert isinstance(fenced, FencedSequenceError)
    for key, outcome in (("a", CommittedWrite(7, "ab", 3, True, "a", "A note.")), ("b", fenced)):
        [intent] = file.note([NewIntent(key, b"[]", "note")], 3)
        file.record([(intent, outcome)], 3, NOT_TOLD)
        found = file.recovered()[-1].outcome
        assert (type(found), str(found)) == (type(outcome), str(outcome))
    file.close()


def test_a_blocking_writer_sends_on_entering_what_has_no_answer(server: RunningServer, tmp_path: Path) -> None:
    room, network = new_place(server.url), CutNetwork(network_of("blocking"))
    with Client(server.url, network=network, patience=Patience(tries=1)) as client:
        place = client.ledger.place(room.org, room.vault)
        with LedgerWriter(place, "w", tmp_path / "w.db") as writer:
            writer.write([SetKey("k", "1")])
            network.answer_left = 30
            with pytest.raises(OutcomeUnknown):
                writer.write([DeleteKey("k")], note="lost")
        network.answer_left = 30  # entering does not need an answer
        with place.writer("w", tmp_path / "w.db") as writer:
            assert (writer.pending, writer.recovered) == (1, [])
        with place.writer("w", tmp_path / "w.db") as writer:
            assert [(one.note, one.sequence) for one in writer.recovered] == [("lost", 2)]
    assert sequences(room) == [1, 2]


def test_an_outcome_whose_call_may_not_have_returned_is_told_again(server: RunningServer, tmp_path: Path) -> None:
    room, path = new_place(server.url), tmp_path / "w.db"
    with Client(server.url) as client:
        place = client.ledger.place(room.org, room.vault)

        def interrupted() -> None:
            with place.writer("w", path) as writer:
                writer.write([SetKey("k", "1")], note="heard")
                writer.write([SetKey("k", "2")], note="interrupted")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with place.writer("w", path) as writer:
            assert [(one.note, one.sequence) for one in writer.recovered] == [("interrupted", 2)]
            writer.forget_recovered()
        with place.writer("w", path) as writer:
            assert (writer.recovered, writer.write([SetKey("k", "3")]).sequence) == ([], 3)


async def test_an_interrupted_recovery_leaves_the_outcome_open(server: RunningServer, tmp_path: Path) -> None:
    interrupts = [KeyboardInterrupt()]

    def reach(point: str) -> None:
        if point == "noted" and interrupts:
            raise interrupts.pop()

    room = new_place(server.url)
    async with client_of("async", server.url, **ONE_TRY) as client:
        writer = AsyncLedgerWriter(client.ledger.place(room.org, room.vault), "w", tmp_path / "w.db", reach=reach)
        with pytest.raises(KeyboardInterrupt):
            await writer.write([SetKey("k", "0")])
        send = writer._sender.send

        async def cancelled(intents: Any) -> Any:
            await send(intents)
            raise asyncio.CancelledError

        writer._sender.send = cancelled  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await writer.settle()
        writer._sender.send = send  # type: ignore[method-assign]
        room.set_status("READ_ONLY")
        with pytest.raises(UnsettledWriteError, match="read only"):
            await writer.settle()
        room.set_status("ACTIVE")
        assert [one.is_committed for one in await writer.settle()] == [True]
        await writer.close()
    assert sequences(room) == [1]


def test_outcomes_of_a_call_in_progress_are_not_forgotten_with_the_recovered_ones(tmp_path: Path) -> None:
    file = IntentFile(tmp_path / "w.db", "w")
    [old] = file.note([NewIntent("old", b"[]", None)], 1)
    file.record([(old, CommittedWrite(1, "ab", 1, False, "old", None))], 1, NOT_TOLD)
    first, _ = file.note([NewIntent("first", b"[]", None), NewIntent("second", b"[]", None)], 2)
    file.record([(first, CommittedWrite(2, "cd", 2, False, "first", None))], 2, RETURNED)
    file.forget_recovered()  # by another thread, which has read `recovered`
    file.keep_outcomes()  # and then the call fails
    assert [one.key for one in file.recovered()] == ["first"]
    file.close()


class FailingCommits:
    """A database whose next commit fails."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, sql: str, *values: Any) -> Any:
        """As SQLite does, but for one commit."""
        if sql == "COMMIT" and self.fails:
            self.fails = False
            raise sqlite3.OperationalError("disk I/O error")
        return self._database.execute(sql, *values)


def test_a_step_that_could_not_be_stored_does_not_spoil_the_next(tmp_path: Path) -> None:
    file: Any = IntentFile(tmp_path / "w.db", "w")
    file._database = FailingCommits(file._database)
    with pytest.raises(LocalFileError, match="I/O"):
        file.note([NewIntent("first", b"[]", None)], 1)
    assert file.pending() == []
    assert [one.key for one in file.note([NewIntent("second", b"[]", None)], 1)] == ["second"]
    file.close()
