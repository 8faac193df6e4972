"""`semel streams`: create, fork, write, read, follow and delete streams from a terminal or a script."""

from __future__ import annotations

import json
import shlex
import sys
from base64 import b64encode
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, BinaryIO

import click

from semel.cli.command import (
    Arg,
    InFile,
    Json,
    MaybeArg,
    Opt,
    OptionSet,
    Positional,
    Retrying,
    Sure,
    command,
    group,
)
from semel.cli.output import Listing, Said, content_out, printable
from semel.cli.session import advised, sentence
from semel.cli.source import STDIN, open_source, read_whole
from semel.cli.stream_lines import AppendedLines, closing_words
from semel.cli.subscriptions import subscriptions
from semel.client import Client
from semel.client.errors import AccessError, NotFoundError
from semel.client.streams.calls import fresh_key
from semel.client.streams.content import is_json
from semel.client.streams.values import ContentPage, StreamInfo, StreamProducer

streams = group("streams", "Append-only logs that readers can follow.")
streams.add_command(subscriptions)

MediaType = Annotated[str | None, Opt("Media type, such as application/json.", "--type", "MIME")]
COUNT = click.IntRange(0)
Key = Annotated[str | None, Opt("Idempotency-Key; by default a new one.")]


@dataclass(frozen=True)
class NewStream(OptionSet):
    """The settings and the first content of a stream."""

    content_type: MediaType = None
    ttl: Annotated[
        int | None, Opt("Delete the stream after it was not used for this time.", "--ttl", "SECONDS", COUNT)
    ] = None
    expires_at: Annotated[
        str | None, Opt("Delete the stream at this time, such as 2030-01-31T12:00:00Z.", "", "RFC3339")
    ] = None
    retention_age: Annotated[int | None, Opt("Delete content after this time; 0 is never.", "", "SECONDS", COUNT)] = (
        None
    )
    retention_bytes: Annotated[
        int | None, Opt("Keep this much of the newest content; 0 is all.", "", "BYTES", COUNT)
    ] = None
    closed: Annotated[bool, Opt("Create the stream closed: it has only the content given here.")] = False
    data: Annotated[str | None, Opt("First content of the stream.", "", "TEXT")] = None
    file: Annotated[BinaryIO | None, Opt("File with the first content; - is standard input.")] = None

    def arguments(self, *, from_stdin: bool = False) -> dict[str, Any]:
        """The arguments of a call of the client."""
        source = open_source(self.data, self.file, from_stdin=from_stdin)
        given = {name: value for name, value in vars(self).items() if name != "file"}
        return {**given, "data": None if source is None else read_whole(source)}


def _made(made: StreamInfo) -> Said:
    outcome = "Created" if made.is_created else "Already there:"
    state = ", closed" if made.is_closed else ""
    words = f"{outcome} {made.name} ({made.content_type}, at {made.tail}{state})"
    return Said({"name": made.name, "created": made.is_created, **_facts(made)}, words)


@command(streams)
def create(
    client: Client,
    name: Arg,
    new: NewStream,
    stdin: Annotated[str | None, Positional("[-]", click.Choice([STDIN]))] = None,
) -> Said:
    """Create a stream, or confirm that it exists. With -, its first content is read from standard input."""
    return _made(client.streams.create(name, **new.arguments(from_stdin=stdin == STDIN)))


@command(streams)
def fork(
    client: Client,
    source: Arg,
    name: Arg,
    new: NewStream,
    offset: Annotated[str | None, Opt("Offset in SOURCE up to which it is shared; its tail by default.")] = None,
    sub_offset: Annotated[
        int | None, Opt("Take this many messages, or bytes, of the append after the offset, too.", "", "N", COUNT)
    ] = None,
) -> Said:
    """Create the stream NAME with the content of SOURCE. Later appends to one are not seen in the other."""
    return _made(client.streams.fork(source, name, offset=offset, sub_offset=sub_offset, **new.arguments()))


