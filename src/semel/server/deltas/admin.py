"""What administrators do with gateways over HTTP: schemas, rules, a flush, counts, and their names."""

from __future__ import annotations

from semel.contracts.deltas.reading import gateways, gauges
from semel.contracts.deltas.rules.buckets import rules_of
from semel.contracts.deltas.wire.query import parse_listing
from semel.contracts.deltas.wire.schemas import parse_schema
from semel.engine.reading import Reading
from semel.kernel.canonical import Integers, Surrogates, canonicalize
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import Answer, Request, answer_json
from semel.server.deltas.tokens import SURFACE
from semel.server.principals import Role
from semel.server.threads import apart

SCANNED_NAMES = 1_000
"""So many names are looked at in one step of a listing."""


class Admin:
    """The part of the host that is for operators."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def save_schema(self, request: Request) -> Answer:
        """POST of the columns of a table."""
        schema = await apart(len(request.body), parse_schema, request.body)
        await self._desk.save_schema(request.asked, request.gateway, schema)
        return answer_json({"saved": True})

    async def save_rules(self, request: Request) -> Answer:
        """POST of who sees what."""
        rules = await apart(len(request.body), _checked, request.body)
        await self._desk.save_rules(request.asked, request.gateway, rules)
        return answer_json({"saved": True})

    async def flush(self, request: Request) -> Answer:
        """POST; everything that was answered is on disk anyway."""
        await self._desk.flush(request.asked, request.gateway)
        return answer_json({"flushed": True})

    async def metrics(self, request: Request) -> Answer:
        """GET of how much there is."""
        found = await self._desk.look(lambda reading: gauges(reading, request.gateway))
        return answer_json(
            {
                "logSize": found.log_size,
                "indexSize": found.index_size,
                "byteSize": found.byte_size,
                "deltaCount": found.delta_count,
            }
        )

    async def gateways(self, request: Request) -> Answer:
        """GET of the names of gateways that the caller administers, in the order in which they are stored."""
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

        names = await self._desk.look(look)
        return answer_json({"gateways": names[: wanted.limit], "hasMore": len(names) > wanted.limit})

    async def connector_types(self, request: Request) -> Answer:
        """GET of the kinds of connectors: there are none."""
        return answer_json([])


def _checked(raw: bytes) -> bytes:
    """Rules as they are kept, if they are rules."""
    rules_of(raw)
    return canonicalize(raw, Integers.ROUND, Surrogates.ESCAPE)
