"""The identities of writes that `bench.find` asks for, by surface: what a caller sends for the receipt of a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.find_numbers import delta_of, hlc_of, job_of, key_of, place_of, scope_of, transaction_of
from semel.surfaces.jobs.ids import job_name, request_name


class AskedIdentity(NamedTuple):
    """A way to ask for a receipt."""

    name: str
    identity: Callable[[int, int], str]
    """The identity of a receipt by its number and the number of scopes."""
    place: Callable[[int, int], str] | None = None
    """Where it is looked for; None for anywhere."""


def _scope(number: int, scopes: int) -> str:
    return scope_of(number % scopes)


def _place(number: int, scopes: int) -> str:
    org, vault = place_of(number % scopes)
    return f"{org}/{vault}"


def _client(number: int, scopes: int) -> str:
    return f"client-{number % scopes:06d}"


def _height(number: int, scopes: int) -> str:
    return str(number // scopes + 1)


def _key(number: int, scopes: int) -> str:
    return key_of(number)


def _transaction(number: int, scopes: int) -> str:
    return transaction_of(number, scopes).hex()


def _sequence(number: int, scopes: int) -> str:
    return f"{_client(number, scopes)}/{_height(number, scopes)}"


def _delta(number: int, scopes: int) -> str:
    return delta_of(number).hex()


def _delta_at(number: int, scopes: int) -> str:
    return f"{delta_of(number).hex()}@{hlc_of(number)}"


WAYS: Mapping[str, Sequence[AskedIdentity]] = {
    "streams": (
        AskedIdentity("key, stream named", _key, _scope),
        AskedIdentity("key", _key),
        AskedIdentity("producer, stream named", lambda number, scopes: f"producer-{number % scopes:06d}", _scope),
        AskedIdentity("producer", lambda number, scopes: f"producer-{number % scopes:06d}"),
        AskedIdentity("name of a stream", _scope),
    ),
    "events": (
        AskedIdentity("event id", _key),
        AskedIdentity("event id, partition named", _key, _scope),
        AskedIdentity("committed id", lambda number, scopes: str(number + 1)),
    ),
    "jobs": (
        AskedIdentity("key, principal named", _key, _scope),
        AskedIdentity("key", _key),
        AskedIdentity("job id", lambda number, scopes: job_name(job_of(number))),
        AskedIdentity("request id", lambda number, scopes: request_name(job_of(number))),
    ),
    "ledger": (
        AskedIdentity("transaction id, vault named", _transaction, _place),
        AskedIdentity("transaction id", _transaction),
        AskedIdentity("key, vault named", _key, _place),
        AskedIdentity("key", _key),
        AskedIdentity("CLIENT/SEQUENCE, vault named", _sequence, _place),
        AskedIdentity("CLIENT/SEQUENCE", _sequence),
        AskedIdentity("height, vault named", _height, _place),
    ),
    "deltas": (
        AskedIdentity("ID@HLC, gateway named", _delta_at, _scope),
        AskedIdentity("ID@HLC", _delta_at),
        AskedIdentity("ID, gateway named", _delta, _scope),
        AskedIdentity("ID", _delta),
    ),
}
"""A receipt is known if its number is below the number of receipts."""
