"""An import of lines: each line is sent once and in order, in batches and as lines arrive.

A line without a name of its own gets one made of a base name and the line's number. So a second run with the same base
sends the missing lines and duplicates none, as long as the server keeps names. A line that cannot be sent ends the
import; a refused one does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, NamedTuple, TypeVar

from semel.client.errors import SemelError

D = TypeVar("D")


class ImportedLine(NamedTuple, Generic[D]):
    """A line that was read: its number, its size in bytes, and what is sent of it."""

    number: int
    size: int
    draft: D


class LineImport(ABC, Generic[D]):
    """One import of lines, which its subclass sends."""

    def __init__(self, base: str | None, batch: int) -> None:
        self.base = base
        self.waiting: deque[ImportedLine[D]] = deque()
        """Lines that were read and not answered."""
        self.read = self.done = 0
        """The last line that was read, and the one up to which all are answered."""
        self.makes_names = False
        """Whether a line got its name from the base."""
        self._batch = batch

    @abstractmethod
    def draft(self, content: bytes, made: str | None) -> D:
        """What is sent of a line; `made` is its name if it has none. Raises `SemelError`."""

    @abstractmethod
    def name(self, draft: D) -> str | None:
        """The name of a line."""

    @abstractmethod
    def send(self) -> None:
        """Send the waiting lines. Raises `SemelError` if they cannot be sent now."""

    def starts_batch(self, draft: D) -> bool:
        """Whether a line may not be in one request with those that wait."""
        return False

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last line that an error is about."""
        return (self.waiting[0].number, self.waiting[-1].number) if self.waiting else (self.read, self.read)

    def take(self, line: bytes) -> bool:
        """Take the next line; earlier ones are sent if the batch is full. Returns False for an empty line."""
        self.read += 1
        content = line.strip(b" \t\r\n")
        if not content:
            return False
        made = None if self.base is None else f"{self.base}-{self.read}"
        try:
            draft = self.draft(content, made)
        except SemelError:
            self.send()
            raise
        self.makes_names = self.makes_names or (made is not None and self.name(draft) == made)
        if len(self.waiting) >= self._batch or self.starts_batch(draft):
            self.send()
        self.waiting.append(ImportedLine(self.read, len(line), draft))
        return True
