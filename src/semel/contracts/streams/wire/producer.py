"""Parsing of the three producer headers: all or none."""

from __future__ import annotations

import re

from semel.contracts.fields import Fields
from semel.contracts.streams.commands import ProducerClaim
from semel.kernel.errors import Refused
from semel.kernel.keys import pack
from semel.kernel.producers import MAX_NUMBER

MAX_ID_BYTES = 256

_DIGITS = re.compile(rb"[0-9]{1,16}")


def parse_producer(fields: Fields) -> ProducerClaim | None:
    """The claim in these headers, None without them."""
    one = fields.one
    if b"producer-id" not in one and b"producer-epoch" not in one and b"producer-seq" not in one:
        return None
    name, epoch, seq = (
        fields.single(header, "INVALID_PRODUCER") for header in (b"producer-id", b"producer-epoch", b"producer-seq")
    )
    if name is None or epoch is None or seq is None:
        raise Refused("INVALID_PRODUCER", "Send Producer-Id, Producer-Epoch and Producer-Seq together.")
    if not 1 <= len(name) <= MAX_ID_BYTES:
        raise Refused("INVALID_PRODUCER", f"Producer-Id has 1 to {MAX_ID_BYTES} bytes.")
    return ProducerClaim(name, pack(name), _number(epoch, "Producer-Epoch"), _number(seq, "Producer-Seq"))


def _number(text: bytes, header: str) -> int:
    if _DIGITS.fullmatch(text) is None or int(text) > MAX_NUMBER:
        raise Refused("INVALID_PRODUCER", f"{header} is a whole number from 0 to 2^53-1.")
    return int(text)
