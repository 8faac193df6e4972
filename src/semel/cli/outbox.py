"""`semel outbox`: delivers the messages of an outbox, lists them, and retries or drops those that were refused.

Headers, bodies and queries of URLs are not shown. Many messages are changed only after a confirmation or with `--yes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import click

from semel.cli.command import AT_LEAST_1, SECONDS, Json, Opt, OptionSet, Positional, Sure, Yes, command, group
from semel.cli.once import Place, once_failures
from semel.cli.output import Listing, Said, log_to_stderr, printable, progress
from semel.once import MessageState, MessageStatus, Outbox
from semel.once.message_table import TABLE
from semel.once.messages import MAX_ATTEMPTS
from semel.once.outbox_process import deliver_until_signal, refuse_missing

outbox = group("outbox", "Outbox: requests that are stored first, then sent until they are answered.")

HEAD = ("KEY", "STATE", "TRIES", "STATUS", "NEXT", "ORDER", "TO", "ERROR")
COLOURS = {"done": "green", "poison": "red", "unknown": "red", "sent": "yellow"}
DEFAULT = 100
MARGIN_SECONDS = 30.0
"""How much longer a lease is than one attempt."""
ATTEMPTS_HELP = f"Refusals after which a message is set aside as poison.  [{MAX_ATTEMPTS}]"
GIVE_UP_HELP = "Age at which an undelivered message is set aside as poison.  [3d]"
KEPT_HELP = "How long receivers keep a key; later no message is repeated that may have arrived.  [24h]"
_STATES = [state.value for state in MessageState]
Keys = Annotated[tuple[str, ...], Positional("KEY...")]
Poison = Annotated[bool, Opt("Select all poison messages.")]


@dataclass(frozen=True)
class OutboxPlace(OptionSet):
    """Where an outbox is."""

    place: Place
    table: Annotated[str, Opt(f"Name of the table of messages.  [{TABLE}]", "", "NAME")] = TABLE

    @contextmanager
    def opened(self, *, creates: bool = False, **options: Any) -> Iterator[Outbox]:
        """The outbox. A missing file is an error, unless the command creates it."""
        with once_failures():
            if not creates:
                refuse_missing(self.place, self.table)
            box = Outbox(self.place, table=self.table, **options)
            try:
                yield box
            finally:
                box.close()


@command(outbox)
def drop(
    at: OutboxPlace,
    keys: Keys = (),
    poison: Poison = False,
    dry_run: Annotated[bool, Opt("Print what would be deleted, and change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete undelivered messages. PLACE is a file or a postgresql:// URL."""
    with at.opened() as box:
        _apply(box, CliOutboxChange("Drop", "Dropped", "Dropping", box.drop), keys, poison, Sure(dry_run, yes), as_json)


@command(outbox)
def init(at: OutboxPlace) -> Said:
    """Create the tables of an outbox if they do not exist. PLACE is a file or a postgresql:// URL."""
    with at.opened(creates=True) as box:
        box.store.create()
    shown = at.place if "://" not in at.place else "the database"
    return Said({"table": at.table, "ready": True}, f"The table {at.table} is ready in {shown}")


