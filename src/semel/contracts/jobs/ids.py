"""Names of jobs: sixteen bytes that sort by creation, shown as a job id or as the UUID of the first request.

Layout, most significant first: 48 bits of milliseconds, version 8, 12 bits and then 20 bits of the job's number around
the variant of a UUID, 42 bits of chance.
"""

from __future__ import annotations

import re

_JOB = re.compile(r"job_([0-9a-f]{32})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
CHANCE_BYTES = 8


def new_id(now_ms: int, number: int, chance: bytes) -> bytes:
    """The id of the job with this number."""
    drawn = int.from_bytes(chance, "big") & (2**42 - 1)
    low = number & 0xFFFFFFFF
    value = now_ms << 80 | 8 << 76 | (low >> 20) << 64 | 2 << 62 | (low & 0xFFFFF) << 42 | drawn
    return value.to_bytes(16, "big")


def job_name(job_id: bytes) -> str:
    """The id on the wire."""
    return "job_" + job_id.hex()


def request_name(job_id: bytes) -> str:
    """The request id on the wire."""
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job(name: str) -> bytes | None:
    """The bytes of an id; None for a name that no job has."""
    found = _JOB.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


def parse_request(name: str) -> bytes | None:
    """The bytes of a request id; None for what is not a UUID."""
    return bytes.fromhex(name.replace("-", "")) if _UUID.fullmatch(name) else None
