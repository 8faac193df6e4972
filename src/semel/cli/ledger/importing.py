"""Import of a file of operations as many transactions, each of a fixed number of lines.

The key of each is made from one key and its number, or its sequence from the first one. So running it again with the
same options commits what is missing and doubles nothing, wherever the first run stopped, for as long as the server
remembers it (a day, unless it was set up otherwise).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import BinaryIO, Self

import click

from semel.cli.failures import RequestError
from semel.cli.ledger.asking import Facts
from semel.cli.ledger.operations import operation_lines
from semel.cli.ledger.transactions import Identity, Writer
from semel.cli.progress import progress
from semel.cli.streams.source import size_of


def read_one(source: BinaryIO) -> list[bytes]:
    """All operations of a file, for one transaction."""
    texts = [text for _, text, _ in operation_lines(source)]
    if not texts:
        raise click.ClickException("The file has no operations in it.")
    return texts


def committed(count: int) -> str:
    """A number of transactions in words."""
    return f"{count} transaction" if count == 1 else f"{count} transactions"


class Import:
    """Sends one transaction after the other, since each may depend on the one before; stops at the first refusal."""

    def __init__(self, writer: Writer, identity: Identity, size: int, as_json: bool) -> None:
        self._writer = writer
        self._identity = identity
        self._size = size
        self._as_json = as_json
        self._base = None if identity.key is None else _uuid(identity.key)
        self._sent = 0
        self.new = 0
        self.known = 0
        self.last: Facts | None = None
        """The last transaction."""

    def run(self, source: BinaryIO) -> Self:
        """Commit every line."""
        if self._base is not None:
            click.echo(f"A run that is cut off goes on with {self._identity.options}.", err=True)
        waiting: list[bytes] = []
        number = size = 0
        with progress(size_of(source), "Committing") as advance:
            try:
                for number, text, length in operation_lines(source):
                    waiting.append(text)
                    size += length
                    if len(waiting) == self._size:
                        self._send(waiting, number, size, advance)
                        waiting, size = [], 0
                if waiting:
                    self._send(waiting, number, size, advance)
            except KeyboardInterrupt:
                raise click.ClickException(f"Stopped. {self._advice}") from None
        return self

    def _send(self, texts: list[bytes], line: int, size: int, advance: Callable[[int], None]) -> None:
        identity = self._next()
        try:
            outcome = self._writer.send(self._writer.body(identity, texts))
        except RequestError as error:
            where = f"Transaction {self._sent + 1}, up to line {line}"
            raise click.ClickException(f"{where}: {error.message} {self._advice}") from error
        self._sent += 1
        self.new += not outcome.is_replayed
        self.known += outcome.is_replayed
        self.last = outcome.success or self.last
        if self._as_json:
            click.echo(
                json.dumps({**outcome.facts, "key": identity.key, "line": line, "replayed": outcome.is_replayed})
            )
        advance(size)

    def _next(self) -> Identity:
        client, sequence, _ = self._identity
        key = None if self._base is None else str(uuid.uuid5(self._base, str(self._sent + 1)))
        return Identity(client, None if sequence is None else sequence + self._sent, key)

    @property
    def _advice(self) -> str:
        again = f"run this again with {self._identity.options}, and nothing is doubled"
        return f"{committed(self.new + self.known)} before it {'is' if self._sent == 1 else 'are'} committed: {again}."


def _uuid(key: str) -> uuid.UUID:
    try:
        return uuid.UUID(key)
    except ValueError:
        raise click.UsageError(
            "With --split the key is a UUID: the keys of the transactions are made from it."
        ) from None