@command(outbox)
def ls(
    at: OutboxPlace,
    state: Annotated[str | None, Opt("List only messages in this state.", type=click.Choice(_STATES))] = None,
    limit: Annotated[int | None, Opt(f"Maximum messages to list.  [{DEFAULT}]", "", "N", AT_LEAST_1)] = None,
    is_all: Annotated[bool, Opt("List all messages.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """List the messages of an outbox, oldest first. PLACE is a file or a postgresql:// URL."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    with at.opened() as box:
        _listing(box.messages(state), most).show(as_json)


def _listing(messages: Iterable[MessageStatus], most: int | None = None) -> Listing[MessageStatus]:
    more = "" if most is None else f"There are more than {most} messages: give a higher --limit, or --all."
    return Listing(
        messages,
        HEAD,
        _row,
        "No messages match.",
        lambda message: json.dumps(message._asdict()),
        most,
        more,
        lambda message: COLOURS.get(message.state),
    )


def _row(message: MessageStatus) -> tuple[object, ...]:
    wait = f"{message.wait_seconds:.0f} s" if message.wait_seconds > 0 else "now" if message.state == "queued" else ""
    status = "" if message.status is None else message.status
    to, order, error = f"{message.method} {message.url}", message.order_by or "", message.error or ""
    return message.key, message.state, message.attempts, status, wait, order, to, error


@command(outbox)
def retry(
    at: OutboxPlace,
    keys: Keys = (),
    poison: Poison = False,
    dry_run: Annotated[bool, Opt("Print what would be sent again, and change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send messages again now, with the same keys. PLACE is a file or a postgresql:// URL."""
    with at.opened() as box:
        change = CliOutboxChange("Send again", "Queued", "Queueing", box.retry)
        _apply(box, change, keys, poison, Sure(dry_run, yes), as_json)


class CliOutboxChange(NamedTuple):
    """A change of messages, and the words that report it."""

    verb: str
    past: str
    label: str
    carry_out: Callable[[str], bool]


def _apply(
    box: Outbox, change: CliOutboxChange, keys: tuple[str, ...], poison: bool, sure: Sure, as_json: bool
) -> None:
    if poison == bool(keys):
        raise click.UsageError("Give message keys, or --poison for all poison messages, not both.")
    if poison or len(keys) > 1:
        sure.refuse_silence("Standard input is not a terminal", "give --yes to change more than one message")
    found = list(box.messages("poison")) if poison else [_named(box, key) for key in keys]
    if sure.dry_run:
        _plan(change, found, as_json)
        return
    if len(found) > 1 and not sure.yes:
        _listing(found).show(False)
        sure.ask(f"{change.verb} these {len(found)} messages?")
    _carry_out(change, found, as_json)


def _named(box: Outbox, key: str) -> MessageStatus:
    found = box.status(key)
    if found is None:
        raise click.ClickException(f"There is no message with the key {printable(key)}.")
    return found


def _plan(change: CliOutboxChange, found: list[MessageStatus], as_json: bool) -> None:
    if as_json:
        for message in found:
            click.echo(json.dumps({"key": message.key, change.past.lower(): False, "dry_run": True}))
        return
    if found:
        _listing(found).show(False)
    click.echo(f"Would {change.verb.lower()} {len(found)} messages.")


def _carry_out(change: CliOutboxChange, found: list[MessageStatus], as_json: bool) -> None:
    done = 0
    with progress(len(found) if len(found) > 1 else None, change.label) as advance:
        for message in found:
            is_done = change.carry_out(message.key)
            done += is_done
            if as_json:
                click.echo(json.dumps({"key": message.key, change.past.lower(): is_done, "dry_run": False}))
            elif not is_done:
                click.echo(f"{printable(message.key)} is delivered or being sent: it was not changed.", err=True)
            advance(1)
    if not as_json:
        what = printable(found[0].key) if done == len(found) == 1 else f"{done} messages"
        click.echo(f"{change.past} {what}")
    if done < len(found):
        raise click.ClickException(f"{len(found) - done} of {len(found)} messages were not changed.")


@command(outbox)
def run(
    at: OutboxPlace,
    is_once: Annotated[bool, Opt("Exit when no message can be sent any more.", "--once")] = False,
    seconds: Annotated[
        float, Opt("With --once: exit after this time at the latest, in seconds.  [60]", "", "N", SECONDS)
    ] = 60.0,
    concurrency: Annotated[
        int, Opt("Maximum number of concurrent deliveries.  [8]", "", "N", click.IntRange(1, 256))
    ] = 8,
    timeout: Annotated[
        float, Opt("Time limit of one delivery attempt, in seconds.  [30]", "", "SECONDS", click.FloatRange(0.1, 3_600))
    ] = 30.0,
    max_attempts: Annotated[int, Opt(ATTEMPTS_HELP, "", "N", click.IntRange(1, 10_000))] = MAX_ATTEMPTS,
    give_up_after: Annotated[str, Opt(GIVE_UP_HELP, "", "TIME")] = "3d",
    keys_kept: Annotated[str, Opt(KEPT_HELP, "", "TIME")] = "24h",
    as_json: Json = False,
) -> None:
    """Deliver the messages of an outbox until SIGTERM or Control-C. PLACE is a file or a postgresql:// URL.

    Several processes may deliver one outbox: each message is sent by one of them. A second signal exits at once.
    """
    log_to_stderr("semel.outbox")
    limits: dict[str, Any] = {"concurrency": concurrency, "timeout": timeout, "lease": timeout + MARGIN_SECONDS}
    limits |= {"max_attempts": max_attempts, "give_up_after": give_up_after, "keys_kept": keys_kept}
    with at.opened(**limits) as box:
        next(box.messages(), None)  # fail on a missing table before "Delivering" is printed
        if not is_once:
            click.echo("Delivering messages; Control-C stops it.", err=True)
        found = deliver_until_signal(box, seconds if is_once else None)
    words = f"Delivered {found.delivered} messages; {found.failed} attempts failed, {found.poisoned} became poison"
    Said(found._asdict(), words + (f", {found.unknown} unknown." if found.unknown else ".")).show(as_json)
    if is_once and found.unknown:
        raise click.ClickException(
            f"{found.unknown} messages may have arrived and are not sent again: see `semel outbox ls --state unknown`."
        )
    if is_once and found.left:
        raise click.ClickException("Some messages could not be sent yet: run this again, or see `semel outbox ls`.")
