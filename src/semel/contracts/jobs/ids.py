"""Job ids: sixteen bytes that sort by creation, shown as a job id or as the UUID of the first request.

Layout, most significant first: 48 bits of milliseconds, version 8, 12 bits and then 20 bits of the job's number around
the variant of a UUID, 42 bits of chance.

A job that was imported keeps the id of the store that it came from: its bytes are those sixteen, and behind them the
letters and digits of that id. So everything that has a job's bytes can tell its id, and no job of ours, which has
sixteen bytes, can be taken for another one. The way back, from such an id to the bytes, is a row of JOB_NAME.
"""

from __future__ import annotations

import re

_JOB = re.compile(r"job_([0-9a-f]{32})")
_OWN = re.compile(r"job_([0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15})")
_ANY = re.compile(r"job_([A-Za-z0-9]{1,60})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:[0-9a-f]{2}){16,76}")
CHANCE_BYTES = 8
REQUEST_BYTES = 16
"""The bytes of an id that are the request id; a foreign name, if any, follows them."""


def new_id(now_ms: int, number: int, chance: bytes) -> bytes:
    """The id of the job with this number."""
    drawn = int.from_bytes(chance, "big") & (2**42 - 1)
    low = number & 0xFFFFFFFF
    value = now_ms << 80 | 8 << 76 | (low >> 20) << 64 | 2 << 62 | (low & 0xFFFFF) << 42 | drawn
    return value.to_bytes(16, "big")


def job_name(job_id: bytes) -> str:
    """The id on the wire."""
    return "job_" + (foreign_name(job_id).decode() or job_id.hex())


def foreign_name(job_id: bytes) -> bytes:
    """The part after `job_` in the id of a job from another store; empty for one of ours."""
    return job_id[REQUEST_BYTES:]


def request_name(job_id: bytes) -> str:
    """The request id on the wire."""
    digits = job_id[:REQUEST_BYTES].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_own(name: str) -> bytes | None:
    """The bytes of an id of the form that ids made here have; None for another one."""
    found = _OWN.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


def parse_job(name: str) -> bytes | None:
    """The bytes of an id that is nothing but their digits; None for another one."""
    found = _JOB.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


def parse_foreign(name: str) -> bytes | None:
    """What follows `job_` in an id, whichever system made it; None for a name that no job has."""
    found = _ANY.fullmatch(name)
    return None if found is None else found[1].encode()


def parse_request(name: str) -> bytes | None:
    """The bytes of a request id; None for what is not a UUID."""
    return bytes.fromhex(name.replace("-", "")) if _UUID.fullmatch(name) else None


def parse_digits(text: str) -> bytes | None:
    """The bytes of an id in a cursor."""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else None
