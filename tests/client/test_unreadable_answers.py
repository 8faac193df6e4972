"""A write whose successful answer cannot be read is repeated unchanged, and then unknown: never refused, never an error
of decoding. What became of it is asked with its identity.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from semel.client import EventDraft, JobRequest, NoAnswerError, OutcomeUnknown, Patience, WriteIdentity
from semel.client.errors import BadAnswerError
from semel.client.identity import EventSubmission, JobKey, LedgerWrite, NamedCall, ProducerAppend, StreamAppend
from semel.client.jobs.texts import job_text
from semel.client.jobs.values import Lease
from semel.client.ledger.operations import BulkTransaction, SetKey
from tests.client.both import BOTH, client_of, network_of, run
from tests.client.cut_network import CutNetwork
from tests.client.forging_proxy import ForgingProxy, Spoil
from tests.client.names import fresh
from tests.client.raw_server import always, answers, raw_server
from tests.client.replica_kinds import open_async, open_blocking
from tests.harness.server import RunningServer

TRIES = 2
TWICE = Patience(tries=TRIES)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEASE = Lease("job_1", "r", "k", {}, "q", 4, 1, 1, 1, "t" * 32, 1_000, EPOCH, EPOCH)
KEY = "01234567-89ab-cdef-0123-456789abcdef"
SET = [SetKey("a", b"1")]


def http(body: bytes, media_type: str = "application/json") -> bytes:
    """A successful answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        media_type.encode(),
        len(body),
        body,
    )


ODD = {
    "nothing": http(b""),
    "cut JSON": http(b'{"ok":true,"job_id":"job_1","results":[{"id'),
    "a page": http(b"<html>Sign in</html>", "text/html"),
    "another type": http(b"ok", "text/plain"),
    "a list": http(b"[]"),
    "no members": http(b'{"something":"else"}'),
    "members of other types": http(b'{"ok":7,"jobs":{},"results":7,"success":[],"deleted":{},"serverHlc":[]}'),
    "not UTF-8": http(b'{"ok":"\xff"}'),
}
ODD_ANSWERS = pytest.mark.parametrize("odd", ODD.values(), ids=ODD)

Call = Callable[[Any], Awaitable[Any]]


def named(method: str, path: str) -> NamedCall:
    """The identity of a call that its name makes repeatable."""
    return NamedCall(method, path)


async def many(found: Any) -> Any:
    """The results of an iterator."""
    return [one async for one in found]


