"""Submission of one transaction: its identity, its request, and its outcome."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from semel.cli.ledger.asking import Facts, Ledger
from semel.cli.ledger.places import Scope
from semel.cli.ledger.telling import committed_words, hex_of, inner
from semel.cli.output import printable


class Identity(NamedTuple):
    """The identity of a transaction, which a retry repeats."""

    client: str
    sequence: int | None
    key: str | None

    @property
    def options(self) -> str:
        """The options with which a command sends it again."""
        sequence = [] if self.sequence is None else [f"--sequence {self.sequence}"]
        return " ".join(sequence + ([] if self.key is None else [f"--key {printable(self.key)}"]))

    @property
    def key_words(self) -> str:
        """The key, at the end of a sentence."""
        return "" if self.key is None else f"; key {printable(self.key)}"


class Outcome(NamedTuple):
    """The server's answer to a committed transaction."""

    facts: Facts
    is_replayed: bool

    @property
    def success(self) -> Facts | None:
        """The transaction; None when it is committed under another number or key than it was sent with."""
        found = self.facts.get("success")
        return found if isinstance(found, dict) else None

    @property
    def words(self) -> str:
        """The beginning of a sentence about it."""
        if self.success is not None:
            outcome = "Already committed (replayed):" if self.is_replayed else "Committed"
            return f"{outcome} {committed_words(self.success)}"
        error: Any = self.facts.get("error")
        details = (
            ("sequence", inner(error, "assignedSequence")),
            ("height", inner(error, "committedBlockHeight")),
            ("transaction", hex_of(inner(error, "committedTxId", "id"))),
        )
        known = ", ".join(f"{name} {value}" for name, value in details if value not in (None, "?"))
        return printable(f"Already committed as {known}. {inner(error, 'message')}")


class Writer(NamedTuple):
    """Sends transactions to one place."""

    ledger: Ledger
    place: Scope

    def body(self, identity: Identity, operations: list[bytes], *, wants_proof: bool = False) -> bytes:
        """The request for one of them."""
        members: Facts = {"clientId": identity.client}
        if identity.sequence is not None:
            members["sequence"] = str(identity.sequence)
        if identity.key is not None:
            members["idempotencyKey"] = identity.key
        members["includeTxProof"] = wants_proof
        head = json.dumps(members).encode()[:-1]
        return b'%s, "operations": [%s]}' % (head, b",".join(operations))

    def send(self, body: bytes) -> Outcome:
        """The answer to one of them, which is in the chain; a RequestError if it is not."""
        told = self.ledger.send("POST", f"{self.place.path}/writes", body)
        if not isinstance(told.facts.get("success", told.facts.get("error")), dict):
            raise self.ledger.stranger()
        return Outcome(told.facts, told.is_replayed)
