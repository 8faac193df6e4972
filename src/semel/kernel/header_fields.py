"""Header fields of a request, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from semel.kernel.errors import Refused


class HeaderFields:
    """Header fields of one request. Names are in lower case; the host has trimmed the values."""

    __slots__ = ("_more", "_one")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._one: dict[bytes, bytes] = {}
        self._more: dict[bytes, list[bytes]] | None = None
        for name, value in pairs:
            if name in self._one:
                if self._more is None:
                    self._more = {}
                self._more.setdefault(name, []).append(value)
            else:
                self._one[name] = value

    @property
    def one(self) -> Mapping[bytes, bytes]:
        """The first value of every field."""
        return self._one

    def get(self, name: bytes) -> bytes | None:
        """The first value of a field."""
        return self._one.get(name)

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a field."""
        if name not in self._one:
            return []
        return [self._one[name], *((self._more or {}).get(name, ()))]

    def single(self, name: bytes, code: str) -> bytes | None:
        """The value of a field that may be given only once; a repeated field is refused."""
        if self._more is not None and name in self._more:
            raise Refused(code, f"Send the {name.decode()} header once.")
        return self._one.get(name)

    def is_true(self, name: bytes) -> bool:
        """Whether a flag is set: only `true` counts, in upper or lower case."""
        value = self._one.get(name)
        return value is not None and value.lower() == b"true"