JOBS: dict[str, tuple[Call, WriteIdentity]] = {
    "submit": (lambda c: c.jobs.submit("k", key="a"), JobKey("a")),
    "submit_many": (lambda c: c.jobs.submit_many([JobRequest("k", key="a")]), JobKey("a")),
    "submit_text": (lambda c: c.jobs.submit_text(job_text(JobRequest("k"), b"{}", "a")), JobKey("a")),
    "submit_group": (lambda c: c.jobs.submit_group(JobRequest("j", key="a"), [JobRequest("k")]), JobKey("a")),
    "cancel": (lambda c: c.jobs.cancel("job_1"), named("POST", "/v1/jobs/job_1/cancel")),
    "requeue": (lambda c: c.jobs.requeue("job_1", revision=1), named("POST", "/v1/jobs/job_1/requeue")),
    "close_group": (lambda c: c.jobs.close_group("job_1"), named("POST", "/v1/jobs/job_1/close")),
    "release_key": (lambda c: c.jobs.release_key("a"), named("POST", "/v1/jobs/keys/release")),
    "set_queue": (lambda c: c.jobs.set_queue("q", max_inflight=1), named("PUT", "/v1/jobs/queues/q")),
    "reset_queue": (lambda c: c.jobs.reset_queue("q"), named("DELETE", "/v1/jobs/queues/q")),
    "set_schedule": (lambda c: c.jobs.set_schedule("s", "@daily", "k"), named("PUT", "/v1/jobs/schedules/s")),
    "delete_schedule": (lambda c: c.jobs.delete_schedule("s"), named("DELETE", "/v1/jobs/schedules/s")),
    "claim": (lambda c: c.jobs.claim("w", claim_id="c"), named("POST", "/v1/jobs/claim")),
    "heartbeat": (lambda c: c.jobs.heartbeat(LEASE), named("POST", "/v1/jobs/job_1/heartbeat")),
    "complete": (lambda c: c.jobs.complete(LEASE, 1), named("POST", "/v1/jobs/job_1/complete")),
    "fail": (lambda c: c.jobs.fail(LEASE, {"code": "c", "message": "m"}), named("POST", "/v1/jobs/job_1/fail")),
    "defer": (lambda c: c.jobs.defer(LEASE), named("POST", "/v1/jobs/job_1/defer")),
    "store_step": (lambda c: c.jobs.store_step(LEASE, "s", 1), named("POST", "/v1/jobs/job_1/steps")),
    "submit_child": (lambda c: c.jobs.submit_child(LEASE, "n", JobRequest("k")), named("POST", "/v1/jobs")),
}
EVENTS: dict[str, tuple[Call, WriteIdentity]] = {
    "event": (lambda c: c.events.submit("set", 1, partitions="p", id="e"), EventSubmission("e")),
    "events": (
        lambda c: c.events.submit_many([EventDraft("set", 1, "p", "e"), EventDraft("set", 1, "p", "f")]),
        EventSubmission("e"),
    ),
}
ORG = "/ledger/v1/orgs"
LEDGER: dict[str, tuple[Call, WriteIdentity]] = {
    "write by key": (
        lambda c: c.ledger.place(1).write(SET, client="w", key=KEY),
        LedgerWrite("1", None, "w", None, KEY),
    ),
    "write by sequence": (
        lambda c: c.ledger.place(1, 2).write(SET, client="w", sequence=1),
        LedgerWrite("1", "2", "w", 1, None),
    ),
    "write_many": (
        lambda c: many(c.ledger.place(1).write_many([BulkTransaction(tuple(SET), "w", 1, None)])),
        LedgerWrite("1", None, "w", 1, None),
    ),
    "create organization": (lambda c: c.ledger.create_organization("n", key="a"), named("POST", ORG)),
    "create vault": (lambda c: c.ledger.create_vault(1, key="a"), named("POST", f"{ORG}/1/vaults")),
    "change organization": (lambda c: c.ledger.change_organization(1, fence=True), named("PATCH", f"{ORG}/1")),
    "change vault": (
        lambda c: c.ledger.change_vault(1, 2, status="active"),
        named("PATCH", f"{ORG}/1/vaults/2"),
    ),
}
ADMIN = "/v1/admin"
DELTAS: dict[str, tuple[Call, WriteIdentity]] = {
    "flush": (lambda c: c.deltas_admin.flush("gw"), named("POST", f"{ADMIN}/flush/gw")),
    "schema": (lambda c: c.deltas_admin.save_schema("t", {"a": "string"}, "gw"), named("POST", f"{ADMIN}/schema/gw")),
    "rules": (lambda c: c.deltas_admin.save_rules({}, "gw"), named("POST", f"{ADMIN}/sync-rules/gw")),
    "forget": (lambda c: c.deltas_admin.forget_clients(["a"], "gw"), named("POST", f"{ADMIN}/forget-clients/gw")),
}
STREAMS: dict[str, tuple[Call, WriteIdentity]] = {
    "append": (lambda c: c.streams.append("s", b"x", key="a"), StreamAppend("s", "a")),
    "producer": (lambda c: c.streams.producer("s", "p", epoch=0).append(b"x"), ProducerAppend("s", "p", 0, 0)),
    "create": (lambda c: c.streams.create("s"), named("PUT", "/v1/stream/s")),
}
WRITES = JOBS | EVENTS | LEDGER | DELTAS | STREAMS


