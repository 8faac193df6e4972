"""`semel token`: create, list, rotate and revoke the tokens in the store of a server.

A token is made by this command and printed once; the server and its store get its SHA-256. With --offline the command
opens the store itself: for the first token, and when no administrator's token is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import click

from semel.cli.command import Arg, Json, Opt, ParsedType, Sure, command, group
from semel.cli.output import Listing, Said, printable
from semel.cli.session import advised
from semel.cli.store_options import StoreOptions
from semel.client import Client
from semel.client.tokens import NewToken, TokenInfo, create_body, new_secret, rotate_body, token_info
from semel.kernel.namespace import DEFAULT

if TYPE_CHECKING:
    from semel.server.offline_tokens import OfflineTokens

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MAX_DAYS = 36_500
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_LOST = "It is unknown whether it took effect: `semel token list` tells; revoke a token that is listed and not known."


def _seconds(text: str) -> int:
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * UNITS[found[2]] if found else -1
    if not 0 <= seconds <= MAX_DAYS * UNITS["d"]:
        raise ValueError("give a number and a unit, such as 90s, 30m, 24h or 30d")
    return seconds


DURATION = ParsedType("duration", _seconds)
Expires = Annotated[int | None, Opt("Time until it expires, such as 12h or 90d; never by default.", type=DURATION)]
Roles = Annotated[tuple[str, ...], Opt("Role: read, write, work or admin; read and write by default.", "--role")]
Scopes = Annotated[tuple[str, ...], Opt("Scope, such as streams:orders/*; everything by default.", "--scope")]

token = group("token", "Create, list, rotate and revoke the tokens in the store of a server.")


@dataclass(frozen=True)
class Offline(StoreOptions):
    """The choice between the server and its store."""

    offline: Annotated[
        bool, Opt("Open the store itself; the server of a data folder must be stopped, nodes of a database may run.")
    ] = False

    @contextmanager
    def tokens(self) -> Iterator[OfflineTokens | None]:
        """The tokens of the store; None if the command goes through the server."""
        if not self.offline:
            if self.store is not None or self.data is not None or self.namespace != DEFAULT:
                raise click.UsageError("--store, --data and --namespace name the store to open: give --offline too.")
            yield None
            return
        from semel.engine.contract import EngineError, OutcomeUnknownError  # noqa: PLC0415
        from semel.kernel.errors import Refused  # noqa: PLC0415
        from semel.server.offline_tokens import OfflineTokens  # noqa: PLC0415 - only this needs the store's libraries
        from semel.store.protocol import StoreError  # noqa: PLC0415

        try:
            yield OfflineTokens(self.settings())
        except Refused as error:
            raise click.ClickException(error.refusal.message) from error
        except OutcomeUnknownError as error:
            raise click.ClickException(f"{error} {_LOST}") from error
        except (StoreError, EngineError) as error:
            raise click.ClickException(str(error)) from error


@command(token)
def create(
    client: Client,
    name: Arg,
    where: Offline,
    roles: Roles = (),
    scopes: Scopes = (),
    expires: Expires = None,
    as_json: Json = False,
) -> None:
    """Create a token for the principal NAME, and print it once.

    Standard output has the token alone: `semel token create orders > orders.token`. It cannot be shown again.
    """
    ends = _expiry(expires)
    with where.tokens() as tokens:
        if tokens is None:
            with advised(_LOST):
                made = client.tokens.create(name, roles=roles, scopes=scopes, expires_at=ends)
        else:
            secret = new_secret()
            made = NewToken(token_info(tokens.create(create_body(secret, name, roles, scopes, ends))), secret)
    _show(made, as_json, f"Created the token {made.info.id} of {made.info.name}{_until(made.info)}.")


@command(token)
def rotate(
    client: Client,
    token_id: Arg,
    where: Offline,
    overlap: Annotated[int, Opt("Time for which the old token stays valid.  [24h]", type=DURATION)] = 86_400,
    expires: Expires = None,
    as_json: Json = False,
) -> None:
    """Create the successor of a token, with the same name, roles and scopes, and print it once.

    The old token ends after --overlap. Without --expires the successor lives for as long as the old one was made for.
    """
    ends = _expiry(expires)
    with where.tokens() as tokens:
        if tokens is None:
            with advised(_LOST):
                made = client.tokens.rotate(token_id, overlap=overlap, expires_at=ends)
        else:
            secret = new_secret()
            facts = tokens.rotate(token_id, rotate_body(secret, overlap * 1_000, ends))
            made = NewToken(token_info(facts), secret)
    replaced = token_info(made.info.facts["replaces"])
    told = f"Created the token {made.info.id} of {made.info.name}{_until(made.info)}."
    _show(made, as_json, f"{told} The old one, {replaced.id}, ends at {replaced.ends_at}.")


@command(token)
def revoke(client: Client, token_id: Arg, where: Offline, sure: Sure) -> Said:
    """End a token at once, and what is connected with it."""
    with where.tokens() as tokens:
        about = _about(client, tokens, token_id)
        planned = sure.plan({"id": token_id}, about, "revoke", "Revoking cannot be undone")
        if planned is not None:
            return planned
        info = client.tokens.revoke(token_id) if tokens is None else token_info(tokens.revoke(token_id))
    if not info.is_changed:
        raise click.ClickException(f"The token {token_id} was revoked before, at {info.revoked_at}.")
    return Said({**info.facts, "revoked": True, "dry_run": False}, f"Revoked the token {info.id} of {info.name}.")


@command(token, "list")
def list_(client: Client, where: Offline) -> Listing[TokenInfo]:
    """List all tokens in the store, also those that ended lately. No secret is shown."""
    with where.tokens() as tokens:
        found = client.tokens.list() if tokens is None else [token_info(one) for one in tokens.list()]
    head = ("ID", "NAME", "ROLES", "SCOPES", "STATE", "CREATED", "ENDS", "SUCCESSOR")
    return Listing(found, head, _row, "There are no tokens in the store.")


def _about(client: Client, tokens: OfflineTokens | None, token_id: str) -> Callable[[], str]:
    def about() -> str:
        listed = client.tokens.list() if tokens is None else [token_info(one) for one in tokens.list()]
        found = next((one for one in listed if one.id == token_id), None)
        if found is None:
            raise click.ClickException(f"There is no token {token_id}: `semel token list` shows all.")
        return f"the token {found.id} of {found.name}, {', '.join(found.roles)}, created at {found.created_at}."

    return about


def _expiry(seconds: int | None) -> str | None:
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def _until(info: TokenInfo) -> str:
    return "" if info.ends_at is None else f", valid until {info.ends_at}"


def _show(made: NewToken, as_json: bool, told: str) -> None:
    """Print a new token: with --json in an object, otherwise alone, with the rest on standard error."""
    if as_json:
        facts: dict[str, Any] = {**made.info.facts, "token": made.secret}
        click.echo(json.dumps(facts))
        return
    click.echo(printable(f"{told} Keep the token now: it is stored nowhere."), err=True)
    click.echo(made.secret)


def _row(one: TokenInfo) -> tuple[object, ...]:
    scopes = "all" if one.scopes is None else ", ".join(one.scopes)
    ends = one.revoked_at or one.ends_at or "never"
    return one.id, one.name, ", ".join(one.roles), scopes, one.state, one.created_at, ends, one.successor or ""
