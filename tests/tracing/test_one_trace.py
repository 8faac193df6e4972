"""A call, its requests and its commits are one trace; both clients, each surface."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from semel.client import ClientTelemetry, Worker
from semel.client.errors import KeyCollisionError, NoAnswerError
from semel.client.retry import Patience
from tests.client.both import BOTH, client_of, network_of, run
from tests.client.cut_network import CutNetwork
from tests.harness.collector import Collector, ReceivedSpan
from tests.harness.server import RunningServer
from tests.tracing.calls import (
    CONTENT,
    KEY,
    NAME,
    TOKEN,
    assert_no_secret,
    sample_writes,
    trace_of,
)


def _last_trace(collector: Collector, name: str) -> str:
    spans = collector.wait_for(lambda spans: any(one.name == name for one in spans))
    return [one.trace_id for one in spans if one.name == name][-1]


@BOTH
def test_a_write_of_each_surface_is_one_trace_from_the_caller_to_the_commit(
    server: RunningServer, collector: Collector, telemetry: ClientTelemetry, kind: str
) -> None:
    async def main() -> None:
        async with client_of(kind, server.url, token=TOKEN, telemetry=telemetry) as client:
            for write in await sample_writes(client):
                await write.call()
                names = [write.client, write.server, "semel commit"]
                call, served, commit = trace_of(collector, _last_trace(collector, write.client), names)
                assert (call.parent_id, served.parent_id, commit.parent_id) == ("", call.span_id, served.span_id)
                assert (call.kind, served.kind, commit.kind) == ("client", "server", "internal")
                assert {one.attributes["semel.surface"] for one in (call, served, commit)} == {write.surface}
                assert served.attributes["http.route"] == write.server.removeprefix("POST ")
                assert served.attributes["http.response.status_code"] == call.attributes["http.response.status_code"]
                assert commit.attributes["db.system.name"] == "sqlite"
                assert commit.attributes["semel.batch.size"] >= 1
                assert commit.attributes["semel.commit"] == "durable"
                assert commit.attributes["semel.verdict"] == served.attributes["semel.verdict"] == "fresh"
                assert [name for name, _ in call.events] == ["semel.attempt"]
                assert served.service == "semel-under-test"
                assert not any(one.is_failed for one in (call, served, commit))

    run(main)
    assert_no_secret(collector)


@BOTH
def test_a_repeated_write_tells_the_replay_and_commits_nothing(
    server: RunningServer, collector: Collector, telemetry: ClientTelemetry, kind: str
) -> None:
    async def main() -> None:
        async with client_of(kind, server.url, token=TOKEN, telemetry=telemetry) as client:
            for write in await sample_writes(client):
                await write.call()
                await write.call()
                names = [write.client, write.server, "semel commit"]
                call, served, commit = trace_of(collector, _last_trace(collector, write.client), names)
                assert commit.attributes["semel.verdict"] == served.attributes["semel.verdict"] == "replay"
                assert call.attributes["semel.replayed"] is True

    run(main)


@BOTH
def test_a_retried_call_has_one_client_span_with_two_attempts_and_two_server_spans(
    server: RunningServer, collector: Collector, telemetry: ClientTelemetry, kind: str
) -> None:
    async def main() -> None:
        network = CutNetwork(network_of(kind))
        async with client_of(kind, server.url, token=TOKEN, telemetry=telemetry, network=network) as client:
            await client.streams.create(NAME, content_type="text/plain")
            network.answer_left = 20  # the line is cut inside the first answer
            appended = await client.streams.append(NAME, CONTENT, key=f"{KEY}-retried-{kind}")
            assert appended.replayed
            assert network.cuts == 1

    run(main)
    commit = "semel commit"
    names = ["semel streams append", "POST /v1/stream/{}", "POST /v1/stream/{}", commit, commit]
    call, *served = trace_of(collector, _last_trace(collector, names[0]), names)
    assert [one.parent_id for one in served[:2]] == [call.span_id] * 2
    assert {one.parent_id for one in served[2:]} == {one.span_id for one in served[:2]}
    assert [name for name, _ in call.events] == ["semel.attempt", "semel.retry", "semel.attempt"]
    assert [facts["semel.attempt.number"] for name, facts in call.events if name == "semel.attempt"] == [1, 2]
    assert call.attributes["http.request.resend_count"] == 1
    assert sorted(one.attributes["semel.verdict"] for one in served[2:]) == ["fresh", "replay"]


@BOTH
def test_a_refused_call_is_a_failed_span_without_the_text_of_the_refusal(
    server: RunningServer, collector: Collector, telemetry: ClientTelemetry, kind: str
) -> None:
    async def main() -> None:
        async with client_of(kind, server.url, token=TOKEN, telemetry=telemetry) as client:
            await client.streams.create(NAME, content_type="text/plain")
            await client.streams.append(NAME, CONTENT, key=f"{KEY}-{kind}")
            with pytest.raises(KeyCollisionError):
                await client.streams.append(NAME, "other", key=f"{KEY}-{kind}")

    run(main)
    names = ["semel streams append", "POST /v1/stream/{}", "semel commit"]
    call, served, commit = trace_of(collector, _last_trace(collector, names[0]), names)
    assert (call.is_failed, call.attributes["error.type"]) == (True, "409")
    assert (served.is_failed, served.attributes["semel.verdict"]) == (False, "mismatch")
    assert commit.attributes["semel.commit"] == "nothing"
    assert_no_secret(collector)


@BOTH
def test_a_call_without_a_server_is_a_failed_span_of_the_callers_trace(
    collector: Collector, provider: TracerProvider, kind: str
) -> None:
    """The application's own span is the parent."""
    telemetry = ClientTelemetry(provider)

    async def main() -> None:
        patience = Patience(tries=2, seconds=10)
        network = CutNetwork(network_of(kind))
        url = "http://127.0.0.1:9"
        async with client_of(kind, url, telemetry=telemetry, patience=patience, network=network) as client:
            with provider.get_tracer("app").start_as_current_span(f"checkout {kind}"), pytest.raises(NoAnswerError):
                await client.streams.append(NAME, CONTENT, key=KEY)

    run(main)
    names = [f"checkout {kind}", "semel streams append"]
    own, call = trace_of(collector, _last_trace(collector, names[0]), names)
    assert call.parent_id == own.span_id
    assert (call.is_failed, call.attributes["error.type"]) == (True, "ConnectionRefusedError")


