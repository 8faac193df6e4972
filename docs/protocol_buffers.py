"""The reference of gRPC: services, messages and enumerations from the compiled descriptors, words from the comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from semel.surfaces.ledger.proto import ledger_pb2

SOURCE = Path(ledger_pb2.__file__).with_name("ledger.proto")
FILE = ledger_pb2.DESCRIPTOR
TYPES = {
    FieldDescriptor.TYPE_BOOL: "bool", FieldDescriptor.TYPE_BYTES: "bytes", FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32", FieldDescriptor.TYPE_INT64: "int64", FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32", FieldDescriptor.TYPE_UINT64: "uint64",
}  # fmt: skip


def comments(text: str) -> dict[str, str]:
    """The comment above or behind each name, by the path of the name: `Message.field`."""
    found: dict[str, str] = {}
    path: list[str] = []
    waiting: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("//"):
            waiting.append(line.removeprefix("//").strip())
            continue
        code, _, behind = line.partition("//")
        named = re.match(r"(?:message|enum|service|oneof|rpc) (\w+)|.*?(\w+) = \d+", code)
        if named:
            name = named[1] or named[2]
            words = " ".join([*waiting, behind.strip()]).strip()
            if words and not words.startswith("----"):
                found[".".join([*path, name])] = words
        if code.rstrip().endswith("{"):
            is_hidden = code.startswith("oneof ")
            path.append("" if is_hidden or named is None else named[1] or "")
        path = path[: len(path) - code.count("}") + code.count("{}")] if "}" in code else path
        waiting = []
    return {re.sub(r"\.\.+", ".", name).strip("."): words for name, words in found.items()}


def grpc_services() -> Iterator[str]:
    """A table for each service."""
    words = comments(SOURCE.read_text("utf-8"))
    for number, service in enumerate(FILE.services_by_name.values()):
        yield from ([""] if number else [])
        yield from (f"### {service.full_name}", "")
        yield from (words[service.name], "") if service.name in words else ()
        yield from ("| call | request | answer | meaning |", "|---|---|---|---|")
        for method in service.methods:
            asks = ("stream of " if method.client_streaming else "") + f"`{method.input_type.name}`"
            gets = ("stream of " if method.server_streaming else "") + f"`{method.output_type.name}`"
            yield _row(f"`{method.name}`", asks, gets, words.get(f"{service.name}.{method.name}", ""))


def grpc_messages() -> Iterator[str]:
    """A table for each message, and one for each enumeration."""
    words = comments(SOURCE.read_text("utf-8"))
    is_first = True
    for message in FILE.message_types_by_name.values():
        yield from ([] if is_first else [""])
        is_first = False
        yield from _message(message, words)
    for enum in FILE.enum_types_by_name.values():
        yield ""
        yield from _enum(enum, words)


def _message(message: Descriptor, words: Mapping[str, str]) -> Iterator[str]:
    name = message.full_name.removeprefix(f"{FILE.package}.")
    yield from (f"### {name}", "")
    if words.get(name):
        yield from (words[name], "")
    if message.fields:
        yield from ("| field | number | type | meaning |", "|---|---|---|---|")
        for field in message.fields:
            yield _row(f"`{field.name}`", str(field.number), _type(field), words.get(f"{name}.{field.name}", ""))
    else:
        yield "It has no fields."
    for nested in message.nested_types:
        yield ""
        yield from _message(nested, words)
    for enum in message.enum_types:
        yield ""
        yield from _enum(enum, words)


def _enum(enum: EnumDescriptor, words: Mapping[str, str]) -> Iterator[str]:
    name = enum.full_name.removeprefix(f"{FILE.package}.")
    yield from (f"### {name}", "")
    yield from (words[name], "") if name in words else ()
    yield from ("| value | number | meaning |", "|---|---|---|")
    for value in enum.values:
        yield _row(f"`{value.name}`", str(value.number), words.get(f"{name}.{value.name}", ""))


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        kind = field.message_type.full_name.removeprefix(f"{FILE.package}.")
    elif field.enum_type is not None:
        kind = field.enum_type.full_name.removeprefix(f"{FILE.package}.")
    else:
        kind = TYPES[field.type]
    group = field.containing_oneof
    choice = f", one of {group.name}" if group is not None and not group.name.startswith("_") else ""
    return f"{'repeated ' if field.is_repeated else ''}`{kind}`{choice}"


def _row(*cells: str) -> str:
    return "".join(f"| {cell.replace('|', chr(92) + '|')} " if cell else "| " for cell in cells) + "|"
