"""Command groups that import their modules on demand, so that a command starts quickly."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from semel.cli.help import HelpGroup

_EXTRAS = {"proxy": "proxy"}
"""Commands that need an extra other than `server`."""


class LazyGroup(HelpGroup):
    """A group whose subcommands are given as `module:name`."""

    def __init__(self, *args: Any, homes: Mapping[str, str], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._homes = homes

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without imports."""
        return sorted(self._homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, imported now."""
        home = self._homes.get(cmd_name)
        if home is None:
            return None
        module_name, _, name = home.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "semel":
                raise
            return _missing(cmd_name, str(error.name))
        command: click.Command = getattr(module, name)
        return command


def _missing(name: str, package: str) -> click.Command:
    """A command whose packages are not installed: it is listed, and prints how to install them."""
    brought = f"pip install 'semel[{_EXTRAS.get(name, 'server')}]'"

    def tell() -> None:
        raise click.ClickException(f"semel {name} needs the package {package}: run {brought}.")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(
        name, callback=tell, help=f"Needs {brought}.", context_settings=anything, add_help_option=False
    )
