"""Lists, a page at a time: entities, relationships, resources, organizations, vaults.

All pages of a list show the state of one height: that of the first page, or the one asked for. At the current height
that is what is there now, and nothing else is looked at: what was deleted costs nothing. At an older height a list
goes over what is there now and what was there then, side by side in the order of keys, and takes of each key what the
height saw. A filter that leaves out much ends a page early, with a token for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from semel.contracts.ledger.commands import Org, Vault
from semel.contracts.ledger.limits import MAX_LISTED_ROWS, MAX_PAGE_BYTES
from semel.contracts.ledger.model import Entity, Place
from semel.contracts.ledger.paging import Mark, Page, page_size, read_token, write_token
from semel.contracts.ledger.reading import entity_at, height_to_read, org, present, seconds_at, tip_row
from semel.contracts.ledger.refusals import invalid
from semel.contracts.ledger.rules.encoding import relationship_prefix, split_relationship
from semel.contracts.ledger.rules.records import org_of, vault_of
from semel.contracts.ledger.tables import LEDGER_ENTITY, LEDGER_ORG, LEDGER_PAST, LEDGER_PLACE
from semel.engine.reading import Reading
from semel.store.protocol import AnyTable, Range

T = TypeVar("T")

Triple = tuple[bytes, bytes, bytes]
CHUNK = 256
RELATIONSHIPS_END = b"\1"
"""Keys of relationships begin with a zero byte, those of entities never do."""


class _Walk(NamedTuple):
    """A walk over the keys of a place that begin alike, from one on, as a height saw them."""

    place: Place
    prefix: bytes
    start: bytes
    height: int
    past: int | None
    """The same, None for the current one: what is there now need not be looked for in the past."""


def list_entities(
    reading: Reading, place: Place, prefix: bytes, at_height: int | None, include_expired: bool, limit: int, token: str
) -> Page[Entity]:
    """The entities whose keys begin so."""
    asked = [b"entities", b"%d/%d" % place, prefix, b"%d" % include_expired, b"%d" % (at_height or 0)]
    walk, size = _begin(reading, place, prefix, at_height, limit, asked, token)
    walk = walk._replace(start=max(walk.start, RELATIONSHIPS_END))
    now = seconds_at(reading, place, at_height or None)

    def take(entity: Entity) -> Entity | None:
        return entity if include_expired else present(entity, now)

    return _page(reading, walk, size, asked, take, lambda entity: len(entity.key) + len(entity.value))


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

    def take(entity: Entity) -> Triple | None:
        parts = split_relationship(entity.key)
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

    def take(entity: Entity) -> bytes | None:
        nonlocal last
        resource = split_relationship(entity.key)[0]
        if resource == last or (resource_type and resource.partition(b":")[0] != resource_type):
            return None
        last = resource
        return resource

    def rest(key: bytes) -> bytes:
        """What was told is not told again: the next page begins behind all relationships of the resource."""
        is_told = split_relationship(key)[0] == last
        return _after(relationship_prefix(last)) if is_told and last is not None else _next(key)

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
    while True:
        rows = reading.range(Range(LEDGER_PLACE, "", (slug,), CHUNK, start=start))
        for row in rows:
            if not reach(Place(slug, row.vault)):
                continue
            if len(found) == size:
                return Page(found, 0, write_token(reading, asked, Mark(0, b"%d" % found[-1].place.vault)))
            found.append(vault_of(row))
        if len(rows) < CHUNK:
            return Page(found, 0, "")
        start = (rows[-1].vault + 1,)


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
) -> tuple[_Walk, int]:
    """Where a page begins, and how large it is; a later page is read at the height of the first."""
    row = tip_row(reading, place)
    size, mark = page_size(limit), read_token(reading, asked, token)
    height = mark.height if mark else at_height
    chosen = height_to_read(row, height) or row.height
    past = None if chosen == row.height else chosen
    return _Walk(place, prefix, mark.start if mark else prefix, chosen, past), size


def _page(
    reading: Reading,
    walk: _Walk,
    size: int,
    asked: Sequence[bytes],
    take: Callable[[Entity], T | None],
    weigh: Callable[[T], int],
    rest: Callable[[bytes], bytes] | None = None,
) -> Page[T]:
    """The next page; `rest` says where the one after it begins, from the last key that was looked at."""
    found: list[T] = []
    weight, before = 0, b""
    for number, key in enumerate(_keys(reading, walk)):
        if len(found) == size or weight > MAX_PAGE_BYTES or number == MAX_LISTED_ROWS:
            return Page(found, walk.height, write_token(reading, asked, Mark(walk.height, (rest or _next)(before))))
        entity = entity_at(reading, walk.place, key, walk.past)
        taken = None if entity is None else take(entity)
        if taken is not None:
            found.append(taken)
            weight += weigh(taken)
        before = key
    return Page(found, walk.height, "")


def _keys(reading: Reading, walk: _Walk) -> Iterator[bytes]:
    """The keys in order, each once: of now, and at an older height of then."""
    tables: tuple[AnyTable, ...] = (LEDGER_ENTITY,) if walk.past is None else (LEDGER_ENTITY, LEDGER_PAST)
    streams = [_keys_of(reading, walk, table) for table in tables]
    heads = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        least = min(head for head in heads if head is not None)
        yield least
        heads = [next(stream, None) if head == least else head for stream, head in zip(streams, heads, strict=True)]


def _keys_of(reading: Reading, walk: _Walk, table: AnyTable) -> Iterator[bytes]:
    """The keys in one table, each once: of the past, the versions of one key are passed over."""
    start, stop = walk.start, _after(walk.prefix)
    while True:
        wanted = Range(table, "", tuple(walk.place), CHUNK, start=(start,), stop=(stop,) if stop else ())
        keys = reading.keys(wanted)
        yield from dict.fromkeys(key[2] for key in keys)
        if len(keys) < CHUNK:
            return
        start = _next(keys[-1][2])


def _next(key: bytes) -> bytes:
    """The first key behind another."""
    return key + b"\0"


def _after(prefix: bytes) -> bytes:
    """The first key that is greater than all that begin so; empty when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""
