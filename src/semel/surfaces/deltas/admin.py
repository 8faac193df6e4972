"""Calls of administrators over HTTP: schemas, sync rules, flush, sizes, and lists of gateways and clients."""

from __future__ import annotations

import json

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.json.canonical import Integers, Surrogates, canonicalize
from semel.kernel.keys import unpack
from semel.server.auth.principals import Role
from semel.server.http.answer import Answer
from semel.server.thread_pool import apart
from semel.surfaces.deltas.access import SURFACE
from semel.surfaces.deltas.exchange import DeltaRequest, answer_json
from semel.surfaces.deltas.reading import KnownClient, clients, gateways, gauges, subjects_of
from semel.surfaces.deltas.rules.sync_rules import rules_of
from semel.surfaces.deltas.service import DeltaService
from semel.surfaces.deltas.wire.admin import parse_clients, parse_schema
from semel.surfaces.deltas.wire.urls import parse_listing

MOST_SUBJECTS = 100
"""Limit of credentials for which one request forgets a client id."""
SCANNED_NAMES = 1_000
"""Limit of names that one step of a listing reads."""


class DeltaAdmin:
    """The HTTP handlers of admin calls."""

    def __init__(self, service: DeltaService) -> None:
        self._service = service

    async def save_schema(self, request: DeltaRequest) -> Answer:
        """POST: save the columns of a table."""
        schema = await apart(len(request.body), parse_schema, request.body)
        await self._service.save_schema(request.asked, request.gateway, schema)
        return answer_json({"saved": True})

    async def save_rules(self, request: DeltaRequest) -> Answer:
        """POST: save sync rules."""
        rules = await apart(len(request.body), _checked, request.body)
        await self._service.save_rules(request.asked, request.gateway, rules)
        return answer_json({"saved": True})

    async def flush(self, request: DeltaRequest) -> Answer:
        """POST: answer when earlier writes are on disk. Every acknowledged write is on disk already."""
        await self._service.flush(request.asked, request.gateway)
        return answer_json({"flushed": True})

    async def metrics(self, request: DeltaRequest) -> Answer:
        """GET: the sizes of a gateway."""
        found = await self._service.look(lambda reading: gauges(reading, request.gateway))
        return answer_json(
            {
                "logSize": found.log_size,
                "indexSize": found.index_size,
                "byteSize": found.byte_size,
                "deltaCount": found.delta_count,
            }
        )

    async def gateways(self, request: DeltaRequest) -> Answer:
        """GET: the names of the gateways that the caller administers, in stored order."""
        wanted = parse_listing(request.query)
        principal = request.asked.principal

        def look(reading: Reading) -> list[str]:
            found: list[str] = []
            after = wanted.after
            while len(found) <= wanted.limit:
                names = gateways(reading, after, SCANNED_NAMES)
                found += [name for name in names if principal.may(Role.ADMIN, SURFACE, name.encode())]
                if len(names) < SCANNED_NAMES:
                    break
                after = names[-1]
            return found

        names = await self._service.look(look)
        return answer_json({"gateways": names[: wanted.limit], "hasMore": len(names) > wanted.limit})

    async def clients(self, request: DeltaRequest) -> Answer:
        """GET: the known clients; `after` is the `next` of the previous page (pagination)."""
        wanted = parse_listing(request.query)
        after = _key_of(wanted.after)
        found = await self._service.look(lambda reading: clients(reading, request.gateway, after, wanted.limit + 1))
        page = found[: wanted.limit]
        has_more = len(found) > wanted.limit
        return answer_json(
            {
                "clients": [_client_facts(client) for client in page],
                "hasMore": has_more,
                "next": _name_of(page[-1].key) if has_more else None,
            }
        )

    async def forget_clients(self, request: DeltaRequest) -> Answer:
        """POST: forget clients. Their cursors then mean plain log positions; the data that they wrote is unchanged."""
        names = parse_clients(request.body)

        def look(reading: Reading) -> list[tuple[bytes, bytes]]:
            return [key for name in names for key in subjects_of(reading, request.gateway, name, MOST_SUBJECTS)]

        keys = await self._service.look(look)
        return answer_json(
            {"forgotten": await self._service.forget(request.asked, request.gateway, keys) if keys else 0}
        )

    async def connector_types(self, request: DeltaRequest) -> Answer:
        """GET: the kinds of connectors. There are none."""
        return answer_json([])


def _client_facts(client: KnownClient) -> dict[str, object]:
    return {
        "clientId": _text_of(client.key[0]),
        "subject": _text_of(client.key[1]),
        "key": _name_of(client.key),
        "lastSeenMs": client.used_at or None,
        "cursor": str(client.seen),
    }


def _text_of(key: bytes) -> str | None:
    """The id that a key stands for; None for a long id, of which only the hash is stored."""
    name = unpack(key)
    return None if name is None else json.loads(f'"{name.decode()}"')


def _name_of(key: tuple[bytes, bytes]) -> str:
    return f"{key[0].hex()}.{key[1].hex()}"


def _key_of(name: str | None) -> tuple[bytes, bytes]:
    client, _, subject = (name or ".").partition(".")
    try:
        return bytes.fromhex(client), bytes.fromhex(subject)
    except ValueError:
        raise Refused("deltas:VALIDATION_ERROR", "after is the next of the page before.") from None


def _checked(raw: bytes) -> bytes:
    """Sync rules as stored; raise if they are invalid."""
    rules_of(raw)
    return canonicalize(raw, Integers.ROUND, Surrogates.ESCAPE)
