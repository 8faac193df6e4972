"""Calls of each surface with secrets in them, and the shape of the trace that each must leave."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from semel.client.ledger.operations import SetKey
from tests.harness.collector import Collector, ReceivedSpan

TOKEN = "tok-" + secrets.token_hex(8)
SECRETS = [f"{what}-{secrets.token_hex(8)}" for what in ("key", "content", "name")]
KEY, CONTENT, NAME = SECRETS
"""They go into keys, contents and names; no exported byte may have one."""


class TracedWrite(NamedTuple):
    """A write, and the names of its client and server spans."""

    call: Callable[[], Awaitable[Any]]
    client: str
    server: str
    surface: str


async def make_places(client: Any) -> Any:
    """Create a stream, an organization and a vault; the calls of the vault."""
    await client.streams.create(NAME, content_type="text/plain")
    org = (await client.ledger.create_organization(NAME)).place.org
    vault = (await client.ledger.create_vault(org)).place.vault
    return client.ledger.place(org, vault)


async def sample_writes(client: Any) -> list[TracedWrite]:
    """A write of each surface."""
    one = secrets.token_hex(6)
    place = await make_places(client)
    key = f"{KEY}-{one}"
    operation = SetKey(f"{NAME}-{one}", CONTENT)
    path = "/ledger/v1/orgs/{}/vaults/{}/writes"
    content = {"text": CONTENT}
    return [
        TracedWrite(
            lambda: client.streams.append(NAME, CONTENT, key=key),
            "semel streams append",
            "POST /v1/stream/{}",
            "streams",
        ),
        TracedWrite(
            lambda: client.events.submit("t", content, partitions=[NAME], id=key),
            "semel events submit",
            "POST /v1/events",
            "events",
        ),
        TracedWrite(lambda: client.jobs.submit("bill", content, key=key), "semel jobs submit", "POST /v1/jobs", "jobs"),
        TracedWrite(
            lambda: place.write([operation], client=f"{NAME}-{one}", sequence=1),
            "semel ledger writes",
            f"POST {path}",
            "ledger",
        ),
    ]


def trace_of(collector: Collector, trace_id: str, names: Sequence[str]) -> list[ReceivedSpan]:
    """The spans of a trace in the order of these names, once all of them have come."""

    def found(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
        return [one for one in spans if one.trace_id == trace_id]

    spans = found(collector.wait_for(lambda spans: len(found(spans)) >= len(names)))
    assert sorted(one.name for one in spans) == sorted(names)
    return sorted(spans, key=lambda one: names.index(one.name))


def assert_no_secret(collector: Collector) -> None:
    """No exported byte has a secret."""
    for secret in (TOKEN, *SECRETS):
        assert secret.encode() not in collector.raw