@BOTH
@ODD_ANSWERS
@pytest.mark.parametrize(("call", "identity"), WRITES.values(), ids=WRITES)
def test_a_write_with_an_unreadable_answer_is_repeated_and_then_unknown(
    kind: str, odd: bytes, call: Call, identity: WriteIdentity
) -> None:
    async def main() -> None:
        asked: list[bytes] = []
        network = CutNetwork(network_of(kind))
        with raw_server(always(odd, asked)) as url:
            async with client_of(kind, url, patience=TWICE, network=network) as client:
                unknown = await failure(call(client))
        assert isinstance(unknown, OutcomeUnknown), repr(unknown)
        assert (unknown.identity, unknown.is_unsettled) == (identity, True)
        assert isinstance(_root(unknown), BadAnswerError)
        # A requeue reads the job before it is repeated.
        if call is not JOBS["requeue"][0]:
            assert (len(asked), len(set(asked))) == (TRIES, 1), "it was not repeated unchanged"

    run(main)


async def failure(call: Awaitable[Any]) -> Any:
    """The error of a call, raised or as the first of its results."""
    try:
        [first, *_] = await call
    except Exception as error:  # noqa: BLE001 - which one it is, is what is tested
        return error
    return first


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@BOTH
@ODD_ANSWERS
def test_a_push_with_an_unreadable_answer_stays_queued(kind: str, odd: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        asked: list[bytes] = []
        network = CutNetwork(network_of(kind))
        opened = open_async if kind == "async" else open_blocking
        with raw_server(always(odd, asked)) as url:
            async with opened(tmp_path / "r.db", url=url, gateway="gw", patience=TWICE, network=network) as replica:
                replica.put("t", "1", {"a": 1})
                with pytest.raises(OutcomeUnknown) as unknown:
                    await replica.push()
                assert unknown.value.identity == NamedCall("POST", "/v1/sync/gw/push")
                [pending] = replica.pending()
                assert pending.is_sent
        assert (len(asked), len(set(asked))) == (TRIES, 1)

    run(main)


@BOTH
@ODD_ANSWERS
def test_a_write_without_an_identity_is_not_repeated_and_may_have_taken_effect(kind: str, odd: bytes) -> None:
    async def main() -> None:
        asked: list[bytes] = []
        with raw_server(always(odd, asked)) as url:
            async with client_of(kind, url, patience=TWICE, network=CutNetwork(network_of(kind))) as client:
                with pytest.raises(NoAnswerError) as lost:
                    await client.jobs.submit_text(job_text(JobRequest("k"), b"{}", None))
                assert lost.value.is_unsettled
                [many] = await client.jobs.submit_texts([job_text(JobRequest("k"), b"{}", None)])
                assert isinstance(many, NoAnswerError)
                assert many.is_unsettled
        assert len(asked) == 2

    run(main)


@BOTH
def test_what_a_retry_cannot_change_is_not_repeated(kind: str) -> None:
    large, moved = http(b"x" * 20_000), b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"

    async def main() -> None:
        for odd in (large, moved):
            asked: list[bytes] = []
            with raw_server(always(odd, asked)) as url:
                async with client_of(kind, url, patience=TWICE, max_answer_bytes=10_000) as client:
                    with pytest.raises(OutcomeUnknown):
                        await client.jobs.submit("k")
            assert len(asked) == 1

    run(main)


READS: dict[str, Call] = {
    "job": lambda c: c.jobs.get("job_1"),
    "look-up": lambda c: c.jobs.lookup(key="a"),
    "jobs": lambda c: c.jobs.list(),
    "events": lambda c: c.events.read("p"),
    "organization": lambda c: c.ledger.organization(1),
    "state": lambda c: c.ledger.place(1).state("w"),
    "gateway": lambda c: c.deltas_admin.stats("gw"),
    "streams": lambda c: c.streams.list(),
}


@BOTH
@ODD_ANSWERS
@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_an_unreadable_answer_to_a_read_is_told_at_once(kind: str, odd: bytes, call: Call) -> None:
    async def main() -> None:
        asked: list[bytes] = []
        with raw_server(always(odd, asked)) as url:
            async with client_of(kind, url, patience=TWICE) as client:
                with pytest.raises(BadAnswerError):
                    await call(client)
        assert len(asked) == 1

    run(main)


# -- A real server behind a proxy that spoils answers ------------------------------------------------------------------

SPOILS: dict[str, Spoil] = {
    "cut": lambda body: body[: len(body) // 2],
    "a page": lambda body: b"<html>",
    "no members": lambda body: b"{}",
}
SPOILED = pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)


@asynccontextmanager
async def between(kind: str, server: RunningServer, **options: Any) -> AsyncIterator[tuple[Any, ForgingProxy, Any]]:
    """A client behind a proxy, the proxy, and a client of the server itself."""
    with ForgingProxy(server.url) as proxy:
        async with client_of(kind, proxy.url, **options) as client, client_of("async", server.url) as direct:
            yield client, proxy, direct


async def written(client: Any, direct: Any) -> dict[str, tuple[Callable[[], Awaitable[Any]], str]]:
    """A write for each surface with receipts, and the name of the member that says "replayed"."""
    org = (await direct.ledger.create_organization(fresh("org"))).place.org
    key, event, stream, name = fresh("key"), fresh("event"), fresh("s"), fresh("p")
    await direct.streams.create(stream)
    place = client.ledger.place(org)
    return {
        "job": (lambda: client.jobs.submit(fresh("kind"), key=key), "dedup"),
        "event": (lambda: client.events.submit("set", 1, partitions=name, id=event), "replayed"),
        "transaction": (lambda: place.write(SET, client="w", sequence=1), "replayed"),
        "keyed transaction": (lambda: place.write(SET, client="v"), "replayed"),
        "stream": (lambda: client.streams.append(stream, b"x"), "replayed"),
    }


@BOTH
@SPOILED
def test_a_write_whose_answer_was_spoiled_is_resolved(server: RunningServer, kind: str, spoil: Spoil) -> None:
    async def main() -> None:
        async with between(kind, server, patience=Patience(tries=1)) as (client, proxy, direct):
            for name, (call, _) in (await written(client, direct)).items():
                if name == "stream":
                    continue  # its answer has no body
                proxy.spoils.append(spoil)
                with pytest.raises(OutcomeUnknown) as unknown:
                    await call()
                assert (await client.resolve(unknown.value.identity)).is_committed, name
                assert not proxy.spoils

    run(main)


@BOTH
@SPOILED
def test_a_write_whose_first_answer_was_spoiled_is_a_replay(server: RunningServer, kind: str, spoil: Spoil) -> None:
    async def main() -> None:
        network = CutNetwork(network_of(kind))
        async with between(kind, server, network=network) as (client, proxy, direct):
            for name, (call, replayed) in (await written(client, direct)).items():
                if name == "stream":
                    continue
                proxy.spoils.append(spoil)
                assert getattr(await call(), replayed) is True, name
                assert not proxy.spoils

    run(main)


@BOTH
@SPOILED
def test_a_creation_whose_answer_was_spoiled_can_be_repeated(server: RunningServer, kind: str, spoil: Spoil) -> None:
    async def main() -> None:
        async with between(kind, server, patience=Patience(tries=1)) as (client, proxy, _):
            name = fresh("org")
            proxy.spoils.append(spoil)
            with pytest.raises(OutcomeUnknown) as unknown:
                await client.ledger.create_organization(name)
            assert unknown.value.key is not None
            assert (await client.ledger.create_organization(name, key=unknown.value.key)).replayed

    run(main)


def test_a_lost_tail_of_an_answer_is_no_short_answer() -> None:
    async def main() -> None:
        whole = http(b'{"ok":true}')
        with raw_server(answers(whole[:-3])) as url:
            async with client_of("async", url, patience=Patience(tries=1)) as client:
                with pytest.raises(OutcomeUnknown):
                    await client.jobs.complete(replace(LEASE), 1)

    run(main)
