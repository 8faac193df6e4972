"""`semel serve`: run a server."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from semel.cli.connection import DEFAULT_URL
from semel.server.auth.credentials import TokenFileError
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.http.tls import TlsFileError
from semel.server.listen import ListenError
from semel.server.process import run_server
from semel.server.setting_values import is_secret
from semel.server.settings import ServerSettings
from semel.server.settings_loader import PREFIX, SettingsError, disagreements, load_settings, setting_fields
from semel.store.open import shown
from semel.store.protocol import StoreError
from semel.surfaces.registry import SURFACES

Run = Callable[[ServerSettings, Callable[[int], None], Iterable[str]], int]
"""What runs a server: gets its settings, what to call with the port when it is ready, and warnings for the log."""

TRY_NEXT = """\
Semel is listening on {url} ({mode}).

Try, in another terminal:
  {semel} streams create greetings --type application/json{flag}
  {semel} streams append greetings '{{"hello": "world"}}' --key first{flag}
  {semel} streams append greetings '{{"hello": "world"}}' --key first{flag}   # the same answer; nothing stored twice
  {semel} streams tail greetings --from-start{flag}
  {semel} events submit room-7 --event '{{"type": "note.added"}}' --id note-1{flag}   # again: the same committed_id
  {semel} events tail --partition room-7 --from-start{flag}
  {semel} jobs submit hello '{{"to": "world"}}' --key job-1{flag}   # again: the same job
  {semel} jobs list{flag}
or:
  curl -i -X PUT {url}/v1/stream/orders -H 'Content-Type: application/json'
  curl -i {url}/v1/stream/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: 1' -d '{{"n": 1}}'
"""


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """One flag for each setting; unset flags leave room for the environment and the file.

    A secret has none: everyone on a machine can read the command lines of its processes.
    """
    for one in reversed([one for one in setting_fields() if not is_secret(one)]):
        flag = "--" + one.name.replace("_", "-")
        about = f"{one.metadata['about']}  [{PREFIX}{one.name.upper()}; {_shown(one.default)}]"
        if one.type == "bool":
            switch = f"{flag}/--no-{flag[2:]}" if one.default else flag
            decorate = click.option(switch, one.name, is_flag=True, default=None, help=about)
        else:
            decorate = click.option(flag, one.name, default=None, help=about, metavar="VALUE")
        command = decorate(command)
    return command


def _shown(default: object) -> str:
    return "empty" if default == "" else str(default)


def serve_command(run: Run = run_server) -> click.Command:
    """The command; tests give it a `run` with a fault in the commit path."""

    @click.command(context_settings={"max_content_width": 120})
    @click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings")
    @_with_settings
    def serve(config: Path | None, **flags: Any) -> None:
        """Run a server: by default on 127.0.0.1:8788, with an embedded database in ./data."""
        sys.exit(_serve(run, config, flags))

    return serve


def _serve(run: Run, config: Path | None, flags: Mapping[str, Any]) -> int:
    try:
        settings = load_settings(flags, os.environ, config)

        def announce(port: int) -> None:
            click.echo(_what_next(settings, port))
            sys.stdout.flush()

        return run(settings, announce, disagreements(os.environ))
    except (SettingsError, TokenFileError, KeyFileError, TlsFileError, StoreError, ListenError) as error:
        raise click.ClickException(str(error)) from error


def _what_next(settings: ServerSettings, port: int) -> str:
    """Where the server is, and commands that work when they are pasted."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - only looked up
    scheme = "https" if settings.tls_certificate else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    mode = "tokens required" if settings.needs_token else "development mode, no credentials"
    guarded = [surface.name for surface in SURFACES if surface.has_credentials(settings)]
    if guarded and not settings.needs_token:
        mode += f" but for {', '.join(guarded)}"
    kept = shown(settings.store) if settings.store else f"data in {Path(settings.data).resolve()}"
    if settings.control_port:
        kept += f"; control on port {settings.control_port}"
    flag = "" if url == DEFAULT_URL else f" --url {url}"
    return TRY_NEXT.format(url=url, mode=f"{mode}; {kept}", semel=_own_name(), flag=flag)


def _own_name() -> str:
    """How this program is called from here: `semel` where that finds it, else the path to it."""
    called = Path(sys.argv[0])
    if called.name != "semel" or shutil.which("semel") == str(called.resolve()):
        return "semel" if called.name == "semel" else f"{Path(sys.executable).name} -m semel"
    return os.path.relpath(called)


serve = serve_command()
