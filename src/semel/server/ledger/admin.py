"""Organizations and vaults over HTTP: create, show, change and delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from semel.contracts.ledger.commands import OrgSettings
from semel.contracts.ledger.listing import orgs, vaults
from semel.contracts.ledger.model import Place, Status
from semel.contracts.ledger.reading import org, vault
from semel.contracts.ledger.wire import answers
from semel.contracts.ledger.wire.query import parse_nothing, parse_page
from semel.contracts.ledger.wire.requests import (
    creation_key,
    parse_org,
    parse_org_change,
    parse_vault,
    parse_vault_change,
)
from semel.engine.reading import Reading
from semel.server.http.answer import Answer
from semel.server.ledger.desk import Desk
from semel.server.ledger.exchange import REPLAYED, Request, answer_json
from semel.server.threads import apart

T = TypeVar("T")


class Admin:
    """The HTTP handlers of admin calls."""

    def __init__(self, desk: Desk, node: str) -> None:
        self._desk = desk
        self._node = node

    async def list_orgs(self, request: Request) -> Answer:
        """The organizations that the caller may read."""
        wanted = parse_page(request.query)

        def look(reading: Reading) -> Answer:
            page = orgs(reading, *wanted, lambda slug: self._desk.sees(request.asked, Place(slug)))
            return answer_json(
                answers.list_json("organizations", [answers.org_json(one) for one in page.items], page.token)
            )

        return await self._desk.look(request.asked, None, look)

    async def make_org(self, request: Request) -> Answer:
        """A new organization."""
        parse_nothing(request.query)
        draft, key = await _parsed(request, parse_org), creation_key(request.fields)
        made = await self._desk.make_org(request.asked, draft.name, key, draft.quota)
        return answer_json(answers.made_org_json(made.place), 200, *((REPLAYED,) if made.is_replay else ()))

    async def show_org(self, request: Request) -> Answer:
        """One organization, a deleted one too."""
        parse_nothing(request.query)

        def look(reading: Reading) -> Answer:
            return answer_json(answers.org_json(org(reading, request.place.org)))

        return await self._desk.look(request.asked, request.place, look)

    async def change_org(self, request: Request) -> Answer:
        """Other settings, another status."""
        parse_nothing(request.query)
        settings = await _parsed(request, parse_org_change)
        changed = await self._desk.change_org(request.asked, request.place.org, settings)
        return answer_json(answers.org_json(changed))

    async def end_org(self, request: Request) -> Answer:
        """No more of it."""
        parse_nothing(request.query)
        await self._desk.change_org(request.asked, request.place.org, OrgSettings(status=Status.DELETED))
        return answer_json({})

    async def list_vaults(self, request: Request) -> Answer:
        """The vaults of an organization that the caller may read."""
        wanted = parse_page(request.query)

        def look(reading: Reading) -> Answer:
            page = vaults(reading, request.place.org, *wanted, lambda place: self._desk.sees(request.asked, place))
            told = [answers.vault_json(one, self._node) for one in page.items]
            return answer_json(answers.list_json("vaults", told, page.token))

        return await self._desk.look(request.asked, request.place, look)

    async def make_vault(self, request: Request) -> Answer:
        """A new vault."""
        parse_nothing(request.query)
        retain, key = await _parsed(request, parse_vault), creation_key(request.fields)
        made = await self._desk.make_vault(request.asked, request.place.org, retain, key)
        told = answers.made_vault_json(made.place, made.header)
        return answer_json(told, 200, *((REPLAYED,) if made.is_replay else ()))

    async def show_vault(self, request: Request) -> Answer:
        """One vault, a deleted one too."""
        parse_nothing(request.query)

        def look(reading: Reading) -> Answer:
            return answer_json(answers.vault_json(vault(reading, request.place), self._node))

        return await self._desk.look(request.asked, request.place, look)

    async def change_vault(self, request: Request) -> Answer:
        """Another status."""
        parse_nothing(request.query)
        status = await _parsed(request, parse_vault_change)
        changed = await self._desk.change_vault(request.asked, request.place, status)
        return answer_json(answers.vault_json(changed, self._node))

    async def end_vault(self, request: Request) -> Answer:
        """No more of it."""
        parse_nothing(request.query)
        await self._desk.change_vault(request.asked, request.place, Status.DELETED)
        return answer_json({})


async def _parsed(request: Request, parse: Callable[[bytes], T]) -> T:
    return await apart(request.body.size, parse, request.body.take())
