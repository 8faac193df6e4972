"""`semel serve`: run a server."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

import click

from semel.cli.help import ExplainedCommand, ExplainedOption, HelpEntry
from semel.client.access import DEFAULT_URL
from semel.kernel.namespace import DEFAULT
from semel.server import settings_loader
from semel.server.auth.credentials import TokenFileError
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.http.tls import TlsFileError
from semel.server.listen import ListenError
from semel.server.process import Announce, run_server
from semel.server.setting_values import is_secret
from semel.server.settings import ServerSettings
from semel.server.settings_loader import PREFIX, SettingsError, SettingsSource, setting_fields, setting_sections
from semel.store.open import shown
from semel.store.protocol import StoreError
from semel.surfaces.registry import SURFACES

Run = Callable[[ServerSettings, Announce, Iterable[str], SettingsSource], int]
"""Runs a server with its settings, a function that is called when it is ready, warnings to log, and a function that
loads the settings again.
"""

BANNER = """\
Semel is listening on {url} ({mode}; {place}).
{namespaces}
{surfaces}
{console}
Try, in another terminal{with_token}:
  {semel} streams create greetings --type application/json{flag}
  {semel} streams append greetings '{{"hello": "world"}}' --key first{flag}
  {semel} streams append greetings '{{"hello": "world"}}' --key first{flag}   # the same answer; nothing stored twice
  {semel} find first{flag}   # when it was stored, and who retried it
  {semel} streams tail greetings --from-start{flag}
  {semel} events submit room-7 --event '{{"type": "note.added"}}' --id note-1{flag}   # again: the same committed_id
  {semel} jobs submit hello '{{"to": "world"}}' --key job-1{flag}   # again: the same job
  {semel} --help

Control-C stops the server.
"""
SHOWN_NAMES = 8
"""Limit on the namespaces that the banner names besides the default one."""
_DEFAULTS: dict[object, str] = {("str", ""): "empty", ("bool", True): "on", ("bool", False): "off"}
_METAVARS = {"int": "N", "float": "NUMBER", "str": "TEXT"}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add one flag per setting; for unset flags the environment and the file apply.

    A secret has no flag, because all users of a machine can read command lines.
    """
    for one in reversed([one for one in setting_fields() if not is_secret(one)]):
        decorate = click.option(_flags(one), one.name, is_flag=one.type == "bool", default=None, cls=ExplainedOption)
        command = decorate(command)
    return command


def _flags(one: Field[Any]) -> str:
    name = one.name.replace("_", "-")
    return f"--{name}/--no-{name}" if one.type == "bool" and one.default else f"--{name}"


def _entry(one: Field[Any]) -> HelpEntry:
    """The help of one setting."""
    about, variable = one.metadata["about"], PREFIX + one.name.upper()
    text = f"{about[0].upper()}{about[1:]}."
    if is_secret(one):
        return HelpEntry(variable, text, "[a secret: no flag, default empty]")
    default = _DEFAULTS.get((one.type, one.default), str(one.default))
    term = _flags(one).replace("/", " / ")
    if one.type != "bool":
        term += " " + ("|".join(filter(None, one.metadata.get("choices", ()))) or _METAVARS[str(one.type)])
    return HelpEntry(term, text, f"[{variable}, default {default}]")


def serve_command(run: Run = run_server) -> click.Command:
    """The command; tests pass a `run` with faults in the commit path."""

    @click.command(
        cls=ExplainedCommand, entries={heading: list(map(_entry, some)) for heading, some in setting_sections().items()}
    )
    @click.option(
        "--config",
        type=click.Path(path_type=Path),
        envvar="SEMEL_CONFIG",
        help="TOML file with settings.  [SEMEL_CONFIG]",
    )
    @with_settings
    def serve(config: Path | None, **flags: Any) -> None:
        """Run a server: by default on 127.0.0.1:8788, with an embedded database in ./data.

        Each setting is a flag, an environment variable, or a name in a TOML file (the flag with _ for -). A flag
        overrides the variable, and the variable overrides the file.
        """
        sys.exit(_serve(run, config, flags))

    return serve


def _serve(run: Run, config: Path | None, flags: Mapping[str, Any]) -> int:
    load = SettingsSource(flags, os.environ, config)
    try:
        settings = load()

        def announce(port: int, in_force: ServerSettings) -> None:
            click.echo(banner(in_force, port))
            sys.stdout.flush()

        return run(settings, announce, settings_loader.disagreements(os.environ), load)
    except (SettingsError, TokenFileError, KeyFileError, TlsFileError, StoreError, ListenError) as error:
        raise click.ClickException(str(error)) from error


def banner(settings: ServerSettings, port: int) -> str:
    """The address and surfaces of the server, and commands to paste."""
    url = _url(settings, port)
    mode = "tokens required" if settings.needs_token else "development mode, no credentials"
    guarded = [surface.name for surface in SURFACES if surface.has_credentials(settings)]
    if guarded and not settings.needs_token:
        mode += f" but for {', '.join(guarded)}"
    place = _place(settings)
    if settings.control_port:
        place += f"; control on port {settings.control_port}"
    flag = "" if url == DEFAULT_URL else f" --url {url}"
    return BANNER.format(
        url=url,
        mode=mode,
        place=place,
        namespaces=_namespaces(settings),
        surfaces=_surfaces(),
        console=_console(settings, _url(settings, settings.control_port or port)),
        with_token=" with a token of this server in SEMEL_TOKEN" if settings.needs_token else "",
        semel=_own_name(),
        flag=flag,
    )


def _url(settings: ServerSettings, port: int) -> str:
    """The address of a port of the server, as a program on the same machine reaches it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - only compared
    scheme = "https" if settings.tls_certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _console(settings: ServerSettings, url: str) -> str:
    """A line with the address of the console; empty if it is turned off."""
    if not settings.console:
        return ""
    sign_in = " (it asks for a token)" if settings.needs_token else ""
    return f"\nConsole: {url}/console{sign_in}\n"


def _place(settings: ServerSettings) -> str:
    """Where the data is."""
    if settings.store == "memory:":
        return "data in memory, lost when the server stops"
    return f"data in {shown(settings.store) if settings.store else Path(settings.data).resolve()}"


def _namespaces(settings: ServerSettings) -> str:
    """A line with the namespaces and their paths; empty with the default one alone."""
    names = settings.namespace_names
    if not names:
        return ""
    listed = [f"{DEFAULT} at /", *(f"{name} at /ns/{name}/" for name in names[:SHOWN_NAMES])]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"Namespaces: {', '.join(listed)}{more}.\n"


def _surfaces() -> str:
    """The table of the surfaces: name, path, purpose."""
    rows = [(surface.name, surface.path, surface.about) for surface in SURFACES]
    names, paths = max(len(name) for name, _, _ in rows), max(len(path) for _, path, _ in rows)
    return "\n".join(f"  {name:{names}}  {path:{paths}}  {about}" for name, path, about in rows)


def _own_name() -> str:
    """The command of this program: `semel` if it is on the PATH, else its path."""
    called = Path(sys.argv[0])
    if called.name != "semel" or shutil.which("semel") == str(called.resolve()):
        return "semel" if called.name == "semel" else f"{Path(sys.executable).name} -m semel"
    return os.path.relpath(called)


serve = serve_command()
