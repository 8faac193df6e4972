"""Ids of jobs: 16 bytes that sort by creation, written as a job id or as the UUID of the first request.

Layout, most significant bits first: 48 bits of milliseconds, the UUID version 8, 12 bits of the job's number, the UUID
variant, 20 bits of the job's number, 42 random bits.

An imported job keeps its id from the other store: its bytes are 16 such bytes, followed by the letters and digits of
that id. So the bytes determine the written id, and their length tells jobs of this store, with 16 bytes, from imported
ones. The table JOB_NAME maps an imported id to its bytes.
"""

from __future__ import annotations

import re
from struct import Struct

_JOB = re.compile(r"job_([0-9a-f]{32})")
_OWN = re.compile(r"job_([0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15})")
_ANY = re.compile(r"job_([A-Za-z0-9]{1,60})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:[0-9a-f]{2}){16,76}")
_packed = Struct(">QQ").pack
_from_bytes = int.from_bytes
_DRAWN = 2**42 - 1
CHANCE_BYTES = 8
REQUEST_BYTES = 16
"""Length of the request id at the start of an id; the name of an imported job follows."""


def new_id(now_ms: int, number: int, chance: bytes) -> bytes:
    """The id of the job with this number."""
    low = number & 0xFFFFFFFF
    drawn = _from_bytes(chance, "big") & _DRAWN
    return _packed(now_ms << 16 | 0x8000 | low >> 20, 1 << 63 | (low & 0xFFFFF) << 42 | drawn)


def job_name(job_id: bytes) -> str:
    """The id on the wire."""
    return "job_" + (foreign_name(job_id).decode() or job_id.hex())


def foreign_name(job_id: bytes) -> bytes:
    """The part after `job_` in the id of an imported job; empty for a job of this store."""
    return job_id[REQUEST_BYTES:]


def request_name(job_id: bytes) -> str:
    """The request id on the wire."""
    digits = job_id[:REQUEST_BYTES].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_own(name: str) -> bytes | None:
    """The bytes of an id with the layout of this store; None for any other id."""
    found = _OWN.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


def parse_job(name: str) -> bytes | None:
    """The bytes of an id of 32 hexadecimal digits; None for any other id."""
    found = _JOB.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


def parse_foreign(name: str) -> bytes | None:
    """The part after `job_` in an id from any store; None for an impossible id."""
    found = _ANY.fullmatch(name)
    return None if found is None else found[1].encode()


def parse_request(name: str) -> bytes | None:
    """The bytes of a request id; None if it is not a UUID."""
    return bytes.fromhex(name.replace("-", "")) if _UUID.fullmatch(name) else None


def parse_digits(text: str) -> bytes | None:
    """The bytes of an id in a cursor; None if they are not hexadecimal digits."""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else None
