"""Protobuf messages of the standard health and reflection services.

They live in a pool of their own: other packages have modules for the same names, and the usual pool takes each name
once.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_MADE = "standard.binpb"


@cache
def standard_files() -> tuple[FileDescriptor, ...]:
    """The descriptions of health and reflection, as the build has laid them down."""
    content = files("semel.server.ledger.proto").joinpath(_MADE).read_bytes()
    pool = DescriptorPool()
    described = FileDescriptorSet.FromString(content).file
    for one in described:
        pool.AddSerializedFile(one.SerializeToString())
    return tuple(pool.FindFileByName(one.name) for one in described)


@cache
def standard_class(full_name: str) -> Any:
    """The class of a message."""
    package, _, name = full_name.rpartition(".")
    file = next(one for one in standard_files() if one.package == package)
    return GetMessageClass(file.message_types_by_name[name])
