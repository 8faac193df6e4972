"""A program that uses the ledger, as a user writes it: checked by mypy and Pyright, both strict, and never run."""

from __future__ import annotations

from typing import assert_type

from semel.client import (
    AsyncClient,
    BulkTransaction,
    Client,
    CommittedWrite,
    DeleteKey,
    IfAbsent,
    IfVersion,
    RecoveredWrite,
    Relate,
    SetKey,
    TrustedHead,
    WriteConditionError,
)
from semel.client.errors import CallError
from semel.client.ledger.values import ChainBlock, EntityValue, OrganizationInfo


def blocking(client: Client) -> None:
    """The synchronous calls."""
    place = client.ledger.place(7001, "9001", head=TrustedHead("heads"))
    done = place.write(
        [SetKey("ada", "100", IfAbsent()), Relate("doc:1", "viewer", "user:ada")], client="c", sequence=1
    )
    assert_type(done, CommittedWrite)
    assert_type(done.replayed, bool)
    assert_type(place.read("ada"), EntityValue | None)
    assert_type(place.read_many(["ada"]), dict[str, EntityValue])
    for block in place.watch(from_height=3):
        assert_type(block, ChainBlock)
        break
    for entity in place.entities("a"):
        assert_type(entity, EntityValue)
    for result in place.write_many([BulkTransaction((DeleteKey("ada"),), "c")]):
        assert_type(result, CommittedWrite | CallError)
    for organization in client.ledger.organizations():
        assert_type(organization, OrganizationInfo)
    with place.writer("till", "till.db") as writer:
        assert_type(writer.recovered, list[RecoveredWrite])
        writer.forget_recovered()
        try:
            assert_type(writer.write([SetKey("ada", b"1", IfVersion(3))], note="n"), CommittedWrite)
        except WriteConditionError as error:
            assert_type(error.current_version, int | None)


async def asynchronous(client: AsyncClient) -> None:
    """The same as coroutines."""
    place = client.ledger.place(verify=True)
    assert_type(await place.write([DeleteKey("ada")], client="c"), CommittedWrite)
    async for block in place.watch():
        assert_type(block, ChainBlock)
    async for entity in place.entities():
        assert_type(entity, EntityValue)
    async with place.writer("till", "till.db") as writer:
        assert_type(await writer.write([DeleteKey("ada")]), CommittedWrite)
        assert_type(await writer.write_all([[DeleteKey("ada")]]), list[CommittedWrite | CallError])
