"""A stub made from the published tables talks to the server, and the proto file says what the tables do."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from semel.surfaces.ledger.proto import ledger_pb2
from tests.ledger import stub
from tests.ledger.rig import Ledger, SiteOf
from tests.ledger.words import fresh, new_key

KINDS = descriptor_pb2.FieldDescriptorProto


@pytest.fixture(scope="module")
def ledger(site_of: SiteOf) -> Ledger:
    return site_of("sqlite").ledger("grpc")


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """Messages, enums and services as the proto file has them, by name."""
    file = descriptor_pb2.FileDescriptorProto.FromString(ledger_pb2.DESCRIPTOR.serialized_pb)
    assert file.package == stub.PACKAGE
    parts: list[Any] = [*file.message_type, *file.enum_type, *file.service]
    return {part.name: part for part in parts}


def test_10_a_stub_from_the_tables_talks_to_the_server(ledger: Ledger) -> None:
    """Messages made by hand, sent as bytes, read by the stub's classes."""
    place, client, key = ledger.new_place(), fresh("client"), new_key()
    asked = stub.make(
        "WriteRequest",
        organization=stub.make("OrganizationSlug", slug=place.org),
        vault=stub.make("VaultSlug", slug=place.vault),
        client_id=stub.make("ClientId", id=client),
        idempotency_key=key,
        operations=[stub.make("Operation", set_entity=stub.make("SetEntity", key="k", value=b"v"))],
        include_tx_proof=True,
        sequence=1,
    )
    content, _ = ledger.grpc.send("Write", asked.SerializeToString())
    success = stub.message_class("WriteResponse").FromString(content).success
    assert (success.block_height, success.assigned_sequence, len(success.tx_id.id)) == (1, 1, 16)
    assert success.block_header.organization.slug == place.org
    assert success.transaction.operations[0].set_entity.value == b"v"
    again, _ = ledger.grpc.send("Write", asked.SerializeToString())
    assert stub.message_class("WriteResponse").FromString(again).success == success


@pytest.mark.parametrize("service", stub.SERVICES)
def test_methods(described: dict[str, Any], service: str) -> None:
    methods = {one.name: one for one in described[service].method}
    assert set(stub.SERVICES[service]) <= set(methods)
    for name in stub.SERVICES[service]:
        method = methods[name]
        assert method.server_streaming is (name == "WatchBlocks")
        assert not method.client_streaming
        assert method.input_type == stub.type_name(stub.request_name(name))
        assert method.output_type == stub.type_name(stub.answer_name(name))


@pytest.mark.parametrize("name", stub.ENUMS)
def test_enums(described: dict[str, Any], name: str) -> None:
    prefix, values = stub.ENUMS[name]
    found = {value.number: value.name for value in described[name].value}
    assert found == {number: f"{prefix}_{value}" for number, value in enumerate(values.split())}


@pytest.mark.parametrize("name", stub.MESSAGES)
def test_messages(described: dict[str, Any], name: str) -> None:
    """Every field of the tables is there, with its number, type and presence."""
    fields = {field.number: field for field in described[name].field}
    for wanted in stub.fields_of(name):
        field = fields[wanted.number]
        assert field.name == wanted.name
        assert (field.label == KINDS.LABEL_REPEATED) is (wanted.mark == "*" or wanted.type == "map")
        if wanted.type in stub.SCALARS:
            assert field.type == stub.SCALARS[wanted.type]
            assert field.proto3_optional is (wanted.mark == "?")
        elif wanted.type != "map":
            assert field.type_name == stub.type_name(wanted.type)
        has_choice = field.HasField("oneof_index") and not field.proto3_optional
        assert has_choice is (wanted.mark == "|")
