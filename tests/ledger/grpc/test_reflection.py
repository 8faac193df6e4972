"""Reflection tells of everything that is served, and everything that it tells of is served."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from semel.server.grpc.reflection import Reflection, standard_class
from semel.surfaces.ledger.proto import ledger_pb2

SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "ledger.v1.AdminService",
    "ledger.v1.HealthService",
    "ledger.v1.ReadService",
    "ledger.v1.WriteService",
]
REQUEST = standard_class("grpc.reflection.v1.ServerReflectionRequest")
TIMESTAMP = "google/protobuf/timestamp.proto"
INVALID_ARGUMENT, NOT_FOUND = 3, 5


@pytest.fixture(scope="module")
def reflection() -> Reflection:
    return Reflection(ledger_pb2.DESCRIPTOR)


def files(reflection: Reflection, **question: str) -> list[FileDescriptorProto]:
    """The files that answer a question."""
    told = reflection.answer(REQUEST(host="h", **question))
    assert (told.valid_host, told.original_request.host) == ("h", "h")
    return [FileDescriptorProto.FromString(one) for one in told.file_descriptor_response.file_descriptor_proto]


def test_the_services(reflection: Reflection) -> None:
    told = reflection.answer(REQUEST(list_services=""))
    assert [one.name for one in told.list_services_response.service] == SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_a_tool_can_build_every_service(reflection: Reflection, service: str) -> None:
    pool = DescriptorPool()
    found = files(reflection, file_containing_symbol=service)
    for file in reversed(found):  # what is imported comes behind
        pool.AddSerializedFile(file.SerializeToString())
    built = pool.FindServiceByName(service)
    assert built.methods


@pytest.mark.parametrize(
    "symbol",
    [
        "ledger.v1.WriteRequest",
        "ledger.v1.WriteRequest.idempotency_key",
        "ledger.v1.WriteService.Write",
        "ledger.v1.WriteErrorCode",
        "ledger.v1.WriteError.DetailsEntry",
    ],
)
def test_symbols(reflection: Reflection, symbol: str) -> None:
    assert [file.name for file in files(reflection, file_containing_symbol=symbol)] == [
        "semel/surfaces/ledger/proto/ledger.proto",
        TIMESTAMP,
    ]


def test_a_file_by_its_name(reflection: Reflection) -> None:
    assert [file.name for file in files(reflection, file_by_filename=TIMESTAMP)] == [TIMESTAMP]
    assert files(reflection, file_containing_symbol="google.protobuf.Timestamp")[0].name == TIMESTAMP


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"file_containing_symbol": "ledger.v1.Nothing"}, NOT_FOUND),
        ({"file_by_filename": "/etc/passwd"}, NOT_FOUND),
        ({"all_extension_numbers_of_type": "ledger.v1.Nothing"}, NOT_FOUND),
        ({"file_containing_extension": {"containing_type": "ledger.v1.Hash", "extension_number": 1}}, NOT_FOUND),
        ({}, INVALID_ARGUMENT),
    ],
    ids=["symbol", "file", "extensions", "extension", "nothing"],
)
def test_what_is_not_there(reflection: Reflection, question: dict[str, object], code: int) -> None:
    told = reflection.answer(REQUEST(**question))
    assert (told.WhichOneof("message_response"), told.error_response.error_code) == ("error_response", code)


def test_nothing_extends_anything(reflection: Reflection) -> None:
    told = reflection.answer(REQUEST(all_extension_numbers_of_type="ledger.v1.Hash"))
    assert told.all_extension_numbers_response.base_type_name == "ledger.v1.Hash"
    assert not told.all_extension_numbers_response.extension_number
