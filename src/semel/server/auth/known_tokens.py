"""The tokens that a namespace knows by their hashes: those of the token file, and those of its store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from semel.server.auth.revocation import Revocation, TokenChange, judge_change

if TYPE_CHECKING:
    from semel.server.auth.principals import Principal


class TokenTable(dict[bytes, "Principal"]):
    """Principals by the hashes of their tokens: those of the token file, then those of the store."""

    names: frozenset[str] = frozenset()
    is_guarded = False
    """Whether a credential is needed although no token may be in force: the store has, or had, tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.of_file: dict[bytes, Principal] = {}
        self.of_store: dict[bytes, Principal] = {}
        self._family = [self]
        """The tables of all namespaces of the process."""

    def within(self) -> TokenTable:
        """The table of another namespace: it has the tokens of the file, and those of its own store."""
        other = TokenTable()
        other.of_file, other.is_guarded, other._family = self.of_file, self.is_guarded, self._family
        other.join(())
        self._family.append(other)
        return other

    def guard(self) -> None:
        """A store of the process has tokens: from now on every namespace needs a credential."""
        for one in self._family:
            one.is_guarded = True

    def replace(self, tokens: Mapping[bytes, Principal]) -> TokenChange:
        """Replace all tokens of the file. An unchanged principal stays; a removed or changed one is revoked."""
        before = self.of_file
        change = judge_change(before, tokens)
        ended = [known for digest, known in before.items() if tokens.get(digest) != known]
        new = {digest: replace(known, revocation=Revocation()) for digest, known in tokens.items()}
        new.update((digest, known) for digest, known in before.items() if tokens.get(digest) == known)
        for one in self._family:
            one.of_file = new
            one.join(())
        self.join(ended)
        return change

    def join(self, ended: Iterable[Principal]) -> None:
        """Put both sources together, then revoke the principals that have ended."""
        self.clear()
        self.update(self.of_store)
        self.update(self.of_file)
        self.names = frozenset(known.name for known in self.values())
        for known in ended:
            assert known.revocation is not None, "every token can be revoked"
            known.revocation.come()
