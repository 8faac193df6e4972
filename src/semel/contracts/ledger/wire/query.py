"""Parsing of query strings."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl

from semel.contracts.ledger.limits import MAX_PAGE, MAX_RANGE_BLOCKS
from semel.contracts.ledger.refusals import invalid
from semel.contracts.ledger.wire.enums import CONSISTENCIES
from semel.contracts.ledger.wire.members import MOST, digits, not_one_of, snake_of
from semel.contracts.ledger.wire.paths import tx_id

_MAX_FIELDS = 32
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_LIST = ("limit", "pageToken")


class Query:
    """The query fields: only known names, each once."""

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
        """A field as sent."""
        return self._fields.get(name)

    def utf8(self, name: str) -> bytes | None:
        """A filter; None when it is absent or empty."""
        value = self._fields.get(name)
        return value.encode() if value else None

    def named(self, name: str) -> bytes | None:
        """One name, or None for any. An empty name is refused: it would show everything to a caller that wants one."""
        if self._fields.get(name) == "":
            raise invalid(f"{name} must not be empty; leave it out to see all of them.", name)
        return self.utf8(name)

    def number(self, name: str) -> int | None:
        """A whole number of 64 bits; None when it is absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        found = digits(value)
        if found is None:
            raise invalid(f"{name} must be a whole number from 0 to {MOST}.", name)
        return found

    def flag(self, name: str) -> bool:
        """true or false; absent is false, a bare name is refused: a client that sends `?proof` wants a proof."""
        found = _FLAGS.get(self._fields.get(name, "false"))
        if found is None:
            raise invalid(f"{name} must be true or false, as in {name}=true.", name)
        return found

    def height(self) -> int | None:
        """The height that a read is about; None for now."""
        return self.number("atHeight") or None

    def consistency(self) -> None:
        """Validate the consistency level: every read sees every acknowledged write, so any known level is satisfied."""
        value = self._fields.get("consistency", "0")
        if value not in CONSISTENCIES and value not in map(str, CONSISTENCIES.values()):
            raise not_one_of("consistency", CONSISTENCIES)

    def page(self) -> Page:
        """How much of a list is wanted, and from where on."""
        limit = self.number("limit") or 0
        if limit > MAX_PAGE:
            raise invalid(f"limit must be at most {MAX_PAGE}; 0 is the usual number.", "limit")
        return Page(limit, self._fields.get("pageToken", ""))


class Page(NamedTuple):
    """Pagination of a list; a limit of 0 is the default."""

    limit: int
    token: str


class ReadQuery(NamedTuple):
    """The query of an entity."""

    height: int | None
    wants_proof: bool
    trusted: int | None


def parse_read(raw: bytes) -> ReadQuery:
    """The query of a read."""
    query = Query(raw, "atHeight", "consistency", "proof", "trustedHeight")
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
    page: Page


def parse_entities(raw: bytes) -> EntitiesQuery:
    """The query of a list of entities."""
    query = Query(raw, "prefix", "atHeight", "includeExpired", "consistency", *_LIST)
    query.consistency()
    return EntitiesQuery(query.utf8("prefix") or b"", query.height(), query.flag("includeExpired"), query.page())


class RelationshipsQuery(NamedTuple):
    """The query of a list of relationships, None is any; or with a proof, of one."""

    resource: bytes | None
    relation: bytes | None
    subject: bytes | None
    height: int | None
    page: Page
    trusted: int | None = None
    proved: tuple[bytes, bytes, bytes] | None = None
    """The one that is to be proved; None without a proof."""


def parse_relationships(raw: bytes) -> RelationshipsQuery:
    """The query of a list of relationships, or of the proof of one."""
    known = ("resource", "relation", "subject", "atHeight", "consistency", "proof", "trustedHeight", *_LIST)
    query = Query(raw, *known)
    query.consistency()
    parts = resource, relation, subject = query.named("resource"), query.named("relation"), query.named("subject")
    trusted, page = query.number("trustedHeight"), query.page()
    if not query.flag("proof"):
        if trusted is not None:
            raise invalid("trustedHeight is for reads with proof=true.", "trustedHeight")
        return RelationshipsQuery(*parts, query.height(), page)
    if resource is None or relation is None or subject is None:
        raise invalid("proof=true is about one relationship: name its resource, relation and subject.", "proof")
    if page != Page(0, ""):
        raise invalid("A proof is about one relationship and has no pages: leave limit and pageToken out.", "proof")
    return RelationshipsQuery(*parts, query.height(), page, trusted, (resource, relation, subject))


class ResourcesQuery(NamedTuple):
    """The query of a list of resources."""

    type: bytes
    height: int | None
    page: Page


def parse_resources(raw: bytes) -> ResourcesQuery:
    """The query of a list of resources."""
    query = Query(raw, "type", "atHeight", "consistency", *_LIST)
    query.consistency()
    return ResourcesQuery(query.utf8("type") or b"", query.height(), query.page())


def parse_page(raw: bytes) -> Page:
    """The query of a list without filters."""
    return Query(raw, *_LIST).page()


class RangeQuery(NamedTuple):
    """The query of a range of blocks, both ends included."""

    start: int
    stop: int


def parse_range(raw: bytes) -> RangeQuery:
    """The query of a range of blocks: from the first, and as many as one answer has, unless it says otherwise."""
    query = Query(raw, "from", "to")
    start, stop = query.number("from"), query.number("to")
    start = 1 if start is None else start
    stop = start + MAX_RANGE_BLOCKS - 1 if stop is None else stop
    return RangeQuery(start, stop)


class ProofQuery(NamedTuple):
    """The query of a proof."""

    tx_id: bytes | None
    trusted: int | None


def parse_proof(raw: bytes) -> ProofQuery:
    """The query of the proof of a block."""
    query = Query(raw, "txId", "trustedHeight")
    wanted = query.text("txId")
    return ProofQuery(None if wanted is None else tx_id(wanted), query.number("trustedHeight"))


def parse_watch(raw: bytes, last_event: bytes | None) -> int:
    """The height that a watch begins with: behind the last event that the client has seen, or as the query says."""
    start = Query(raw, "from").number("from")
    if last_event is not None:
        seen = digits(last_event.decode("latin-1"))
        if seen is None:
            raise invalid("Last-Event-ID must be the id of an event of this stream, a height.", "Last-Event-ID")
        start = seen + 1
    if not start:
        raise invalid("from must be a height, and at least 1.", "from")
    return start


def parse_nothing(raw: bytes) -> None:
    """The query of a call that takes none."""
    Query(raw)
