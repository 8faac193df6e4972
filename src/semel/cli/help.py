"""Help texts: commands and settings under headings, wrapped and never truncated."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

MAX_WIDTH = 100
"""The width of help texts in a wide terminal, in characters."""
_ANY_LENGTH = 10_000
_INDENT = 4


class HelpEntry(NamedTuple):
    """One help entry: an option, or a variable without an option."""

    term: str
    text: str
    note: str
    """The end of the text, never wrapped."""


class HelpGroup(click.Group):
    """Lists each command with the first sentence of its help, under headings if there are any."""

    def __init__(self, *args: Any, headings: Mapping[str, Sequence[str]] | None = None, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._headings = headings

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; a misspelled one is told with the names that are close to it."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            close = get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.5)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands; the texts under all headings are aligned."""
        names = self.list_commands(ctx)
        width = max(map(len, names), default=0)
        for heading, listed in (self._headings or {"Commands": names}).items():
            commands = [(name, self.get_command(ctx, name)) for name in listed]
            with formatter.section(heading):
                formatter.write_dl(
                    (name.ljust(width), command.get_short_help_str(_ANY_LENGTH))
                    for name, command in commands
                    if command is not None and not command.hidden
                )


class DefaultGroup(HelpGroup):
    """A group with a command whose name may be left out: what is no name of a command is its first argument."""

    def __init__(self, *args: Any, default: str, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._default = default

    def completed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments with the name of a command."""
        is_named = not args or args[0] in self.list_commands(ctx) or args[0] in ctx.help_option_names
        return args if is_named else [self._default, *args]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the name of a command."""
        return super().parse_args(ctx, self.completed(ctx, args))


class ExplainedOption(click.Option):
    """An option that a `HelpEntry` of its command explains."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """None, so that it is not listed among the other options."""
        return None


class ExplainedCommand(click.Command):
    """A command with many options: other options first, then entries under headings."""

    def __init__(self, *args: Any, entries: Mapping[str, Sequence[HelpEntry]], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._entries = entries

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each entry's term on its own line, with the text indented below."""
        super().format_options(ctx, formatter)
        for heading, entries in self._entries.items():
            with formatter.section(heading):
                indent = " " * formatter.current_indent
                for entry in entries:
                    formatter.write(f"{indent}{entry.term}\n")
                    for line in _lines(entry, formatter.width - len(indent) - _INDENT):
                        formatter.write(f"{indent}{'':{_INDENT}}{line}\n")


def _lines(entry: HelpEntry, width: int) -> list[str]:
    """The text wrapped between words; the note follows on the last line, or on its own line."""
    *lines, last = textwrap.wrap(entry.text, width, break_long_words=False, break_on_hyphens=False)
    joined = f"{last}  {entry.note}"
    return [*lines, joined] if len(joined) <= width else [*lines, last, entry.note]
