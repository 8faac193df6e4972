"""The file of a durable writer: transactions with their identities, before they are sent, and their outcomes.

A SQLite database (write-ahead log, `synchronous=FULL`): a step that has returned survives a crash and a power failure,
and any other is stored completely or not at all. So nothing needs repair at startup. One process at a time opens it.

A row is an intent. It has no outcome until the server has answered. Its outcome stays until the application was told.
A refused intent stays longer if a copy of it may still be on its way, until its sequence is taken by another.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from semel.client.errors import LocalFileError, RefusedError, refusal
from semel.client.file_lock import FileLock
from semel.client.ledger.trusted_head import sync_folder
from semel.client.ledger.values import CommittedWrite

FORMAT = "1"
NOT_TOLD, TOLD, RETURNED = 0, 1, 2
"""Whether the application knows an outcome: no; yes; a call returns it, and a crash may come before."""
_TABLES = (
    "CREATE TABLE semel_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE semel_intent (
        number INTEGER PRIMARY KEY AUTOINCREMENT, sequence INTEGER NOT NULL, key TEXT NOT NULL UNIQUE,
        operations BLOB NOT NULL, note TEXT, unsettled INTEGER NOT NULL, outcome TEXT, told INTEGER NOT NULL
    ) STRICT""",
)
_COLUMNS = "number, sequence, key, operations, note, unsettled, outcome"
_FORGET = """DELETE FROM semel_intent WHERE told = 1 AND outcome IS NOT NULL
    AND NOT (unsettled = 1 AND outcome LIKE '{"refused"%' AND sequence > ?)"""

WriteOutcome = CommittedWrite | RefusedError
"""The outcome of a transaction: it is committed, or it was refused and has changed nothing."""


class WriteIntent(NamedTuple):
    """A transaction in the file."""

    number: int
    sequence: int
    key: str
    operations: bytes
    """A JSON array."""
    note: str | None
    is_unsettled: bool
    """Whether a copy of it may be on its way."""
    outcome: WriteOutcome | None


class NewIntent(NamedTuple):
    """A transaction before it is stored."""

    key: str
    operations: bytes
    note: str | None


