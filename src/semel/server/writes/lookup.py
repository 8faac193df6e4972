"""The look-up of a write by any of its identities: the query, a match, and the budget of a look-up.

Each surface has a function that makes matches of a query, from the rows of one instant and by exact look-ups only. It
leaves out what the caller may not read, so that an answer never tells such a write from one that does not exist.

Some receipts are stored under a scope and a key, such as a stream and an idempotency key. If the query has no place,
the function tries the scopes that the caller may read, in pages, until the budget ends; the answer then says that it is
not complete, and how to name the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote_from_bytes

from semel.engine.reading import Reading
from semel.server.auth.principals import Principal
from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.table import Key

T = TypeVar("T")

MAX_ID_BYTES = 4_096
MAX_PLACE_BYTES = 4_096
MAX_MATCHES = 100
MAX_PROBES = 20_000
"""Scopes that one look-up tries, of all surfaces together."""
MAX_SECONDS = 1.0
"""Time after which a look-up tries no further page of scopes."""
PAGE_SCOPES = 2_000
"""Scopes that are tried in one round trip."""


class WriteQuery(NamedTuple):
    """An identity, and where it may be."""

    id: bytes
    """UTF-8, in most cases."""
    place: bytes | None
    """The stream, partition, principal, organization or gateway; None for any."""
    caller: Principal
    has_credentials: bool
    """Whether callers have names: the server knows credentials."""

    @property
    def text(self) -> str | None:
        """The identity as text; None if it is not UTF-8."""
        return _decoded(self.id)

    @property
    def place_text(self) -> str | None:
        """The place as text; None without one, and for one that is not UTF-8."""
        return None if self.place is None else _decoded(self.place)

    @property
    def number(self) -> int | None:
        """The identity as a number of at most 63 bits; None if it is none."""
        digits = self.id
        is_number = 0 < len(digits) <= 19 and digits.isdigit() and (digits == b"0" or digits[:1] != b"0")
        return int(digits) if is_number and int(digits) < 2**63 else None


class FoundWrite(NamedTuple):
    """A write that took effect, as its rows tell it."""

    surface: str
    identity: str
    """The kind of the identity that has matched, such as `idempotency_key`."""
    place: str
    """Where the identity counts: the stream, the principal, the place of a ledger, the gateway; empty: everywhere."""
    at: int | None
    """When it took effect, in milliseconds since 1970; None if no row tells it."""
    principal: str | None
    """Who sent it first; None if no row tells it."""
    effect: Mapping[str, Any]
    """What it did; `path` is the path of the API that shows it, None if nothing shows it any more."""
    answer: Mapping[str, Any]
    """What a retry is told; `verdict` is the verdict on it."""
    expires_at: int | None
    """When the receipt expires; None if that is not known yet, or never."""
    retry_key: bytes | None
    """The key of its retries; None for a thing that has none."""


class ProbeBudget:
    """How many scopes a look-up may still try, and for how long."""

    def __init__(self, probes: int, until: float, clock: Callable[[], float]) -> None:
        self._left = probes
        self._until = until
        self._clock = clock
        self.hints: list[str] = []
        """How the caller can name the place of what was not tried."""

    def take(self, most: int) -> int:
        """The number of scopes to try next; 0 if the budget has ended."""
        count = 0 if self._clock() >= self._until else min(most, self._left)
        self._left -= count
        return count

    def give_back(self, count: int) -> None:
        """Scopes that were taken and not tried, because there are fewer."""
        self._left += count

    def end(self, hint: str) -> None:
        """Scopes were left out: note how the caller can name the place."""
        if hint not in self.hints:
            self.hints.append(hint)


FindWrites = Callable[[Reading, WriteQuery, ProbeBudget], Iterable[FoundWrite]]
"""The look-up of one surface. Called in a thread, with the rows of one instant."""


class FoundWrites(NamedTuple):
    """All matches, up to the limit."""

    writes: Sequence[FoundWrite]
    hints: Sequence[str]
    """Why the answer may be incomplete: one sentence for each reason."""

    @property
    def is_complete(self) -> bool:
        """Whether there are no other matches that the caller may read."""
        return not self.hints


def find_writes(reading: Reading, query: WriteQuery, finders: Sequence[FindWrites], budget: ProbeBudget) -> FoundWrites:
    """Ask every surface, in order."""
    found: list[FoundWrite] = []
    for finder in finders:
        for one in finder(reading, query, budget):
            if len(found) == MAX_MATCHES:
                hint = f"There are more than {MAX_MATCHES} matches: name the place."
                return FoundWrites(found, [*budget.hints, hint])
            found.append(one)
    return FoundWrites(found, budget.hints)


def probe_pages(
    reading: Reading, scopes: Range, probes: Sequence[ScopeProbe], budget: ProbeBudget, hint: str
) -> Iterator[Sequence[Mapping[Key, Any]]]:
    """What probes find below the scopes of a range, in pages of scopes and as far as the budget goes: for each page
    with a match the rows of each probe.
    """
    while True:
        limit = budget.take(PAGE_SCOPES)
        if not limit:
            if reading.keys(scopes._replace(limit=1)):
                budget.end(hint)
            return
        found = reading.probe(scopes._replace(limit=limit), probes)
        budget.give_back(limit - found.tried)
        if any(found.rows):
            yield found.rows
        rest = found.last[len(scopes.prefix) :]
        if found.tried < limit or not rest:
            return
        scopes = scopes._replace(start=_behind(rest))


def _behind(position: Key) -> Key:
    """The first possible position after this one."""
    *rest, last = position
    return (*rest, last + 1 if isinstance(last, int) else last + b"\0")


def name_pages(names: Sequence[T], budget: ProbeBudget, hint: str) -> Iterator[Sequence[T]]:
    """Names of scopes in pages, as far as the budget goes."""
    at = 0
    while at < len(names):
        count = budget.take(min(PAGE_SCOPES, len(names) - at))
        if not count:
            budget.end(hint)
            return
        yield names[at : at + count]
        at += count


def path_of(words: str, name: bytes, safe: str = "") -> str:
    """A path of the API: words, and a name that is percent-encoded but for the characters that are `safe`."""
    return words + quote_from_bytes(name, safe=safe)


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
