"""The identities of the receipts that `bench.find` fills a store with, as functions of their numbers.

Receipt `n` is in scope `n % scopes`.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

from semel.surfaces.jobs.ids import new_id
from semel.surfaces.ledger.rules.commits import transaction_id

BEGAN_MS = 1_700_000_000_000
PLACES_OF_ORG = 10
"""Places of an organization: its own, and its vaults."""


def key_of(number: int) -> str:
    return str(UUID(bytes=sha256(b"key %d" % number).digest()[:16], version=4))


def scope_of(number: int) -> str:
    return f"filled/{number:06d}"


def delta_of(number: int) -> bytes:
    return sha256(b"delta %d" % number).digest()


def hlc_of(number: int) -> int:
    return (BEGAN_MS + number) << 16


def job_of(number: int) -> bytes:
    return new_id(BEGAN_MS, number, sha256(b"job %d" % number).digest()[:8])


def place_of(scope: int) -> tuple[int, int]:
    return 1 + scope // PLACES_OF_ORG, scope % PLACES_OF_ORG


def transaction_of(number: int, scopes: int) -> bytes:
    return transaction_id(number // scopes + 1, sha256(b"transaction %d" % number).digest()[:10])