class IntentFile:
    """The intents of one client in one place."""

    def __init__(self, path: str | os.PathLike[str], owner: str) -> None:
        """Open or create it; `owner` names client and place. Raises `LocalFileError`, and `FileInUseError`."""
        self._path = Path(path)
        self._guard = threading.Lock()
        self._lock: FileLock | None = FileLock(self._path)
        try:
            with self._errors():
                self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                self._prepare(owner)
        except BaseException:
            self.close()
            raise

    def _prepare(self, owner: str) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"):
            self._database.execute(f"PRAGMA {pragma}")
        with self._transaction():
            known = self._database.execute("SELECT name FROM sqlite_master WHERE name = 'semel_meta'").fetchone()
            if known is None:
                for table in _TABLES:
                    self._database.execute(table)
                self._set("format", FORMAT)
                self._set("owner", owner)
            if (version := self._get("format")) != FORMAT:
                raise LocalFileError(
                    f"{self._path} has format {version}, and this version of Semel reads format {FORMAT} only: use the "
                    "version that wrote it, or another file."
                )
            if self._get("owner") != owner:
                raise LocalFileError(f"{self._path} is the file of {self._get('owner')}, not of {owner}.")
            # The process that was here before may have sent its intents, and told outcomes or not.
            self._database.execute("UPDATE semel_intent SET unsettled = 1 WHERE outcome IS NULL")
            self._database.execute("UPDATE semel_intent SET told = ? WHERE told = ?", (NOT_TOLD, RETURNED))
        if known is None:
            sync_folder(self._path.resolve().parent)

    @property
    def last(self) -> int | None:
        """The last committed sequence; None in a new file."""
        with self._errors(), self._guard:
            value = self._get("last")
        return None if value is None else int(value)

    def begin(self, last: int) -> None:
        """Count from this sequence."""
        with self._stored():
            self._set("last", str(last))

    def note(self, intents: Sequence[NewIntent], first: int) -> list[WriteIntent]:
        """Store intents under consecutive sequences; outcomes that were returned before count as told."""
        with self._stored():
            self._database.execute("UPDATE semel_intent SET told = ? WHERE told = ?", (TOLD, RETURNED))
            self._database.execute(_FORGET, (first - 1,))
            for sequence, one in enumerate(intents, start=first):
                self._database.execute(
                    "INSERT INTO semel_intent (sequence, key, operations, note, unsettled, told) VALUES (?,?,?,?,0,0)",
                    (sequence, one.key, one.operations, one.note),
                )
        return self.pending()

    def pending(self) -> list[WriteIntent]:
        """The intents without an outcome, in order."""
        return self._intents("outcome IS NULL")

    def recovered(self) -> list[WriteIntent]:
        """The intents whose outcome the application may not know, in order."""
        return self._intents(f"outcome IS NOT NULL AND told = {NOT_TOLD}")

    def doubtful(self, first: int, last: int) -> list[WriteIntent]:
        """The refused intents of some sequences of which a copy may be on its way."""
        found = self._intents("outcome IS NOT NULL AND unsettled = 1")
        return [one for one in found if first <= one.sequence <= last and isinstance(one.outcome, RefusedError)]

    def record(self, outcomes: Sequence[tuple[WriteIntent, WriteOutcome]], last: int, told: int) -> None:
        """Store outcomes and the last committed sequence in one step."""
        with self._stored():
            for intent, outcome in outcomes:
                self._database.execute(
                    "UPDATE semel_intent SET outcome = ?, told = ?, unsettled = ? WHERE number = ?",
                    (_outcome_text(outcome), told, intent.is_unsettled, intent.number),
                )
            self._set("last", str(last))

    def renumber(self, intents: Sequence[WriteIntent], first: int) -> list[WriteIntent]:
        """Give intents consecutive sequences, in order. None of them is committed under its old one."""
        with self._stored():
            for sequence, intent in enumerate(intents, start=first):
                self._database.execute(
                    "UPDATE semel_intent SET sequence = ? WHERE number = ?", (sequence, intent.number)
                )
        return [one._replace(sequence=sequence) for sequence, one in enumerate(intents, start=first)]

    def withdraw(self, intents: Sequence[WriteIntent]) -> None:
        """Forget intents that have certainly not been executed, and will not be."""
        with self._stored():
            self._database.executemany("DELETE FROM semel_intent WHERE number = ?", [(one.number,) for one in intents])

    def doubt(self, intents: Sequence[WriteIntent]) -> None:
        """Those of these intents that have no outcome may be committed, or copies of them may be on their way."""
        with self._stored():
            self._database.executemany(
                "UPDATE semel_intent SET unsettled = 1 WHERE number = ? AND outcome IS NULL",
                [(one.number,) for one in intents],
            )

    def keep_outcomes(self) -> None:
        """Outcomes that a call was about to return are not told: the call has failed."""
        with self._stored():
            self._database.execute("UPDATE semel_intent SET told = ? WHERE told = ?", (NOT_TOLD, RETURNED))

    def forget_recovered(self) -> None:
        """The application knows all outcomes that `recovered` has."""
        with self._stored():
            # An outcome that a call is about to return is not among them.
            self._database.execute(
                "UPDATE semel_intent SET told = ? WHERE outcome IS NOT NULL AND told = ?", (TOLD, NOT_TOLD)
            )
            self._database.execute(_FORGET, (int(self._get("last") or 0),))

    def close(self, *, is_told: bool = False) -> None:
        """Close it; `is_told` says that every outcome which a call returned has arrived."""
        if self._lock is None:
            return
        try:
            if self._lock.is_own:  # else the database is that of the parent process
                with suppress(AttributeError):  # it could not be opened
                    if is_told:
                        with self._stored():
                            self._database.execute("UPDATE semel_intent SET told = ? WHERE told = ?", (TOLD, RETURNED))
                    self._database.close()
        finally:
            self._lock.release()
            self._lock = None

    def _intents(self, where: str) -> list[WriteIntent]:
        with self._errors(), self._guard:
            rows = self._database.execute(
                f"SELECT {_COLUMNS} FROM semel_intent WHERE {where} ORDER BY number"  # noqa: S608 - constant texts
            ).fetchall()
        return [_intent(row) for row in rows]

    def _get(self, name: str) -> str | None:
        row = self._database.execute("SELECT value FROM semel_meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO semel_meta VALUES (?, ?)", (name, value))

    @contextmanager
    def _stored(self) -> Iterator[None]:
        with self._errors(), self._guard, self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # SQLite has rolled back already if the disk is full
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if self._lock is None:
            raise LocalFileError(f"{self._path} is closed.")
        self._lock.check()
        try:
            yield
        except sqlite3.Error as error:
            raise LocalFileError(f"{self._path} cannot be used: {error}.") from None


def _intent(row: Any) -> WriteIntent:
    number, sequence, key, operations, note, unsettled, outcome = row
    return WriteIntent(number, sequence, key, operations, note, bool(unsettled), _outcome(outcome, key))


def _outcome_text(outcome: WriteOutcome) -> str:
    if isinstance(outcome, RefusedError):
        refused = {"status": outcome.status, "facts": dict(outcome.facts)}
        return json.dumps({"refused": refused})
    height, tx_id, sequence, replayed = outcome.height, outcome.tx_id, outcome.sequence, outcome.replayed
    return json.dumps({"committed": [height, tx_id, sequence, replayed, outcome.note]})


def _outcome(text: str | None, key: str) -> WriteOutcome | None:
    if text is None:
        return None
    facts = json.loads(text)
    if "refused" in facts:
        return refusal(facts["refused"]["status"], facts["refused"]["facts"])
    height, tx_id, sequence, replayed, note = facts["committed"]
    return CommittedWrite(height, tx_id, sequence, replayed, key, note)
