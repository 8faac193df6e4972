"""Limits of the ledger: those that an operator sets, and those that the protocol fixes."""

from __future__ import annotations

from typing import NamedTuple

MAX_CLIENT_CHARACTERS = 256
MAX_NAME_CHARACTERS = 256
MAX_BATCH_KEYS = 1_000
MAX_BULK = 1_000
"""Limit of transactions in one request of many."""
MAX_BULK_OPERATIONS = 10_000
"""Limit of operations in all of them."""
MAX_ANSWER_BYTES = 3 * 1024 * 1024
"""Limit of bytes of values in one batch of reads: gRPC clients accept answers of 4 MiB by default."""
MAX_RANGE_BLOCKS = 1_000
MAX_RANGE_BYTES = 2 * 1024 * 1024
"""Approximate limit of bytes of operations in a range of blocks; a longer range ends early."""
MAX_CHAIN_HEADERS = 10_000
DEFAULT_PAGE = 100
MAX_PAGE = 1_000
MAX_LISTED_ROWS = 10_000
"""Limit of rows that are read for one page of a filtered list; such a page may be short and still have a next one."""
MAX_PAGE_BYTES = 2 * 1024 * 1024
MAX_RECENT_BLOCKS = 1_000
MAX_RECENT_BYTES = 256 * 1024
"""Limit of bytes of blocks above a height up to which a list at that height reads these blocks to find changed keys."""
MAX_TOLD_VALUE_BYTES = 4_096
"""Limit of bytes of the current value that a failed condition returns."""
WATCH_BEHIND = 1_024
PIPELINE = 64
"""A request may wait for earlier ones if it is at most this number of sequences ahead of the last one."""
MAX_SEQUENCE = 2**64 - 1
MAX_TTL_SECONDS = 2**40
MAX_INTERVAL = 2**40


class LedgerLimits(NamedTuple):
    """The limits of one request, as the operator set them."""

    max_key_bytes: int = 1_024
    max_value_bytes: int = 1024 * 1024
    max_resource_characters: int = 512
    max_relation_characters: int = 64
    max_actor_characters: int = 128
    max_operations: int = 1_000
    max_payload_bytes: int = 100 * 1024 * 1024


class LedgerPolicy(NamedTuple):
    """The settings that decisions depend on. The first three are initial values of a new organization."""

    eviction_interval: int = 1_000
    ttl_seconds: int = 86_400
    fence: bool = False
    max_orgs: int = 10_000
    max_vaults: int = 10_000
    writes_per_second: int = 0
