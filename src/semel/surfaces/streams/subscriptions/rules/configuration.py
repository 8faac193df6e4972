"""Create and delete subscriptions, link and unlink streams, adopt new links, and free the links of what has ended.

A link to an existing stream begins at its tail. The stream does not leave marks yet: `adopt` sets that under the lock
of the stream and compares the tail once more, so an append between the two is found. A crash in between loses nothing:
the dispatcher finds links that are not adopted when it starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER
from semel.store.protocol import Range
from semel.surfaces.streams.rules.expiry import living
from semel.surfaces.streams.subscriptions.commands import (
    MATCHED_STREAMS,
    KeysEnsure,
    LinksAdopt,
    LinksFree,
    NamedStream,
    StreamLinksFree,
    StreamsLink,
    StreamUnlink,
    SubscriptionDelete,
    SubscriptionKept,
    SubscriptionKeys,
    SubscriptionLimits,
    SubscriptionPut,
)
from semel.surfaces.streams.subscriptions.rules.globs import first_segment, is_literal, literal_prefix, matches
from semel.surfaces.streams.subscriptions.rules.links import has_work, new_link, with_kind
from semel.surfaces.streams.subscriptions.tables import (
    COUNT_KEY,
    ENDED,
    EXPLICIT,
    FACT,
    GLOB,
    GLOB_KIND,
    IDLE,
    LINK,
    NEW,
    READY,
    SECRET_KEY,
    SIGNING_KEY,
    SUBSCRIPTION,
    TOPIC,
    EndedRow,
    GlobRow,
    LinkRow,
    SigningKeyRow,
    SubscriptionFactRow,
    SubscriptionRow,
    own_count_key,
)
from semel.surfaces.streams.tables import STREAM, StreamRow

MISSING = Refusal("SUBSCRIPTION_NOT_FOUND", "There is no subscription of this id; create it with PUT first.")
TAKEN = Refusal("SUBSCRIPTION_ALREADY_EXISTS", "The subscription exists with another configuration.")
KEY_RANGE = Range(SIGNING_KEY, "", (), 100)
"""All signing keys."""

QUOTA_RETRY_MS = 10_000
_NOTHING = DecisionResult(None)


def put(view: View, command: SubscriptionPut, now: Now, limits: SubscriptionLimits) -> DecisionResult:
    """Create a subscription and link the streams that exist, or compare an existing one by its configuration."""
    known = view.get(SUBSCRIPTION, (command.name,))
    if known is not None:
        if known.config == command.config:
            return DecisionResult(SubscriptionKept(False, known))
        return DecisionResult(TAKEN)
    count = view.get(FACT, COUNT_KEY) or SubscriptionFactRow(COUNT_KEY[0], 0, b"")
    if count.number >= limits.subscriptions:
        detail = f"There are {count.number} subscriptions already, and more are not allowed; delete one first."
        return DecisionResult(Refusal("SUBSCRIPTION_LIMIT", detail))
    own = _own_count(view, command.creator)
    if command.most_own and own >= command.most_own:
        return DecisionResult(_quota_refusal(command.most_own))
    found = matched_streams(view, command.pattern)
    if len(found) > MATCHED_STREAMS:
        detail = f"More than {MATCHED_STREAMS} streams have the beginning of this pattern; use a longer one."
        return DecisionResult(Refusal("INVALID_REQUEST", detail))
    row = _new_row(command, now)
    links = _first_links(view, command, found, now)
    view.insert(SUBSCRIPTION, row)
    view.insert_all(LINK, links)
    if command.pattern is not None:
        view.insert(GLOB, GlobRow(first_segment(command.pattern), command.life, command.name, command.pattern))
    view.put(FACT, count._replace(number=count.number + 1))
    _set_own_count(view, command.creator, own + 1)
    return DecisionResult(SubscriptionKept(True, row), signals=(TOPIC,))


def _own_count(view: View, creator: bytes) -> int:
    """The number of subscriptions that a principal has created; 0 without a credential."""
    row = view.get(FACT, own_count_key(creator)) if creator else None
    return 0 if row is None else row.number


def _set_own_count(view: View, creator: bytes, number: int) -> None:
    if not creator:
        return
    key = own_count_key(creator)
    if number > 0:
        view.put(FACT, SubscriptionFactRow(key[0], number, b""))
    elif view.get(FACT, key) is not None:
        view.delete(FACT, key)


def _quota_refusal(most: int) -> Refusal:
    detail = f"The quota subscriptions of this principal is {most}. Nothing was stored; delete a subscription first."
    return Refusal("QUOTA_EXCEEDED", detail, {"quota": "subscriptions"}, retry_after_ms=QUOTA_RETRY_MS)


def prefix_range(pattern: bytes) -> Range:
    """The streams that may match a pattern: their names begin with its literal part."""
    prefix = literal_prefix(pattern)
    kept = prefix.rstrip(b"\xff")
    stop = (kept[:-1] + bytes([kept[-1] + 1]),) if kept else ()
    if is_literal(pattern):
        stop = (pattern + b"\x00",)
    return Range(STREAM, "path", (), MATCHED_STREAMS + 1, start=(prefix,), stop=stop)


def matched_streams(view: View, pattern: bytes | None) -> Sequence[StreamRow]:
    """The streams under the literal prefix of a pattern, matching or not."""
    return [] if pattern is None else view.range(prefix_range(pattern))


def _new_row(command: SubscriptionPut, now: Now) -> SubscriptionRow:
    return SubscriptionRow(
        name=command.name,
        life=command.life,
        id=command.id,
        kind=command.kind,
        pattern=command.pattern,
        url=command.url,
        wake_stream=command.wake_stream,
        lease_ttl_ms=command.lease_ttl_ms,
        description=command.description,
        config=command.config,
        base=command.base,
        created_at=now.ms,
        generation=0,
        wake_id=b"",
        phase=IDLE,
        holder=b"",
        attempts=0,
        failed=0,
        owner=b"",
        due_at=NEVER,
        creator=command.creator,
    )


def _first_links(view: View, command: SubscriptionPut, found: Iterable[StreamRow], now: Now) -> list[LinkRow]:
    links: dict[bytes, LinkRow] = {}
    for row in found:
        assert command.pattern is not None
        stream = living(row, now)
        if stream is not None and matches(command.pattern, stream.path):
            links[row.scope] = new_link(command.life, command.name, stream, GLOB_KIND, stream.tail, NEW)
    for named in command.streams:
        known = links.get(named.scope)
        if known is not None:
            links[named.scope] = with_kind(known, EXPLICIT | GLOB_KIND)
        else:
            links[named.scope] = _explicit_link(view, command.life, command.name, named, now)
    return list(links.values())


def _explicit_link(view: View, life: bytes, name: bytes, named: NamedStream, now: Now) -> LinkRow:
    """A link at the tail, or to a stream that does not exist yet: then everything in it counts."""
    stream = living(view.get(STREAM, (named.scope,)), now)
    if stream is not None:
        return new_link(life, name, stream, EXPLICIT, stream.tail, NEW)
    return LinkRow(life, named.scope, name, named.path, EXPLICIT, 0, b"", 0, 1, 0, 0, READY)


def explicit_range(life: bytes, limit: int) -> Range:
    """The explicit links of a subscription."""
    return Range(LINK, "explicit", (life, 0), limit)


def link(view: View, command: StreamsLink, now: Now, limits: SubscriptionLimits) -> DecisionResult:
    """Add explicit streams at their tails; a stream that is linked already keeps its cursor."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None or row.life != command.life:
        return DecisionResult(MISSING)
    if any(named.path == row.wake_stream for named in command.streams):
        return DecisionResult(Refusal("INVALID_REQUEST", "A subscription cannot follow its own wake_stream."))
    held = {one.scope for one in view.range(explicit_range(command.life, limits.explicit_streams + 1))}
    fresh = [named for named in command.streams if named.scope not in held]
    if len(held) + len(fresh) > limits.explicit_streams:
        detail = f"A subscription may have at most {limits.explicit_streams} explicit streams; use a pattern."
        return DecisionResult(Refusal("INVALID_REQUEST", detail))
    for named in fresh:
        known = view.get(LINK, (command.life, named.scope))
        if known is not None:
            view.put(LINK, with_kind(known, known.kind | EXPLICIT))
        else:
            view.put(LINK, _explicit_link(view, command.life, command.name, named, now))
    return DecisionResult(True, signals=(TOPIC,) if fresh else ())


