"""gRPC reflection: tools query services and message types, and need no proto files.

Version 1 and v1alpha have the same messages; both are answered. The messages of health and reflection are in a separate
descriptor pool: other packages have modules for the same names, and the default pool accepts each name once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from semel.kernel.errors import Grpc
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import OPEN_BYTES, unpack
from semel.server.grpc.metadata import invalid_message

_PACKAGES = (b"grpc.reflection.v1", b"grpc.reflection.v1alpha")
_STANDARD = "standard.binpb"


@cache
def standard_files() -> tuple[FileDescriptor, ...]:
    """The descriptors of health and reflection, compiled at build time."""
    content = files("semel.server.grpc.proto").joinpath(_STANDARD).read_bytes()
    pool = DescriptorPool()
    described = FileDescriptorSet.FromString(content).file
    for one in described:
        pool.AddSerializedFile(one.SerializeToString())
    return tuple(pool.FindFileByName(one.name) for one in described)


@cache
def standard_class(full_name: str) -> Any:
    """The class of a message of health or reflection."""
    package, _, name = full_name.rpartition(".")
    file = next(one for one in standard_files() if one.package == package)
    return GetMessageClass(file.message_types_by_name[name])


class Reflection:
    """Answers with the files that describe this server, and the files that they import."""

    def __init__(self, *served: FileDescriptor) -> None:
        """`served` are the files of the services other than health and reflection."""
        self._own = (*served, *standard_files())
        self._by_name: dict[str, FileDescriptor] = {}
        for file in self._own:
            self._gather(file)
        self._by_symbol = {symbol: file for file in self._by_name.values() for symbol in _symbols(file)}
        self._request = standard_class("grpc.reflection.v1.ServerReflectionRequest")
        self._response = standard_class("grpc.reflection.v1.ServerReflectionResponse")

    @property
    def services(self) -> list[str]:
        """The full names of all services."""
        return sorted(service.full_name for file in self._own for service in file.services_by_name.values())

    def methods(self) -> Iterator[GrpcMethod]:
        """The one method, under both names."""
        for package in _PACKAGES:
            path = b"/%s.ServerReflection/ServerReflectionInfo" % package
            yield GrpcMethod(path, bytes, self._answer_all, is_open=True, takes_many=True, max_bytes=OPEN_BYTES)

    async def _answer_all(self, call: GrpcCall, _: None) -> None:
        call.begin()
        while (framed := await call.next_message()) is not None:
            try:
                request = self._request.FromString(bytes(unpack(framed, call.encoding, call.max_bytes)))
            except DecodeError:
                raise invalid_message("The message cannot be read as a request for reflection.", "message") from None
            await call.send(self.answer(request).SerializeToString())

    def answer(self, request: Any) -> Any:
        """The answer to one request, which is echoed in it."""
        told = self._response(original_request=request)
        told.valid_host = told.original_request.host
        asked = told.original_request
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            for name in self.services:
                told.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            self._tell_file(told, self._by_name.get(asked.file_by_filename))
        elif kind == "file_containing_symbol":
            self._tell_file(told, self._by_symbol.get(asked.file_containing_symbol))
        elif kind == "all_extension_numbers_of_type" and asked.all_extension_numbers_of_type in self._by_symbol:
            told.all_extension_numbers_response.base_type_name = asked.all_extension_numbers_of_type
        elif kind is None:
            self._tell_error(told, Grpc.INVALID_ARGUMENT, "The request names nothing to look up.")
        else:
            self._tell_error(told, Grpc.NOT_FOUND, "There is no such extension or type here.")
        return told

    def _tell_file(self, told: Any, file: FileDescriptor | None) -> None:
        """A file followed by all its imports, each once."""
        if file is None:
            self._tell_error(told, Grpc.NOT_FOUND, "There is no such file or symbol here.")
            return
        found: dict[str, bytes] = {}
        waiting = [file]
        while waiting:
            one = waiting.pop()
            if one.name not in found:
                found[one.name] = one.serialized_pb
                waiting.extend(one.dependencies)
        told.file_descriptor_response.file_descriptor_proto.extend(found.values())

    def _tell_error(self, told: Any, kind: Grpc, message: str) -> None:
        told.error_response.error_code = kind.value
        told.error_response.error_message = message

    def _gather(self, file: FileDescriptor) -> None:
        self._by_name[file.name] = file
        for one in file.dependencies:
            self._gather(one)


def _symbols(file: FileDescriptor) -> Iterator[str]:
    """All full names that a file defines."""
    for service in file.services_by_name.values():
        yield service.full_name
        yield from (method.full_name for method in service.methods)
    for enum in file.enum_types_by_name.values():
        yield enum.full_name
    for message in file.message_types_by_name.values():
        yield from _symbols_within(message)


def _symbols_within(message: Descriptor) -> Iterator[str]:
    yield message.full_name
    yield from (field.full_name for field in message.fields)
    yield from (enum.full_name for enum in message.enum_types)
    for nested in message.nested_types:
        yield from _symbols_within(nested)
