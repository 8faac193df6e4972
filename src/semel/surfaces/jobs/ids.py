"""Ids of jobs: 16 bytes that sort by creation, written as a job id or as the UUID of the first request.

Layout, most significant bits first: 48 bits of milliseconds, the UUID version 8, 12 bits of the job's number, the UUID
variant, 20 bits of the job's number, 42 random bits.
"""

from __future__ import annotations

import re
from struct import Struct

_JOB = re.compile(r"job_([0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-f]{32}")
_packed = Struct(">QQ").pack
_from_bytes = int.from_bytes
_DRAWN = 2**42 - 1
CHANCE_BYTES = 8


def new_id(now_ms: int, number: int, chance: bytes) -> bytes:
    """The id of the job with this number."""
    low = number & 0xFFFFFFFF
    drawn = _from_bytes(chance, "big") & _DRAWN
    return _packed(now_ms << 16 | 0x8000 | low >> 20, 1 << 63 | (low & 0xFFFFF) << 42 | drawn)


def job_name(job_id: bytes) -> str:
    """The id on the wire."""
    return "job_" + job_id.hex()


def request_name(job_id: bytes) -> str:
    """The request id on the wire."""
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job(name: str) -> bytes | None:
    """The bytes of a job id; None if no job can have it."""
    found = _JOB.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


def parse_request(name: str) -> bytes | None:
    """The bytes of a request id; None if it is not a UUID."""
    return bytes.fromhex(name.replace("-", "")) if _UUID.fullmatch(name) else None


def parse_digits(text: str) -> bytes | None:
    """The bytes of an id in a cursor; None if they are not hexadecimal digits."""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else None
