"""Content codings of reads: what a client accepts, what is worth compressing, and the compressors.

`Accept-Encoding` decides. The coding with the highest weight wins; of equal ones zstd, then gzip, then none. A name
that is not listed is not used, except that `*` stands for gzip. A client without the header gets the content as stored.
"""

from __future__ import annotations

import re
import sys
import zlib
from functools import lru_cache
from typing import NamedTuple

from semel.kernel.header_fields import HeaderFields
from semel.surfaces.streams.rules.media_type import essence
from semel.surfaces.streams.rules.offsets import GZIP, IDENTITY, ZSTD

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSED_FROM_BYTES = 1_024
"""Smaller content is sent as stored."""
_LEVEL = 1
"""Of both codings: gzip at 6 takes twice the time for a seventh less, and zstd at 3 saves nothing more."""
_GZIP_FORMAT = 31
"""For zlib: the largest window, in the format of gzip."""
MAX_ACCEPT_BYTES = 512
"""A longer `Accept-Encoding` is ignored."""

_WEIGHT = re.compile(rb"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
_LEAST = 0.0001
"""The weight of content as stored if the header does not name it: acceptable, below all that it names."""

_PACKED_KINDS = (b"image/", b"audio/", b"video/", b"font/")
_PACKED_TYPES = frozenset(
    b"application/" + name
    for name in (
        b"gzip", b"x-gzip", b"zip", b"zstd", b"x-zstd", b"x-bzip2", b"x-xz", b"x-7z-compressed", b"vnd.rar",
        b"x-brotli", b"pdf", b"java-archive", b"vnd.apache.parquet",
    )
)  # fmt: skip
_PLAIN_IMAGES = frozenset((b"image/svg+xml", b"image/bmp"))


class AcceptedCodings(NamedTuple):
    """The codings that a client accepts, the best one first; `IDENTITY` is the content as stored."""

    names: tuple[bytes, ...] = (IDENTITY,)

    @property
    def must_compress(self) -> bool:
        """Whether the client refuses the content as stored."""
        return IDENTITY not in self.names


AS_STORED = AcceptedCodings()


def accepted_codings(fields: HeaderFields) -> AcceptedCodings:
    """What the `Accept-Encoding` of a request accepts."""
    header = fields.get(b"accept-encoding")
    if header is None:
        return AS_STORED
    return parse_codings(b",".join(fields.all(b"accept-encoding")))


@lru_cache(256)
def parse_codings(header: bytes) -> AcceptedCodings:
    """What an `Accept-Encoding` accepts. If that is nothing this server can send, the content goes as stored."""
    if len(header) > MAX_ACCEPT_BYTES:
        return AS_STORED
    weights: dict[bytes, float] = {}
    for part in header.lower().split(b","):
        name, *parameters = (piece.strip() for piece in part.split(b";"))
        weights[b"gzip" if name == b"x-gzip" else name] = _weight(parameters)
    rest = weights.get(b"*", _LEAST)
    known = {
        ZSTD: weights.get(ZSTD, 0.0),
        GZIP: weights.get(GZIP, rest if b"*" in weights else 0.0),
        IDENTITY: weights.get(b"identity", min(rest, _LEAST)),
    }
    names = sorted((name for name, weight in known.items() if weight), key=lambda name: -known[name])
    return AcceptedCodings(tuple(names)) if names else AS_STORED


def _weight(parameters: list[bytes]) -> float:
    """The weight of one coding; a malformed one is that of a coding that is not accepted."""
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            found = _WEIGHT.fullmatch(value.strip())
            return 0.0 if found is None else float(found.group())
    return 1.0


def is_compressible(content_type: bytes) -> bool:
    """Whether content of this type is worth compressing: images, sound, video, fonts and archives are already small."""
    kind = essence(content_type)
    return (not kind.startswith(_PACKED_KINDS) and kind not in _PACKED_TYPES) or kind in _PLAIN_IMAGES


def compress(coding: bytes, content: bytes) -> bytes:
    """The content in a coding; the same bytes every time."""
    if coding == ZSTD:
        return zstd.compress(content, _LEVEL)
    return zlib.compress(content, _LEVEL, _GZIP_FORMAT)
