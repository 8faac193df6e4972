"""The fences of a page, in their order: what is shown, what is hidden in comments, and what is not run and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

RUN = ("python", "console")
READ = ("ini", "js", "json", "nginx", "sh", "sql", "toml", "yaml")
SHOWN = ("http", "text")
FRESH = "fresh"
_LANGUAGES = {*RUN, *READ, *SHOWN}
_FENCE = re.compile(r"( *)(`{3,}) *(\S*)(.*)")
_COMMENT = re.compile(r"( *)<!-- ?(.*)")
_GENERATED = re.compile(r"made: .+|end")
_NOT_RUN = "not run:"
_FEWEST_WORDS = 2


class PageError(Exception):
    """A page has something that nobody can run or read; the line and what is wrong."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Fence(NamedTuple):
    """One block of code."""

    language: str
    """`fresh` stands for the mark from which on everything is new."""
    text: str
    """Its lines, without their indent."""
    line: int
    """The line of the page that opens it."""
    section: int
    """The number of headings before it."""
    reason: str | None = None
    """Why it is not run."""
    is_hidden: bool = False


class _Page:
    """The lines of a page, taken from the front."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._number = 0
        self._section = 0
        self._reason: str | None = None
        self._reason_line = 0

    def fences(self) -> Iterator[Fence]:
        """Every fence and mark; PageError for what is neither."""
        while self._number < len(self._lines):
            self._number += 1
            line = self._lines[self._number - 1]
            fence, comment = _FENCE.fullmatch(line), _COMMENT.fullmatch(line)
            if fence:
                yield self._fence(fence)
                continue
            if line.strip():
                self._refuse_reason()
            if comment:
                yield from self._comment(comment)
            elif re.match("#+ ", line):
                self._section += 1
        self._refuse_reason()

    def _refuse_reason(self) -> None:
        """A reason that no fence comes behind."""
        if self._reason is not None:
            raise PageError(self._reason_line, "`not run` belongs on the line before a fence")

    def _fence(self, opening: re.Match[str]) -> Fence:
        number, (indent, marks, language, more) = self._number, opening.groups()
        inside = self._until(re.compile(f"{indent}{marks} *"), indent)
        if language not in _LANGUAGES or more.strip():
            raise PageError(number, f"nobody reads a fence of {f'{language}{more}'.strip() or 'no language'}")
        reason, self._reason = self._reason, None
        return Fence(language, inside, number, self._section, reason)

    def _comment(self, opening: re.Match[str]) -> Iterator[Fence]:
        """A mark of one line, or a fence that readers do not see."""
        number, said = self._number, opening[2].removesuffix("-->").strip()
        if not opening[2].endswith("-->"):
            if said not in _LANGUAGES:
                raise PageError(number, f"nobody knows a comment of {said!r}")
            inside = self._until(re.compile(" *-->"), opening[1])
            yield Fence(said, inside, number, self._section, is_hidden=True)
        elif said == FRESH:
            yield Fence(FRESH, "", number, self._section)
        elif said.startswith(_NOT_RUN):
            self._reason, self._reason_line = said.removeprefix(_NOT_RUN).strip(), number
            if len(self._reason.split()) < _FEWEST_WORDS:
                raise PageError(number, "`not run` without a reason")
        elif not _GENERATED.fullmatch(said):
            raise PageError(number, f"nobody knows a comment of {said!r}")

    def _until(self, end: re.Pattern[str], indent: str) -> str:
        """All lines before one that is the end, without an indent."""
        first = self._number
        found: list[str] = []
        for line in self._lines[first:]:
            self._number += 1
            if end.fullmatch(line):
                return "".join(found)
            found.append(f"{line.removeprefix(indent)}\n")
        raise PageError(first, "what begins here has no end")


def fences(text: str) -> Iterator[Fence]:
    """Every fence and mark of a page; PageError for what is neither."""
    return _Page(text).fences()
