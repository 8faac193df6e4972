"""The reference of all commands of `semel`: help, usage and options, from the commands themselves.

An option that many commands share is described once, in the part `shared options`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import click

from semel.cli.main import main
from semel.server.settings_loader import setting_fields

SECTIONS: Mapping[str, Sequence[str]] = {
    "server": ("serve", "config", "doctor"),
    "streams": ("streams",),
    "events": ("events",),
    "jobs": ("jobs", "worker"),
    "ledger": ("ledger",),
    "deltas": ("deltas",),
    "library": ("once", "outbox", "proxy"),
    "operating": ("migrate", "backup", "restore", "check", "epoch", "token", "audit", "diagnose"),
}
"""The commands of each section of the page; the section `other` has the rest."""
SHARED = 10
"""An option that is the same in at least this number of commands is described once."""
KINDS = {"INTEGER RANGE": "N", "FLOAT RANGE": "N", "INTEGER": "N", "FILENAME": "FILE", "PATH": "FILE"}
"""Names of values that say what they are, for those that click makes up."""
Key = tuple[tuple[str, ...], str]


def command_sections() -> Mapping[str, Callable[[], Iterator[str]]]:
    """The parts of the page, by name."""
    listed = {name for names in SECTIONS.values() for name in names}
    other = [name for name in main.list_commands(click.Context(main)) if name not in listed]
    sections = {**SECTIONS, "other": other}
    return {f"commands {section}": partial(_section, names) for section, names in sections.items()}


def shared_options() -> Iterator[str]:
    """One table of the options that many commands share."""
    yield "| option | variable | default | meaning |"
    yield "|---|---|---|---|"
    for one in _shared().values():
        meaning, variable, default = _noted(one)
        cells = (_names(one), f"`{variable}`" if variable else "", default or _default(one), meaning)
        yield _row(*cells)


def command_names() -> list[str]:
    """Every command with its path, in the order of `semel --help`."""
    return [path for path, _ in _commands()]


def _section(names: Sequence[str]) -> Iterator[str]:
    is_first = True
    for name in names:
        for path, command in _commands():
            if path.split()[1] == name:
                yield from ([] if is_first else [""])
                is_first = False
                yield from _described(path, command)


def _described(path: str, command: click.Command) -> Iterator[str]:
    yield from (f"### {path}", "", f"`{f'{path} {_usage(command)}'.strip()}`", "", _sentences(command.help or ""))
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    settings = {one.name for one in setting_fields()}
    if sum(one.name in settings for one in options) > len(settings) / 2:
        yield from ("", "Each [setting](settings.md) is an option: `--port` sets `SEMEL_PORT`.")
        options = [one for one in options if one.name not in settings]
    own = [one for one in options if _key(one) not in _shared()]
    if own:
        yield from ("", "| option | default | meaning |", "|---|---|---|", *map(_option_row, own))
    shared = [f"`{one.opts[-1]}`" for one in options if _key(one) in _shared()]
    if shared:
        yield from ("", f"[Shared options](#shared-options): {', '.join(shared)}.")


@cache
def _shared() -> Mapping[Key, click.Option]:
    """The options that many commands have, with the same names and help."""
    found: Counter[Key] = Counter()
    options: dict[Key, click.Option] = {}
    for _, command in _commands():
        for one in command.params:
            if isinstance(one, click.Option) and not one.hidden and one.help:
                found[_key(one)] += 1
                options.setdefault(_key(one), one)
    return {key: options[key] for key, count in found.most_common() if count >= SHARED}


def _key(one: click.Option) -> Key:
    return (*one.opts, *one.secondary_opts), one.help or ""


@cache
def _commands() -> Sequence[tuple[str, click.Command]]:
    return tuple(_found(main, "semel"))


def _found(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _found(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _usage(command: click.Command) -> str:
    return " ".join(command.collect_usage_pieces(click.Context(command)))


def _option_row(one: click.Option) -> str:
    meaning, variable, default = _noted(one)
    told = f"{meaning} `{variable}` sets it too." if variable else meaning
    return _row(_names(one), default or _default(one), told)


def _names(one: click.Option) -> str:
    """The names of an option; a value stands behind the last one."""
    kind = one.metavar or one.type.get_metavar(one, click.Context(main)) or one.type.name.upper()
    value = "" if one.is_flag or one.count else f" {KINDS.get(kind, kind)}"
    return f"`{'`, `'.join((*one.opts, *one.secondary_opts))}{value}`"


def _noted(one: click.Option) -> tuple[str, str, str]:
    """The meaning of an option, its variable and its default, which may stand in brackets behind the help."""
    found = re.fullmatch(r"(.*?)(?:  \[([^]]+)\])?", one.help or "", re.DOTALL)
    assert found is not None
    notes = [note.strip() for note in (found[2] or "").split(";")]
    named = [note for note in notes if note.startswith("SEMEL_")]
    variable = one.envvar if isinstance(one.envvar, str) else next(iter(named), "")
    return found[1], variable, ", ".join(f"`{note}`" for note in notes if note and note not in named)


def _default(one: click.Option) -> str:
    value: Any = one.default
    if isinstance(value, bool) or one.is_flag:
        return ""
    if value is None or callable(value) or isinstance(value, (list, tuple)) or "UNSET" in repr(value).upper():
        return "required" if one.required else ""
    return f"`{value}`" if value != "" else ""


def _row(*cells: str) -> str:
    escaped = (" ".join(re.sub(r"(?<!\\)\|", r"\\|", cell).split()) for cell in cells)
    return "".join(f"| {cell} " if cell else "| " for cell in escaped) + "|"


def _sentences(text: str) -> str:
    """The help of a command, a paragraph a line, without the marks of the formatter."""
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in text.split("\n\n") if part.strip())
