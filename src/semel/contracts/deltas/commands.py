"""What can be asked of deltas, and what is answered."""

from __future__ import annotations

from typing import NamedTuple

from semel.contracts.deltas.model import Delta, Entry, Replica


class Push(NamedTuple):
    """Commit these deltas, all or none."""

    replica: Replica
    deltas: tuple[Delta, ...]
    is_named: bool = True
    """Whether callers are known by name: then the replica of another author is known by the author's own."""


class Pushed(NamedTuple):
    """All of them are on disk, the ones that were there before too."""

    server_hlc: int
    accepted: int
    duplicates: int
    entries: tuple[Entry, ...]


class Give(NamedTuple):
    """A page leaves for a replica: remember how far it has been told before it goes."""

    replica: Replica
    since: int
    cursor: int
    skip: int = 0
    mute: int = 0
    """What is left out behind a page that ends early, as in `Cursor`; both 0 when the cursor means itself."""
    is_taken: bool = False
    """Whether the cursor, the end of the log, already stands for something else, so that a fresh number is needed."""
    mark: tuple[int, int] = (0, 0)
    """The replica's progress as the page was read with it: if that has changed, the page must be read again."""


class Rest(NamedTuple):
    """A replica has nothing to hear for long: its cursor stands for the end of the log from now on."""

    replica: Replica
    since: int
    cursor: int
    mark: tuple[int, int]


class Given(NamedTuple):
    """It is on disk; no cursor when things have moved on and the page must be read again."""

    cursor: int | None


class Tell(NamedTuple):
    """A page that nobody had asked for has reached a replica: remember how far it has been told."""

    replica: Replica
    seen: int
    """How far it had been told when the page was made; if that has changed since, the page counts for nothing."""
    cursor: int


class SaveSchema(NamedTuple):
    """The columns of a table: what is not among them is refused from now on."""

    gateway: str
    table: str
    columns: tuple[tuple[str, str], ...]
    """Name and type of each."""


class SaveRules(NamedTuple):
    """Who may see which rows, from now on: canonical JSON."""

    gateway: str
    rules: bytes


class Flush(NamedTuple):
    """Answer when everything before it is on disk."""

    gateway: str


class Saved(NamedTuple):
    """It is on disk."""


Command = Push | Give | Rest | Tell | SaveSchema | SaveRules | Flush
