"""URLs of the ledger: paths, split at slashes and then decoded, and query parameters."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from semel.kernel.errors import Refused
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.limits import MAX_PAGE, MAX_RANGE_BLOCKS
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.wire.members import CONSISTENCIES, MOST, digits, not_one_of, snake_of, unbase64

PREFIX = b"/ledger/v1/"

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_HEX_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID_BYTES = 16


class LedgerRoute(NamedTuple):
    """A parsed path: the names in it, and the words between them, with an empty string in place of each name.

    `call` is the part below the organization or the vault; empty for the organization or the vault itself.
    """

    org: str | None
    vault: str | None
    call: tuple[str, ...]
    name: str


def split_path(raw_path: bytes) -> LedgerRoute | None:
    """Parse a path below `PREFIX`; None for an unknown path."""
    # Not cached: a path comes before its credential, so that strangers would fill the cache with 64 KiB an entry.
    things, *pieces = [_decoded(piece) for piece in raw_path[len(PREFIX) :].split(b"/")]
    if things != "orgs":
        return None
    if not pieces:
        return _route(None, None, [])
    org, *rest = pieces
    if len(rest) >= 2 and rest[0] == "vaults":
        return _route(org, rest[1], rest[2:])
    return _route(org, None, rest)


def _route(org: str | None, vault: str | None, rest: list[str]) -> LedgerRoute:
    call = tuple("" if place == 1 else word for place, word in enumerate(rest))
    return LedgerRoute(org, vault, call, rest[1] if len(rest) > 1 else "")


def _decoded(piece: bytes) -> str:
    if b"%" in piece:
        piece = _ESCAPE.sub(_byte, piece)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        raise invalid("The path is UTF-8, percent-encoded where need be.", "path") from None


def _byte(found: re.Match[bytes]) -> bytes:
    if found.group(1) is None:
        raise invalid("The path has a percent sign that is not followed by two hex digits.", "path")
    return bytes.fromhex(found.group(1).decode())


def place_in(route: LedgerRoute) -> LedgerPlace:
    """The place that a path names; the path of an organization's own place has no vault, not even 0."""
    org = _slug(route.org or "", "organization")
    if route.vault is None:
        return LedgerPlace(org)
    vault = _slug(route.vault, "vault")
    if vault == 0:
        raise Refused("ledger:vault_not_found", "There is no such vault in this organization.")
    return LedgerPlace(org, vault)


def _slug(given: str, what: str) -> int:
    found = digits(given)
    if found is None:
        raise invalid(f"The {what} in the path must be its slug, a whole number.", what)
    return found


def height_in(given: str) -> int:
    """Parse the height of a block."""
    found = digits(given)
    if found is None:
        raise invalid("The height in the path must be a whole number.", "height")
    return found


def tx_id(given: str, field: str = "txId") -> bytes:
    """Parse the id of a transaction: hexadecimal, a UUID, or base64."""
    found = bytes.fromhex(given.replace("-", "")) if _HEX_ID.fullmatch(given) else unbase64(given)
    if found is None or len(found) != _ID_BYTES:
        raise invalid(f"{field} must be {_ID_BYTES} bytes in hexadecimal, as a UUID or in base64.", field)
    return found


_MAX_FIELDS = 32
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_LIST = ("limit", "pageToken")