def unlink(view: View, command: StreamUnlink, now: Now) -> DecisionResult:
    """Remove an explicit stream; if it exists and matches the pattern, the link stays as a glob link."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None or row.life != command.life:
        return DecisionResult(MISSING)
    key = (command.life, command.stream.scope)
    known = view.get(LINK, key)
    if known is None or not known.kind & EXPLICIT:
        return DecisionResult(False)
    is_matched = row.pattern is not None and matches(row.pattern, command.stream.path)
    if is_matched and living(view.get(STREAM, (command.stream.scope,)), now) is not None:
        view.put(LINK, with_kind(known, GLOB_KIND))
    else:
        view.delete(LINK, key)
    return DecisionResult(True)


def delete(view: View, command: SubscriptionDelete) -> DecisionResult:
    """Delete a subscription: later callbacks, acks and releases find none, and its links are freed later."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is None:
        return DecisionResult(False)
    view.delete(SUBSCRIPTION, (command.name,))
    if row.pattern is not None:
        view.delete(GLOB, (first_segment(row.pattern), row.life))
    view.insert(ENDED, EndedRow(row.life, row.name))
    count = view.get(FACT, COUNT_KEY)
    if count is not None:
        view.put(FACT, count._replace(number=max(0, count.number - 1)))
    _set_own_count(view, row.creator, _own_count(view, row.creator) - 1)
    return DecisionResult(True, signals=(TOPIC,))