@BOTH
@pytest.mark.parametrize("is_async", [False, True])
def test_the_run_of_a_job_continues_the_trace_of_its_submitter(
    server: RunningServer, collector: Collector, provider: TracerProvider, kind: str, is_async: bool
) -> None:
    """Also calls in the function, which may run in a thread."""
    telemetry = ClientTelemetry(provider)
    order = f"order {kind} {is_async}"
    worker = Worker(server.url, token=TOKEN, queues=[order.replace(" ", "-")], telemetry=telemetry, poll=0.1)
    tracer = provider.get_tracer("app")

    if is_async:

        @worker.job("traced.async")
        async def bill(amount: int) -> int:
            with tracer.start_as_current_span("charge"):
                return amount

    else:

        @worker.job("traced.sync")
        def bill(amount: int) -> int:
            with tracer.start_as_current_span("charge"):
                return amount

    async def main() -> None:
        name, queue = ("traced.async" if is_async else "traced.sync"), order.replace(" ", "-")
        async with client_of(kind, server.url, token=TOKEN, telemetry=telemetry) as client:
            with tracer.start_as_current_span(order):
                await client.jobs.submit(name, {"amount": 5}, queue=queue)
        await worker.serve(until_idle=True)

    run(main)
    names = [order, "semel jobs submit", "semel jobs run", "charge"]

    def found(spans: list[ReceivedSpan]) -> dict[str, ReceivedSpan]:
        [trace] = [one.trace_id for one in spans if one.name == order] or [""]
        return {one.name: one for one in spans if one.trace_id == trace}

    spans = found(collector.wait_for(lambda spans: names[2] in found(spans)))
    submitter, submit, ran, charge = (spans[name] for name in names)
    assert (submit.parent_id, ran.parent_id, charge.parent_id) == (submitter.span_id, submitter.span_id, ran.span_id)
    assert (ran.kind, ran.attributes["semel.job.attempt"], ran.is_failed) == ("consumer", 1, False)
    assert ran.attributes["semel.job.ending"] == "completed"
    assert spans["semel jobs complete"].parent_id == ran.span_id
