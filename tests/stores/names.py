"""Names for what only a server knows, so that what two servers tell can be compared.

An id, token, slug, hash or position is named by its kind and its number in the order of first appearance: two texts are
equal only if the same id stands in the same places of both. Instants are all alike.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

_NAMED: Sequence[tuple[str, re.Pattern[str]]] = (
    ("etag", re.compile(r"(?im)(?<=^etag: ).*$")),
    ("page", re.compile(r'(?<="nextPageToken":")[^"]+')),
    ("next", re.compile(r'(?<="next":")[^"]+')),
    ("job", re.compile(r"job_[0-9a-f]{32}")),
    ("uuid", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")),
    ("hash", re.compile(r"\b[0-9a-f]{24,}\b")),
    ("digest", re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{22}==)")),
    ("hlc", re.compile(r"\b1\d{17}\b")),
    ("slug", re.compile(r"\b[1-9]\d{15}\b")),
)
_CONSTANT: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"(?im)^(date|x-request-id|content-length|stream-cursor): .*$"), r"\1: -"),
    (re.compile(r'"(requestId|request|instance)": ?"[^"]*"'), r'"\1":"-"'),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)"), "INSTANT"),
    (re.compile(r"\b[12]\d{12}\b"), "MS"),
    (re.compile(r"\b[12]\d{9}\b"), "SECOND"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
)


class Names:
    """The names that one party has given."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, str]] = defaultdict(dict)
        self.known: dict[str, list[str]] = defaultdict(list)
        """What has a name, by kind and in order."""

    def mapped(self, text: str) -> str:
        """The text with names."""
        for pattern, word in _CONSTANT:
            text = pattern.sub(word, text)
        for kind, pattern in _NAMED:
            text = pattern.sub(partial(self._name, kind), text)
        return text

    def add(self, kind: str, value: str) -> None:
        """Learn something that no text names."""
        if value not in self.known[kind]:
            self.known[kind].append(value)

    def _name(self, kind: str, found: re.Match[str]) -> str:
        names, value = self._named[kind], found[0]
        if value not in names:
            names[value] = f"<{kind} {len(names)}>"
            self.known[kind].append(value)
        return names[value]
