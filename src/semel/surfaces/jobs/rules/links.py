"""What binds a job to other jobs and keys, packed into one column of its row; most jobs have none.

It is written when the job is made, changes rarely, and is read wherever the job's row is: no further row is loaded to
know whether a job has a group. The plain decisions leave every job with links to the full rules.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson


class JobLinks(NamedTuple):
    """The links of one job."""

    single: str = ""
    """The hexadecimal name of its row in JOB_UNIQUE, if it is unique or debounced."""
    key: str = ""
    """The unique or debounce key as its submitter gave it; empty if the payload is the key."""
    is_debounced: bool = False
    kept_until: int = 0
    """The job is not deleted before this time, because its unique key has a window."""
    has_aliases: bool = False
    """Whether further idempotency keys point to it."""
    group: str = ""
    """The hexadecimal id of the job that waits for it: the join of its group, or its parent."""
    child: str = ""
    """Its name, if it is a child."""
    depth: int = 0
    """How many groups it is in, one inside of the other."""
    joins: bool = False
    """Whether it waits for the members of a group."""
    has_children: bool = False


NO_LINKS = JobLinks()


def pack_links(links: JobLinks) -> bytes:
    """The stored form: JSON without the members that have their default; empty if all have."""
    found = {name: value for name, value in links._asdict().items() if value != getattr(NO_LINKS, name)}
    return orjson.dumps(found) if found else b""


def links_of(packed: bytes) -> JobLinks:
    """The links of a row."""
    return _unpacked(packed) if packed else NO_LINKS


@lru_cache(maxsize=1_024)
def _unpacked(packed: bytes) -> JobLinks:
    return JobLinks(**orjson.loads(packed))