def adopt(view: View, command: LinksAdopt, now: Now) -> DecisionResult:
    """Let streams leave marks, and find what was appended since they were linked."""
    row = view.get(SUBSCRIPTION, (command.name,))
    is_alive = row is not None and row.life == command.life
    has_found = False
    for scope in command.scopes:
        known = view.get(LINK, (command.life, scope))
        if known is None or known.state == READY:
            continue
        stream = view.get(STREAM, (scope,))
        if stream is None or stream.gone:  # it has ended since, and left no mark
            _end_link(view, known._replace(state=READY))
            continue
        if not stream.subscribed and is_alive:
            view.put(STREAM, stream._replace(subscribed=1))
        found = has_work(known, living(stream, now))
        view.put(LINK, known._replace(state=READY, quiet=0 if found else known.quiet))
        has_found = has_found or found
    if row is not None and is_alive and has_found and row.phase == IDLE and row.due_at == NEVER:
        view.put(SUBSCRIPTION, row._replace(due_at=now.steady_ms))
    return DecisionResult(True)


def free(view: View, command: LinksFree) -> DecisionResult:
    """Free links of a deleted subscription."""
    row = view.get(SUBSCRIPTION, (command.name,))
    if row is not None and row.life == command.life:
        return _NOTHING
    for scope in command.scopes:
        if view.get(LINK, (command.life, scope)) is not None:
            view.delete(LINK, (command.life, scope))
    if command.is_last and view.get(ENDED, (command.life,)) is not None:
        view.delete(ENDED, (command.life,))
    return _NOTHING


def free_of_stream(view: View, command: StreamLinksFree, now: Now) -> DecisionResult:
    """Free glob links of a stream that has ended; not if a stream of the name exists again."""
    if living(view.get(STREAM, (command.scope,)), now) is not None:
        return _NOTHING
    for _, life in command.links:
        known = view.get(LINK, (life, command.scope))
        if known is not None:
            _end_link(view, known)
    return _NOTHING


def _end_link(view: View, known: LinkRow) -> None:
    """Free the link of a stream that has ended, unless it is explicit."""
    if known.kind & EXPLICIT:
        view.put(LINK, with_kind(known, EXPLICIT))
    else:
        view.delete(LINK, (known.life, known.scope))


def ensure_keys(view: View, command: KeysEnsure, now: Now) -> DecisionResult:
    """The newest signing key and the token secret; made if there are none."""
    keys: Sequence[SigningKeyRow] = [key for key in view.range(KEY_RANGE) if key.retired_at is None]
    secret = view.get(FACT, SECRET_KEY)
    if secret is None:
        secret = SubscriptionFactRow(SECRET_KEY[0], 0, command.secret)
        view.put(FACT, secret)
    if not keys:
        keys = [SigningKeyRow(command.kid, command.private, command.public, now.ms, None)]
        view.insert(SIGNING_KEY, keys[0])
    return DecisionResult(SubscriptionKeys(max(keys, key=lambda key: key.created_at), secret.value))
