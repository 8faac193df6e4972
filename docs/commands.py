"""The tables of all commands of `semel`: usage, arguments and options, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from semel.cli.main import main


def command_tables() -> Iterator[str]:
    """Every command with its usage, its sentence and its options, in the order of `semel --help`."""
    is_first = True
    for path, command in _commands(main, "semel"):
        yield from ([] if is_first else [""])
        is_first = False
        yield from (f"## {path}", "", _sentences(command.help or ""), "")
        yield f"Usage: `{f'{path} {_usage(command)}'.strip()}`"
        if path == "semel serve":
            yield from ("", "Every [setting](settings.md) is an option: `--port` sets `SEMEL_PORT`.")
        else:
            yield from _option_table(command)


def command_names() -> list[str]:
    """Every command with its path, in the order of `semel --help`."""
    return [path for path, _ in _commands(main, "semel")]


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _usage(command: click.Command) -> str:
    return " ".join(command.collect_usage_pieces(click.Context(command)))


def _option_table(command: click.Command) -> Iterator[str]:
    rows = [row for row in map(_option_row, command.params) if row]
    if rows:
        yield from ("", "| option | variable | default | meaning |", "|---|---|---|---|", *rows)


def _option_row(one: click.Parameter) -> str:
    if not isinstance(one, click.Option) or one.hidden:
        return ""
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    named = one.metavar or one.type.get_metavar(one, click.Context(main)) or one.type.name.upper()
    value = "" if one.is_flag or one.count else f" {named}"
    variable = one.envvar if isinstance(one.envvar, str) else ", ".join(one.envvar or ())
    cells = names[:-1] + f"{value}`", f"`{variable}`" if variable else "", _default(one), _cell(one.help or "")
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def _default(one: click.Option) -> str:
    value: Any = one.default
    if isinstance(value, bool) or one.is_flag:
        return ""
    if value is None or callable(value) or isinstance(value, (list, tuple)) or "UNSET" in repr(value).upper():
        return "required" if one.required else ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _sentences(text: str) -> str:
    """The help of a command, a paragraph a line, without the marks of the formatter."""
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in text.split("\n\n") if part.strip())
