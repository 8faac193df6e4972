"""What grpcurl does with a command of a page: reads a proto file, calls, and prints JSON.

The file must be where the command says; what it describes is taken from its compiled form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from semel.surfaces.ledger.proto import ledger_pb2

SECONDS = 60.0


class Asked(NamedTuple):
    """A command, taken apart."""

    address: str
    what: str
    data: str
    folder: str
    file: str


def taken_apart(words: list[str]) -> Asked:
    """The words behind `grpcurl`; the options are those that the pages use."""
    options = {"-d": "{}", "-import-path": "", "-proto": ""}
    rest = []
    remaining = iter(words)
    for word in remaining:
        if word in options:
            options[word] = next(remaining)
        elif word != "-plaintext":
            rest.append(word)
    address, what = rest
    return Asked(address, what, *options.values())


def called(asked: Asked) -> str:
    """What the command prints."""
    assert (Path(asked.folder) / asked.file).samefile(Path(ledger_pb2.__file__).with_name("ledger.proto"))
    service, _, name = asked.what.partition("/")
    method = ledger_pb2.DESCRIPTOR.pool.FindServiceByName(service).FindMethodByName(name)
    with grpc.insecure_channel(asked.address) as channel:
        return _answer(channel, method, asked.data)


def _answer(channel: grpc.Channel, method: MethodDescriptor, data: str) -> str:
    request = json_format.Parse(data, message_factory.GetMessageClass(method.input_type)())
    answer_class = message_factory.GetMessageClass(method.output_type)
    call: Any = channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda message: cast(Message, message).SerializeToString(),
        response_deserializer=answer_class.FromString,
    )
    return json.dumps(json_format.MessageToDict(call(request, timeout=SECONDS)), indent=2) + "\n"