def _facts(stream: StreamInfo) -> dict[str, Any]:
    return {"content_type": stream.content_type, "next_offset": stream.tail, "closed": stream.is_closed}


@command(streams)
def ls(
    client: Client,
    prefix: Annotated[str, Positional()] = "",
    forks_of: Annotated[str | None, Opt("Only the forks of this stream.", "", "NAME")] = None,
) -> Listing[dict[str, Any]]:
    """List all streams, or those whose names start with PREFIX."""
    none = f"No stream name starts with {printable(prefix)}." if prefix else "There are no streams."
    if forks_of is not None:
        none = f"No such stream was forked from {printable(forks_of)}."
    head = ("NAME", "TYPE", "NEXT OFFSET", "STATE", "EXPIRES")
    return Listing(client.streams.walk(prefix, source=forks_of), head, _stream_row, none, json.dumps)


def _stream_row(stream: dict[str, Any]) -> tuple[str, ...]:
    ttl, state = stream["ttl_seconds"], "closed" if stream["closed"] else "open"
    expiry = f"{ttl} s after use" if ttl is not None else stream["expires_at"] or "never"
    return stream["name"], stream["content_type"], stream["next_offset"], state, expiry


@command(streams)
def producers(client: Client, name: Arg) -> Listing[StreamProducer]:
    """List the producers of a stream with their epochs and last accepted sequences."""
    none = "No producer has written to this stream."
    head = ("PRODUCER", "EPOCH", "LAST SEQUENCE")
    return Listing(client.streams.producers(name), head, _producer_row, none, lambda one: json.dumps(asdict(one)))


def _producer_row(one: StreamProducer) -> tuple[object, ...]:
    return "(an id of more than 32 bytes)" if one.id is None else one.id, one.epoch, one.seq


@command(streams)
def rm(client: Client, name: Arg, sure: Sure) -> Said:
    """Delete a stream, its content and its keys."""
    sure.refuse_silence("Deleting cannot be undone")
    if not sure.yes or sure.dry_run:
        stream = client.streams.info(name)
        state = "closed" if stream.is_closed else "open"
        about = printable(f"{name} ({stream.content_type}, {state}, up to {stream.tail})")
        if sure.dry_run:
            return Said({"name": name, "deleted": False, "dry_run": True, **_facts(stream)}, f"Would delete {about}")
        sure.ask("Delete it?", about)
    client.streams.delete(name)
    return Said({"name": name, "deleted": True, "dry_run": False}, f"Deleted {name}")


@command(streams)
def append(
    client: Retrying,
    name: Arg,
    text: MaybeArg = None,
    file: InFile = None,
    content_type: Annotated[str | None, Opt("Media type; by default that of the stream.", "--type", "MIME")] = None,
    key: Key = None,
    lines: Annotated[bool, Opt("Append each line separately, with the key KEY-1, KEY-2, ...")] = False,
    close: Annotated[bool, Opt("Close the stream after the content, if any.")] = False,
    seq: Annotated[str | None, Opt("Stream-Seq; the append is refused unless it is greater than the last one.")] = None,
) -> Said:
    """Append content to a stream, exactly once. TEXT may be - for standard input.

    After a lost connection or a busy server the request is retried with the same key, which the server stores at most
    once. Run an interrupted `--lines` again with the same --key to continue where it stopped.
    """
    # A pipe into `append --lines` needs no dash: `tail -f app.log | semel streams append logs/app --lines`.
    is_piped = lines and text is None and file is None and not sys.stdin.isatty()
    from_stdin = text == STDIN or is_piped
    source = open_source(None if text == STDIN else text, file, from_stdin=from_stdin)
    if source is None and (lines or not close):
        raise click.UsageError("Give content: TEXT, or --file FILE, or - for standard input.")
    if lines and seq is not None:
        raise click.UsageError("Give --seq or --lines, not both: --seq belongs to one append.")
    used = fresh_key() if key is None else key
    try:
        if source is not None and content_type is None:
            content_type = _type_of(client, name)
        if lines and source is not None:
            appended = AppendedLines(client, name, used, content_type or "")
            return (appended.follow if is_piped and key is None else appended.import_lines)(source, close=close)
        content = None if source is None else read_whole(source)
        return _append(client, name, used, content, content_type=content_type, seq=seq, close=close)
    except NotFoundError as error:
        hint = f"Create it with `semel streams create {shlex.quote(name)} --type MIME`."
        raise click.ClickException(f"{sentence(error)} {printable(hint)}") from error


