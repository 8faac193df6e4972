"""Pagination of lists: entities, relationships, resources, organizations, vaults; and page tokens.

All pages of a list show the state of one height: the height of the first page, or the requested one. A page costs at
most 20 database statements, however many items it has. A filter that excludes many rows ends a page early, with a token
for the rest.

A token carries the next key and the height, under a MAC over both and over the query: a token that was altered, or is
used for another list, is refused. The key of the MAC is in the store, so every node accepts the tokens of all nodes.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.store.protocol import Range
from semel.surfaces.ledger.commands import Org, Vault, invalid
from semel.surfaces.ledger.key_scan import KeyScan, ScanChunk, StateRow, after_prefix, next_key, scan_chunks
from semel.surfaces.ledger.limits import DEFAULT_PAGE, MAX_LISTED_ROWS, MAX_PAGE, MAX_PAGE_BYTES
from semel.surfaces.ledger.model import Entity, LedgerPlace
from semel.surfaces.ledger.reading import entities_of, height_to_read, org, seconds_at, tip_row
from semel.surfaces.ledger.rules.chain import org_of, relationship_prefix, split_relationship, vault_of
from semel.surfaces.ledger.rules.state import is_expired
from semel.surfaces.ledger.tables import ALONE, LEDGER_ORG, LEDGER_PLACE, LEDGER_TERM, RELATIONSHIPS_END

T = TypeVar("T")

MAC_BYTES = 16
MAX_TOKEN_CHARACTERS = 32_768
_HEIGHT = Struct(">Q")
_LENGTH = Struct(">I")


class LedgerPage(NamedTuple, Generic[T]):
    """A page of a list, the height it was read at, and the token of the next page; empty at the end."""

    items: Sequence[T]
    height: int
    token: str


class PagePosition(NamedTuple):
    """The position of a page token: the next key, and the height; 0 is the current height."""

    height: int
    start: bytes


def page_size(limit: int) -> int:
    """The number of items of a page."""
    if not 0 <= limit <= MAX_PAGE:
        raise invalid(f"A page has at most {MAX_PAGE} items.", "limit")
    return limit or DEFAULT_PAGE


def write_token(reading: Reading, asked: Sequence[bytes], mark: PagePosition) -> str:
    """The page token for the rest of a list."""
    body = _HEIGHT.pack(mark.height) + mark.start
    return urlsafe_b64encode(_mac(reading, asked, body) + body).decode().rstrip("=")


def read_token(reading: Reading, asked: Sequence[bytes], token: str) -> PagePosition | None:
    """The position in a page token; None without a token."""
    if not token:
        return None
    try:
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
    except (Base64Error, ValueError, UnicodeEncodeError):
        raise _foreign_token() from None
    mac, body = raw[:MAC_BYTES], raw[MAC_BYTES:]
    is_ours = urlsafe_b64encode(raw).decode().rstrip("=") == token and len(body) >= _HEIGHT.size
    if not is_ours or len(token) > MAX_TOKEN_CHARACTERS or not hmac.compare_digest(mac, _mac(reading, asked, body)):
        raise _foreign_token()
    return PagePosition(_HEIGHT.unpack_from(body)[0], body[_HEIGHT.size :])


def _foreign_token() -> Refused:
    return invalid("This page token is not of this list.", "page_token")


def _mac(reading: Reading, asked: Sequence[bytes], body: bytes) -> bytes:
    term = reading.get(LEDGER_TERM, ALONE)
    assert term is not None, "the ledger was opened at the start"
    bound = b"".join(_LENGTH.pack(len(part)) + part for part in (*asked, body))
    return hmac.digest(term.secret, bound, "sha256")[:MAC_BYTES]


Triple = tuple[bytes, bytes, bytes]
FIRST_VAULTS = 256


def list_entities(
    reading: Reading,
    place: LedgerPlace,
    prefix: bytes,
    at_height: int | None,
    include_expired: bool,
    limit: int,
    token: str,
) -> LedgerPage[Entity]:
    """List the entities whose keys begin with a prefix."""
    asked = [b"entities", b"%d/%d" % place, prefix, b"%d" % include_expired, b"%d" % (at_height or 0)]
    walk, size = _begin(reading, place, prefix, at_height, limit, asked, token)
    walk = walk._replace(start=max(walk.start, RELATIONSHIPS_END))
    now = seconds_at(reading, place, at_height or None)

    def take(row: StateRow) -> StateRow | None:
        return row if include_expired or not is_expired(row.expires_at, now) else None

    def weigh(row: StateRow) -> int:
        return len(row.key) + row.size

    page: LedgerPage[StateRow] = _page(reading, walk, size, asked, take, weigh)
    return LedgerPage(entities_of(reading, page.items), page.height, page.token)


def list_relationships(
    reading: Reading,
    place: LedgerPlace,
    resource: bytes | None,
    relation: bytes | None,
    subject: bytes | None,
    at_height: int | None,
    limit: int,
    token: str,
) -> LedgerPage[Triple]:
    """List the relationships with these parts."""
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
    reading: Reading, place: LedgerPlace, resource_type: bytes, at_height: int | None, limit: int, token: str
) -> LedgerPage[bytes]:
    """List the resources of a type that have a relationship, each once."""
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
        """The start of the next page: after all relationships of the resource, so that no resource is repeated."""
        is_told = split_relationship(key)[0] == last
        return after_prefix(relationship_prefix(last)) if is_told and last is not None else next_key(key)

    return _page(reading, walk, size, asked, take, len, rest)


def list_orgs(
    reading: Reading, limit: int, token: str, reach: Callable[[int], bool] = lambda slug: True
) -> LedgerPage[Org]:
    """List the organizations that a caller may read, by slug."""
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
            return LedgerPage(found, 0, "")
    last = found[-1].slug if len(found) == size else rows[-1].org
    return LedgerPage(found, 0, write_token(reading, asked, PagePosition(0, b"%d" % last)))


def list_vaults(
    reading: Reading, slug: int, limit: int, token: str, reach: Callable[[LedgerPlace], bool] = lambda place: True
) -> LedgerPage[Vault]:
    """List the vaults of an organization that a caller may read, by slug; a token reveals no other vault."""
    org(reading, slug)
    asked = [b"vaults", b"%d" % slug]
    size, mark = page_size(limit), read_token(reading, asked, token)
    start = (int(mark.start) + 1,) if mark else (1,)
    found: list[Vault] = []
    wanted = Range(LEDGER_PLACE, "", (slug,), FIRST_VAULTS, start=start)
    while True:
        rows = reading.range(wanted)
        for row in rows:
            if not reach(LedgerPlace(slug, row.vault)):
                continue
            if len(found) == size:
                return LedgerPage(found, 0, write_token(reading, asked, PagePosition(0, b"%d" % found[-1].place.vault)))
            found.append(vault_of(row))
        if len(rows) < wanted.limit:
            return LedgerPage(found, 0, "")
        # Each read is four times as large as the last, so that skipped vaults cost few statements.
        wanted = wanted._replace(start=(rows[-1].vault + 1,), limit=4 * wanted.limit)


def _needs_vault(place: LedgerPlace) -> None:
    if place.vault == 0:
        raise invalid("Relationships stand in a vault: name one.", "vault")


def _begin(
    reading: Reading,
    place: LedgerPlace,
    prefix: bytes,
    at_height: int | None,
    limit: int,
    asked: Sequence[bytes],
    token: str,
) -> tuple[KeyScan, int]:
    """The start and the size of a page; a later page is read at the height of the first."""
    row = tip_row(reading, place)
    size, mark = page_size(limit), read_token(reading, asked, token)
    height = height_to_read(row, mark.height if mark else at_height) or row.height
    return KeyScan(place, mark.start if mark else prefix, after_prefix(prefix), height, row.height), size


def _page(
    reading: Reading,
    walk: KeyScan,
    size: int,
    asked: Sequence[bytes],
    take: Callable[[StateRow], T | None],
    weigh: Callable[[T], int],
    rest: Callable[[bytes], bytes] = next_key,
) -> LedgerPage[T]:
    """The next page; `rest` returns the start of the page after it, given the last key that was read."""
    found: list[T] = []
    weight, number, before = 0, 0, b""

    def unfinished() -> LedgerPage[T]:
        return LedgerPage(found, walk.height, write_token(reading, asked, PagePosition(walk.height, rest(before))))

    stretch = ScanChunk((), has_more=False)
    for stretch in scan_chunks(reading, walk, size):
        for key, row in stretch.rows:
            if len(found) == size or weight > MAX_PAGE_BYTES or number == MAX_LISTED_ROWS:
                return unfinished()
            taken = None if row is None else take(row)
            if taken is not None:
                found.append(taken)
                weight += weigh(taken)
            before = key
            number += 1
    return unfinished() if stretch.has_more else LedgerPage(found, walk.height, "")
