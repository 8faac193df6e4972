"""Lists with pagination: entities, relationships, resources, organizations, vaults.

All pages of a list show the state of one height: that of the first page, or the one asked for. At the current height
what was deleted is not looked at. A page costs at most 20 statements of a database, however many items it has. A filter
that leaves out much ends a page early, with a token for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from semel.contracts.ledger.commands import Org, Vault
from semel.contracts.ledger.limits import MAX_LISTED_ROWS, MAX_PAGE_BYTES
from semel.contracts.ledger.model import Entity, Place
from semel.contracts.ledger.paging import Mark, Page, page_size, read_token, write_token
from semel.contracts.ledger.reading import entities_of, height_to_read, org, seconds_at, tip_row
from semel.contracts.ledger.refusals import invalid
from semel.contracts.ledger.rules.encoding import relationship_prefix, split_relationship
from semel.contracts.ledger.rules.operations import is_expired
from semel.contracts.ledger.rules.records import org_of, vault_of
from semel.contracts.ledger.tables import LEDGER_ORG, LEDGER_PLACE, RELATIONSHIPS_END
from semel.contracts.ledger.walk import StateRow, Stretch, Walk, after_prefix, next_key, stretches
from semel.engine.reading import Reading
from semel.store.protocol import Range

T = TypeVar("T")

Triple = tuple[bytes, bytes, bytes]
FIRST_VAULTS = 256


def list_entities(
    reading: Reading, place: Place, prefix: bytes, at_height: int | None, include_expired: bool, limit: int, token: str
) -> Page[Entity]:
    """The entities whose keys begin with a prefix."""
    asked = [b"entities", b"%d/%d" % place, prefix, b"%d" % include_expired, b"%d" % (at_height or 0)]
    walk, size = _begin(reading, place, prefix, at_height, limit, asked, token)
    walk = walk._replace(start=max(walk.start, RELATIONSHIPS_END))
    now = seconds_at(reading, place, at_height or None)

    def take(row: StateRow) -> StateRow | None:
        return row if include_expired or not is_expired(row.expires_at, now) else None

    def weigh(row: StateRow) -> int:
        return len(row.key) + row.size

    page: Page[StateRow] = _page(reading, walk, size, asked, take, weigh)
    return Page(entities_of(reading, page.items), page.height, page.token)


def list_relationships(
    reading: Reading,
    place: Place,
    resource: bytes | None,
    relation: bytes | None,
    subject: bytes | None,
    at_height: int | None,
    limit: int,
    token: str,
) -> Page[Triple]:
    """The relationships with these parts."""
    _needs_vault(place)
    wanted = (resource, relation, subject)
    filters = [b"-" if part is None else b"=" + part for part in wanted]
    asked = [b"relationships", b"%d/%d" % place, *filters, b"%d" % (at_height or 0)]
    known = [part for part in (resource, relation) if part is not None] if resource is not None else []
    walk, size = _begin(reading, place, relationship_prefix(*known), at_height, limit, asked, token)
    walk = walk._replace(subject=subject)

    def take(row: StateRow) -> Triple | None:
        parts = split_relationship(row.key)
        is_wanted = all(want is None or want == part for want, part in zip(wanted, parts, strict=True))
        return parts if is_wanted else None

    return _page(reading, walk, size, asked, take, lambda parts: sum(map(len, parts)))


def list_resources(
    reading: Reading, place: Place, resource_type: bytes, at_height: int | None, limit: int, token: str
) -> Page[bytes]:
    """The resources of a type that have a relationship, each once."""
    _needs_vault(place)
    asked = [b"resources", b"%d/%d" % place, resource_type, b"%d" % (at_height or 0)]
    walk, size = _begin(reading, place, relationship_prefix(), at_height, limit, asked, token)
    last: bytes | None = None

    def take(row: StateRow) -> bytes | None:
        nonlocal last
        resource = split_relationship(row.key)[0]
        if resource == last or (resource_type and resource.partition(b":")[0] != resource_type):
            return None
        last = resource
        return resource

    def rest(key: bytes) -> bytes:
        """The start of the next page: behind all relationships of the resource, so that none is repeated."""
        is_told = split_relationship(key)[0] == last
        return after_prefix(relationship_prefix(last)) if is_told and last is not None else next_key(key)

    return _page(reading, walk, size, asked, take, len, rest)


def orgs(reading: Reading, limit: int, token: str, reach: Callable[[int], bool] = lambda slug: True) -> Page[Org]:
    """The organizations that a caller reaches, by slug."""
    asked = [b"orgs"]
    size, mark = page_size(limit), read_token(reading, asked, token)
    start = (int(mark.start) + 1,) if mark else ()
    found: list[Org] = []
    rows = reading.range(Range(LEDGER_ORG, "", (), MAX_LISTED_ROWS, start=start))
    for row in rows:
        if reach(row.org):
            found.append(org_of(row))
        if len(found) == size:
            break
    else:
        if len(rows) < MAX_LISTED_ROWS:
            return Page(found, 0, "")
    last = found[-1].slug if len(found) == size else rows[-1].org
    return Page(found, 0, write_token(reading, asked, Mark(0, b"%d" % last)))


def vaults(
    reading: Reading, slug: int, limit: int, token: str, reach: Callable[[Place], bool] = lambda place: True
) -> Page[Vault]:
    """The vaults of an organization that a caller reaches, by slug; a token names none of the others."""
    org(reading, slug)
    asked = [b"vaults", b"%d" % slug]
    size, mark = page_size(limit), read_token(reading, asked, token)
    start = (int(mark.start) + 1,) if mark else (1,)
    found: list[Vault] = []
    wanted = Range(LEDGER_PLACE, "", (slug,), FIRST_VAULTS, start=start)
    while True:
        rows = reading.range(wanted)
        for row in rows:
            if not reach(Place(slug, row.vault)):
                continue
            if len(found) == size:
                return Page(found, 0, write_token(reading, asked, Mark(0, b"%d" % found[-1].place.vault)))
            found.append(vault_of(row))
        if len(rows) < wanted.limit:
            return Page(found, 0, "")
        # Four times as many each time: few statements, however many of them the caller does not reach.
        wanted = wanted._replace(start=(rows[-1].vault + 1,), limit=4 * wanted.limit)


def _needs_vault(place: Place) -> None:
    if place.vault == 0:
        raise invalid("Relationships stand in a vault: name one.", "vault")


def _begin(
    reading: Reading,
    place: Place,
    prefix: bytes,
    at_height: int | None,
    limit: int,
    asked: Sequence[bytes],
    token: str,
) -> tuple[Walk, int]:
    """The start of a page, and its size; a later page is read at the height of the first."""
    row = tip_row(reading, place)
    size, mark = page_size(limit), read_token(reading, asked, token)
    height = height_to_read(row, mark.height if mark else at_height) or row.height
    return Walk(place, mark.start if mark else prefix, after_prefix(prefix), height, row.height), size


def _page(
    reading: Reading,
    walk: Walk,
    size: int,
    asked: Sequence[bytes],
    take: Callable[[StateRow], T | None],
    weigh: Callable[[T], int],
    rest: Callable[[bytes], bytes] = next_key,
) -> Page[T]:
    """The next page; `rest` is the start of the one after it, from the last key that was read."""
    found: list[T] = []
    weight, number, before = 0, 0, b""

    def unfinished() -> Page[T]:
        return Page(found, walk.height, write_token(reading, asked, Mark(walk.height, rest(before))))

    stretch = Stretch((), has_more=False)
    for stretch in stretches(reading, walk, size):
        for key, row in stretch.rows:
            if len(found) == size or weight > MAX_PAGE_BYTES or number == MAX_LISTED_ROWS:
                return unfinished()
            taken = None if row is None else take(row)
            if taken is not None:
                found.append(taken)
                weight += weigh(taken)
            before = key
            number += 1
    return unfinished() if stretch.has_more else Page(found, walk.height, "")
