"""What grpcurl does with a command of a page: asks the server by reflection what it has, calls, and prints JSON.

Knows of the server's messages only what reflection tells. The messages of reflection itself are those of its published
description, which the package brings along compiled.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple, cast

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

SECONDS = 60.0
REFLECTION = "grpc.reflection.v1"


class Asked(NamedTuple):
    """A command, taken apart."""

    address: str
    what: str
    data: str


def taken_apart(words: list[str]) -> Asked:
    """The words behind `grpcurl`; the options are those that the pages use."""
    data = "{}"
    rest = []
    remaining = iter(words)
    for word in remaining:
        if word == "-d":
            data = next(remaining)
        elif word != "-plaintext":
            rest.append(word)
    address, what = rest
    return Asked(address, what, data)


def called(asked: Asked) -> str:
    """What the command prints."""
    with grpc.insecure_channel(asked.address) as channel:
        if asked.what == "list":
            services = _reflected(channel, list_services="*").list_services_response.service
            return "\n".join(sorted(one.name for one in services)) + "\n"
        service, _, name = asked.what.partition("/")
        method = _described(channel, service).FindServiceByName(service).FindMethodByName(name)
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


def _described(channel: grpc.Channel, symbol: str) -> descriptor_pool.DescriptorPool:
    """Everything that a service is made of, as the server tells it."""
    told = _reflected(channel, file_containing_symbol=symbol).file_descriptor_response.file_descriptor_proto
    described = [descriptor_pb2.FileDescriptorProto.FromString(one) for one in told]
    waiting = {one.name: one for one in described}
    pool = descriptor_pool.DescriptorPool()

    def add(name: str) -> None:
        one = waiting.pop(name, None)
        if one is not None:
            for needed in one.dependency:
                add(needed)
            pool.Add(one)

    for one in described:
        add(one.name)
    return pool


def _reflected(channel: grpc.Channel, **question: str) -> Any:
    stored = files("semel.server.grpc.proto").joinpath("standard.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(stored).file:
        pool.Add(one)

    def made(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{REFLECTION}.{name}"))

    call: Any = channel.stream_stream(
        f"/{REFLECTION}.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda message: cast(Message, message).SerializeToString(),
        response_deserializer=made("ServerReflectionResponse").FromString,
    )
    [answer] = call(iter([made("ServerReflectionRequest")(**question)]), timeout=SECONDS)
    return answer
