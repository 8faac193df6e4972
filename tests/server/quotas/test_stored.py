"""Stored keys and bytes of a principal on each surface, wire and store: refused without a trace, and given back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.postgres.shared import fresh_url
from tests.server.quotas.site import OTHER, Site, served, token_of
from tests.server.quotas.test_wires import SHAPES
from tests.server.quotas.writers import PAD, WRITERS, Outcome, writing

KEYS = 5
BYTES = 4 * len(PAD)
"""Room for two or three things, with what each has besides its padding."""
PRINCIPALS = {f"keys-{wire}": {"stored_keys": KEYS} for wire in WRITERS} | {
    f"size-{wire}": {"stored_bytes": BYTES} for wire in WRITERS
}
PRINCIPALS |= {"keys-group": {"stored_keys": KEYS}, "keys-large": {"stored_keys": 1_500}}
SURFACE_OF = {wire: wire.partition("-")[0].replace("shaped", "streams") for wire in WRITERS}


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres", "fronts"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("stored")
    env = {"memory": {}, "sqlite": {"SEMEL_STORE": ""}, "postgres": {"SEMEL_STORE": fresh_url()}}
    with served(folder, PRINCIPALS, **env.get(request.param, {"SEMEL_FRONTS": "1"})) as site:
        yield site


def told(outcome: Outcome, wire: str, quota: str) -> None:
    """A refusal over HTTP has the shape of its surface."""
    answer = outcome.refusal
    assert answer is not None
    if isinstance(answer, httpx.Response):
        shape, code = SHAPES[SURFACE_OF[wire]]
        shape(answer, code)
        assert int(answer.headers["retry-after"]) >= 1
        assert quota in answer.text


@pytest.mark.parametrize("wire", WRITERS)
def test_keys_beyond_the_quota_are_refused_and_replays_are_answered(site: Site, wire: str) -> None:
    before = site.refusals("stored_keys")
    with writing(site, wire, f"keys-{wire}") as writer:
        first = [writer.write(number) for number in range(1, KEYS + 1)]
        assert [one.told is None for one in first] == [False] * KEYS
        refused = writer.write(KEYS + 1)
        assert refused.told is None
        told(refused, wire, "stored_keys")
        assert writer.stored() == KEYS
        assert [writer.write(number) for number in range(1, KEYS + 1)] == first
        assert writer.write(KEYS + 1).told is None
        assert writer.stored() == KEYS
    assert site.refusals("stored_keys") == before + 2
    with writing(site, wire, OTHER) as writer:
        assert writer.write(1).told is not None


@pytest.mark.parametrize("wire", WRITERS)
def test_bytes_beyond_the_quota_are_refused_and_replays_are_answered(site: Site, wire: str) -> None:
    with writing(site, wire, f"size-{wire}") as writer:
        outcomes: list[Outcome] = []
        while not outcomes or outcomes[-1].told is not None:
            outcomes.append(writer.write(len(outcomes) + 1))
            assert len(outcomes) <= 5
        first = outcomes[:-1]
        assert 2 <= len(first) <= 4
        told(outcomes[-1], wire, "stored_bytes")
        assert writer.stored() == len(first)
        assert [writer.write(number + 1) for number in range(len(first))] == first


def test_replays_and_new_transactions_of_one_group_have_their_own_verdicts(site: Site) -> None:
    name = "keys-group"
    with writing(site, "ledger-grpc", name) as writer:
        first = [writer.write(number).told for number in range(1, KEYS + 1)]

        def verdicts() -> list[Any]:
            with site.channel() as channel:
                stream: Any = channel.stream_stream("/ledger.v1.WriteService/StreamWrites")
                asked = [writer.request(number) for number in range(1, KEYS + 2)]
                key = [("x-api-key", token_of(name))]
                return [pb.WriteVerdict.FromString(one) for one in stream(iter(asked), metadata=key, timeout=60)]

        *known, last = verdicts()
        assert [one.success.tx_id.id for one in known] == first
        assert last.WhichOneof("result") == "refusal", last
        assert writer.stored() == KEYS


def test_a_large_push_is_refused_as_a_whole(site: Site) -> None:
    with writing(site, "deltas", "keys-large") as writer:

        def push(count: int) -> httpx.Response:
            made = [writer.delta(number) for number in range(count)]
            answer: httpx.Response = writer.client.post(
                f"/sync/{writer.name}/push", json={"clientId": writer.name, "deltas": made}
            )
            return answer

        assert push(2_000).status_code == 429
        assert writer.stored() == 0
        assert push(1_500).json()["accepted"] == 1_500
        assert push(1_500).json()["accepted"] == 1_500
        assert push(1_501).status_code == 429
