"""Everything that the ledger holds at the end of a run, read over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from urllib.parse import quote

from semel.surfaces.ledger.model import BlockHeader, Entity, LedgerPlace, LedgerTransaction
from tests.harness.together import eventually
from tests.ledger.crash.documents import TIPS, Json, path_of, read_entity, read_header, read_transaction
from tests.ledger.crash.verdict import Chain
from tests.ledger.crash.writer import LedgerLine
from tests.ledger.model.hashing import relationship_key

PAGE = 500
NOTHING_LEFT = "the server has removed all that has expired"


class Reader:
    """One place after the other."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._line = LedgerLine(ports, Random(1))

    def chain(self, place: LedgerPlace, retain: int, clients: Sequence[str]) -> Chain:
        """A place, whole."""
        path = path_of(place)
        every = f"{path}/entities?limit={PAGE}&includeExpired=true"
        eventually(lambda: not any(read_entity(one).expires_at for one in self._pages(every, "entities")), NOTHING_LEFT)
        tip = self._get(f"{path}/tip")
        headers: list[BlockHeader] = []
        bodies: dict[int, LedgerTransaction] = {}
        while len(headers) < int(tip["height"]):
            start = len(headers) + 1
            for block in self._get(f"{path}/blocks?from={start}&to={start + PAGE - 1}")["blocks"]:
                headers.append(read_header(block["header"]))
                for transaction in block.get("transactions", ()):
                    bodies[headers[-1].height] = read_transaction(transaction)
        entities = [read_entity(item) for item in self._pages(every, "entities")]
        if place.vault:
            entities += map(_related, self._pages(f"{path}/relationships?limit={PAGE}", "relationships"))
        states = {client: self._get(f"{path}/clients/{quote(client, safe='')}/state") for client in clients}
        return Chain(place, retain, headers, bodies, tip, entities, states)

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    def _get(self, path: str) -> Json:
        heard = self._line.hear("GET", path)
        assert heard.status == 200, f"{path} was answered {heard.status} {heard.body}"
        return heard.body

    def _pages(self, path: str, name: str) -> Iterator[Json]:
        page = self._get(path)
        yield from page.get(name, ())
        while page["nextPageToken"]:
            page = self._get(f"{path}&pageToken={quote(page['nextPageToken'], safe='')}")
            yield from page.get(name, ())


def _related(item: Json) -> Entity:
    """No list tells at which height a relationship was made."""
    return Entity(relationship_key(*(item[tip].encode() for tip in TIPS)), b"", 0, 0)
