"""Whose key a look-up means: the caller's own, or for an administrator that of anyone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.client import AccessError
from tests.cli.command import Semel
from tests.client.jobs_room import open_jobs
from tests.harness.tokens import token_file
from tests.jobs.wire import Jobs, serving


class People(NamedTuple):
    """A tenant, another one, an administrator, and one of a single queue."""

    ann: Jobs
    bob: Jobs
    root: Jobs
    narrow: Jobs


@pytest.fixture
def people(tmp_path: Path, store_kind: str) -> Iterator[People]:
    tenant, every = ["read", "write", "work"], ["read", "write", "work", "admin"]
    tokens = token_file(
        tmp_path,
        {
            "ann": ("token-ann", tenant, ()),
            "bob": ("token-bob", tenant, ()),
            "root": ("token-root", every, ()),
            "narrow": ("token-narrow", every, ("jobs:one",)),
        },
    )
    with (
        serving(tmp_path / "data", env={"SEMEL_TOKENS": str(tokens)}, token="token-ann") as ann,
        ann.with_token("token-bob") as bob,
        ann.with_token("token-root") as root,
        ann.with_token("token-narrow") as narrow,
    ):
        yield People(ann, bob, root, narrow)


def test_d8_an_administrator_looks_up_the_key_of_a_tenant(people: People) -> None:
    first = people.ann.submit("k", {"of": "ann"}, key="same")["job_id"]
    second = people.bob.submit("k", {"of": "bob"}, key="same")["job_id"]
    people.ann.complete(people.ann.claim_one("default", lease_sec=60), "done")
    found = people.root.lookup(idempotency_key="same", principal="ann")
    assert (found["job_id"], found["params"], found["state"]) == (first, {"of": "ann"}, "completed")
    assert found["cached_result"]["result"] == "done"
    assert people.root.lookup(idempotency_key="same", principal="bob")["job_id"] == second
    assert people.root.lookup(idempotency_key="same", expect=404)["error"] == "not_found"
    assert people.root.lookup(idempotency_key="same", principal="nobody", expect=404)["error"] == "not_found"
    assert people.root.lookup(idempotency_key="other", principal="ann", expect=404)["error"] == "not_found"


def test_d8_a_tenant_may_not_name_a_principal(people: People) -> None:
    job_id = people.ann.submit("k", key="mine")["job_id"]
    assert people.ann.lookup(idempotency_key="mine")["job_id"] == job_id
    for caller in (people.ann, people.bob, people.narrow):
        for principal in ("ann", "nobody"):
            refused = caller.lookup(idempotency_key="mine", principal=principal, expect=403)
            assert (refused["error"], refused["role"]) == ("forbidden", "admin")
            assert refused["message"] == "This needs the role admin over all queues."


def test_d8_a_principal_goes_with_a_key(people: People) -> None:
    request_id = people.ann.submit("k", key="mine")["request_id"]
    refused = people.root.lookup(request_id=request_id, principal="ann", expect=400)
    assert (refused["error"], refused["field"]) == ("invalid_request", "principal")
    for principal in ("", 7, "x" * 257):
        assert people.root.lookup(idempotency_key="mine", principal=principal, expect=400)["field"] == "principal"


def test_d8_the_command_and_the_sdk_look_up_the_key_of_a_tenant(people: People) -> None:
    job_id = people.ann.submit("k", key="mine")["job_id"]
    url = people.ann.nodes[0].url
    root, ann = (Semel(url, {"SEMEL_TOKEN": token}) for token in ("token-root", "token-ann"))
    shown = root.here("jobs", "show", "--key", "mine", "--principal", "ann", "--json").facts
    assert shown["job_id"] == job_id
    refused = ann.here("jobs", "show", "--key", "mine", "--principal", "ann")
    assert (refused.code, "This needs the role admin over all queues." in refused.err) == (1, True)
    unclear = root.here("jobs", "show", job_id, "--principal", "ann")
    assert (unclear.code, "Give --principal only with --key" in unclear.err) == (2, True)
    cancelled = root.here("jobs", "cancel", "--key", "mine", "--principal", "ann", "--json").facts
    assert (cancelled["job_id"], cancelled["state"]) == (job_id, "failed")

    async def look() -> None:
        async with open_jobs(url, token="token-root") as jobs:
            assert (await jobs.lookup(key="mine", principal="ann")).job_id == job_id
            with pytest.raises(ValueError, match="principal"):
                await jobs.lookup(request_id="x", principal="ann")
        async with open_jobs(url, token="token-ann") as jobs:
            with pytest.raises(AccessError):
                await jobs.lookup(key="mine", principal="ann")

    asyncio.run(look())