def _type_of(client: Client, name: str) -> str:
    try:
        return client.streams.info(name).content_type
    except AccessError as error:
        if error.status == 403:
            raise click.ClickException(f"{sentence(error)} Give --type to skip this request.") from error
        raise


def _append(client: Client, name: str, key: str, content: bytes | None, **options: Any) -> Said:
    """Append the content; without content, close the stream."""
    with advised(f"It may be stored: run this again with --key {key} to store it exactly once."):
        if content is None:
            stored = client.streams.close(name, key=key, seq=options.get("seq"))
        else:
            stored = client.streams.append(name, content, key=key, **options)
    facts = {"name": name, "key": key, "next_offset": stored.offset, "replayed": stored.replayed}
    outcome = "Already stored (replayed)" if stored.replayed else "Stored"
    words = f"{outcome} in {name}; next offset {stored.offset}{closing_words(stored)}"
    return Said({**facts, "closed": stored.is_closed}, words)


@command(streams)
def close(client: Retrying, name: Arg, key: Key = None) -> Said:
    """Close a stream: no more content can follow."""
    return _append(client, name, key or fresh_key(), None)


@command(streams)
def read(
    client: Client,
    name: Arg,
    offset: Annotated[
        str, Opt("Offset to start at: -1 (the beginning), now, or a next offset.", show_default=True)
    ] = "-1",
    as_json: Json = False,
) -> None:
    """Print a stream's content: JSON one message per line, other types byte for byte."""
    with content_out() as out:
        pages = client.streams.pages(name, offset)
        if as_json:
            out.write(_object(list(pages)))
        else:
            for page in pages:
                out.write(_shown(page))


@command(streams)
def tail(
    client: Client,
    name: Arg,
    offset: Annotated[
        str | None, Opt("Offset to start at: now (the default), -1 (the beginning), or a next offset.")
    ] = None,
    from_start: Annotated[bool, Opt("Start at the beginning, as --offset -1 does.")] = False,
    as_json: Json = False,
) -> None:
    """Follow a stream live: JSON one message per line, other types byte for byte.

    It reconnects from the last offset; Control-C ends it.
    """
    if from_start and offset is not None:
        raise click.UsageError("Give --offset or --from-start, not both.")
    start = "-1" if from_start else "now" if offset is None else offset
    # Control-C is the usual way to stop, so it is not a failure.
    with suppress(KeyboardInterrupt), content_out() as out:
        content_type = client.streams.info(name).content_type
        for page in client.streams.tail(name, start):
            known = replace(page, content_type=content_type)  # an answer without content has none
            out.write(_object([known]) if as_json else _shown(known))
            out.flush()


def _object(pages: list[ContentPage]) -> bytes:
    """`{"messages":[...], ...}`, with each message in its original text, so that no number changes."""
    last = pages[-1]
    facts = {"content_type": last.content_type, "next_offset": last.next_offset, "closed": last.is_closed}
    if is_json(last.content_type):
        texts = ", ".join(text for page in pages for text in page.texts())
        return f'{{"messages": [{texts}], {json.dumps(facts)[1:]}\n'.encode()
    content = b"".join(page.data for page in pages)
    try:
        shown = {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        shown = {"base64": b64encode(content).decode()}
    return json.dumps(shown | facts).encode() + b"\n"


def _shown(page: ContentPage) -> bytes:
    """The content for people: the messages of a JSON array, one per line; other types byte for byte."""
    return "".join(f"{text}\n" for text in page.texts()).encode() if is_json(page.content_type) else page.data