class LedgerQuery:
    """Query parameters: only known names, each at most once."""

    def __init__(self, raw: bytes, *known: str) -> None:
        spellings = {snake_of(name): name for name in known}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        except ValueError:
            what = f"The query must be percent-encoded UTF-8 with at most {_MAX_FIELDS} fields."
            raise invalid(what, "query") from None
        self._fields: dict[str, str] = {}
        for given, value in pairs:
            name = spellings.get(given, given)
            if name not in known:
                names = f"known are {', '.join(known)}" if known else "nothing is asked behind the question mark"
                raise invalid(f"There is no field {given[:64]} here; {names}.", given[:64])
            if name in self._fields:
                raise invalid(f"{name} may be given once.", name)
            self._fields[name] = value

    def text(self, name: str) -> str | None:
        """A parameter as sent."""
        return self._fields.get(name)

    def utf8(self, name: str) -> bytes | None:
        """A filter; None if absent or empty."""
        value = self._fields.get(name)
        return value.encode() if value else None

    def named(self, name: str) -> bytes | None:
        """A name; None is any. An empty name is refused, since it would match everything."""
        if self._fields.get(name) == "":
            raise invalid(f"{name} must not be empty; leave it out to see all of them.", name)
        return self.utf8(name)

    def number(self, name: str) -> int | None:
        """A whole number of 64 bits; None if absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        found = digits(value)
        if found is None:
            raise invalid(f"{name} must be a whole number from 0 to {MOST}.", name)
        return found

    def flag(self, name: str) -> bool:
        """`true` or `false`; false if absent. A bare name is refused: a client that sends `?proof` wants a proof."""
        found = _FLAGS.get(self._fields.get(name, "false"))
        if found is None:
            raise invalid(f"{name} must be true or false, as in {name}=true.", name)
        return found

    def height(self) -> int | None:
        """The height to read at; None is the current height."""
        return self.number("atHeight") or None

    def consistency(self) -> None:
        """Validate the consistency level: every read sees every acknowledged write, so any known level is satisfied."""
        value = self._fields.get("consistency", "0")
        if value not in CONSISTENCIES and value not in map(str, CONSISTENCIES.values()):
            raise not_one_of("consistency", CONSISTENCIES)

    def page(self) -> PageQuery:
        """The limit and the page token of a list."""
        limit = self.number("limit") or 0
        if limit > MAX_PAGE:
            raise invalid(f"limit must be at most {MAX_PAGE}; 0 is the usual number.", "limit")
        return PageQuery(limit, self._fields.get("pageToken", ""))


class PageQuery(NamedTuple):
    """Pagination of a list; a limit of 0 means the default."""

    limit: int
    token: str


class ReadQuery(NamedTuple):
    """The query of a read of one entity."""

    height: int | None
    wants_proof: bool
    trusted: int | None


def parse_read(raw: bytes) -> ReadQuery:
    """Parse the query of a read."""
    query = LedgerQuery(raw, "atHeight", "consistency", "proof", "trustedHeight")
    query.consistency()
    wanted = ReadQuery(query.height(), query.flag("proof"), query.number("trustedHeight"))
    if wanted.trusted is not None and not wanted.wants_proof:
        raise invalid("trustedHeight is for reads with proof=true.", "trustedHeight")
    return wanted


class EntitiesQuery(NamedTuple):
    """The query of a list of entities."""

    prefix: bytes
    height: int | None
    include_expired: bool
    page: PageQuery


def parse_entities(raw: bytes) -> EntitiesQuery:
    """Parse the query of a list of entities."""
    query = LedgerQuery(raw, "prefix", "atHeight", "includeExpired", "consistency", *_LIST)
    query.consistency()
    return EntitiesQuery(query.utf8("prefix") or b"", query.height(), query.flag("includeExpired"), query.page())


class RelationshipsQuery(NamedTuple):
    """The query of a list of relationships (None is any), or of the proof of one."""

    resource: bytes | None
    relation: bytes | None
    subject: bytes | None
    height: int | None
    page: PageQuery
    trusted: int | None = None
    proved: tuple[bytes, bytes, bytes] | None = None
    """The relationship to prove; None without a proof."""


def parse_relationships(raw: bytes) -> RelationshipsQuery:
    """Parse the query of a list of relationships, or of the proof of one."""
    known = ("resource", "relation", "subject", "atHeight", "consistency", "proof", "trustedHeight", *_LIST)
    query = LedgerQuery(raw, *known)
    query.consistency()
    parts = resource, relation, subject = query.named("resource"), query.named("relation"), query.named("subject")
    trusted, page = query.number("trustedHeight"), query.page()
    if not query.flag("proof"):
        if trusted is not None:
            raise invalid("trustedHeight is for reads with proof=true.", "trustedHeight")
        return RelationshipsQuery(*parts, query.height(), page)
    if resource is None or relation is None or subject is None:
        raise invalid("proof=true is about one relationship: name its resource, relation and subject.", "proof")
    if page != PageQuery(0, ""):
        raise invalid("A proof is about one relationship and has no pages: leave limit and pageToken out.", "proof")
    return RelationshipsQuery(*parts, query.height(), page, trusted, (resource, relation, subject))


class ResourcesQuery(NamedTuple):
    """The query of a list of resources."""

    type: bytes
    height: int | None
    page: PageQuery


def parse_resources(raw: bytes) -> ResourcesQuery:
    """Parse the query of a list of resources."""
    query = LedgerQuery(raw, "type", "atHeight", "consistency", *_LIST)
    query.consistency()
    return ResourcesQuery(query.utf8("type") or b"", query.height(), query.page())


def parse_page(raw: bytes) -> PageQuery:
    """Parse the query of a list without filters."""
    return LedgerQuery(raw, *_LIST).page()


class RangeQuery(NamedTuple):
    """The query of a range of blocks, both ends included."""

    start: int
    stop: int


def parse_range(raw: bytes) -> RangeQuery:
    """Parse the query of a range of blocks; by default it starts at the first block and fills one answer."""
    query = LedgerQuery(raw, "from", "to")
    start, stop = query.number("from"), query.number("to")
    start = 1 if start is None else start
    stop = start + MAX_RANGE_BLOCKS - 1 if stop is None else stop
    return RangeQuery(start, stop)


class ProofQuery(NamedTuple):
    """The query of a proof."""

    tx_id: bytes | None
    trusted: int | None


def parse_proof(raw: bytes) -> ProofQuery:
    """Parse the query of the proof of a block."""
    query = LedgerQuery(raw, "txId", "trustedHeight")
    wanted = query.text("txId")
    return ProofQuery(None if wanted is None else tx_id(wanted), query.number("trustedHeight"))


def parse_watch(raw: bytes, last_event: bytes | None) -> int:
    """The height that a watch starts at: after the last event that the client has seen, or as the query says."""
    start = LedgerQuery(raw, "from").number("from")
    if last_event is not None:
        seen = digits(last_event.decode("latin-1"))
        if seen is None:
            raise invalid("Last-Event-ID must be the id of an event of this stream, a height.", "Last-Event-ID")
        start = seen + 1
    if not start:
        raise invalid("from must be a height, and at least 1.", "from")
    return start


def parse_nothing(raw: bytes) -> None:
    """Refuse query parameters of a call that takes none."""
    if raw:
        LedgerQuery(raw)
