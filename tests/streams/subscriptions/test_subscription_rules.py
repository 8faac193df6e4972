"""The pure rules of subscriptions as tables: patterns, phases, addresses, signatures and tokens."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import product

import orjson
import pytest

from semel.engine.view import BatchView
from semel.kernel.clock import Now
from semel.kernel.errors import Refused
from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER, Window
from semel.store.protocol import Range
from semel.surfaces.epoch import EPOCH
from semel.surfaces.streams.commands import NO_CONTENT, Append, Content, Create, Delete
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.subscriptions.rules import configuration
from semel.surfaces.streams.subscriptions.rules.globs import (
    GlobError,
    check_pattern,
    first_segment,
    literal_prefix,
    matches,
)
from semel.surfaces.streams.subscriptions.rules.phases import (
    HORIZON_MS,
    attempt_failed,
    backoff_ms,
    ended,
    is_due,
    is_held,
    leased,
    repeat_ms,
    sent,
    tried_again,
)
from semel.surfaces.streams.subscriptions.rules.webhook_url import (
    AddressKind,
    AddressPolicy,
    check_addresses,
    check_url,
    kind_of,
    parse_target,
)
from semel.surfaces.streams.subscriptions.signature import RETIRED_MS, WakeToken, format_token, jwks_of, parse_token
from semel.surfaces.streams.subscriptions.tables import (
    IDLE,
    LEASED,
    MOVED,
    SUBSCRIPTION,
    WAKING,
    WEBHOOK,
    SigningKeyRow,
    SubscriptionRow,
)
from semel.surfaces.streams.tables import STREAM
from tests.streams.subscriptions.model import SubscriptionModel


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("events/*", "events/a", True),
        ("events/*", "events", False),
        ("events/*", "events/a/b", False),
        ("events/*", "other/a", False),
        ("events/**", "events", True),
        ("events/**", "events/a/b/c", True),
        ("events/**", "eventsx/a", False),
        ("**", "anything/at/all", True),
        ("*", "one", True),
        ("*", "one/two", False),
        ("*/log", "a/log", True),
        ("**/log", "log", True),
        ("**/log", "a/b/log", True),
        ("**/log", "a/b/logs", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/z/c/z", True),
        ("a/**/z", "a/b/c", False),
        ("a/**/m/**/z", "a/x/m/y/z", True),
        ("a/**/m/**/z", "a/x/y/z", False),
        ("a/*/c", "a//c", True),
        ("exact", "exact", True),
        ("exact", "exacta", False),
        ("ä/*", "ä/ö", True),
    ],
)
def test_a_pattern_matches_whole_segments(pattern: str, path: str, is_match: bool) -> None:
    assert matches(pattern.encode(), path.encode()) is is_match


def _matches_slowly(pattern: list[str], path: list[str]) -> bool:
    """The meaning of a pattern, spelled out."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches_slowly(pattern[1:], path[start:]) for start in range(len(path) + 1))
    return bool(path) and pattern[0] in ("*", path[0]) and _matches_slowly(pattern[1:], path[1:])


def test_a_pattern_matches_the_names_that_its_meaning_says() -> None:
    names = [list(name) for length in range(1, 5) for name in product("ab", repeat=length)]
    for length in range(1, 6):
        for pattern in product(("a", "b", "*", "**"), repeat=length):
            for name in names:
                found = matches("/".join(pattern).encode(), "/".join(name).encode())
                assert found is _matches_slowly(list(pattern), name), (pattern, name)


@pytest.mark.parametrize("pattern", ["a*", "a/b*/c", "***", "**/**/**", "/".join("a" * 33)])
def test_a_pattern_that_takes_too_long_or_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(GlobError):
        check_pattern(pattern.encode())


@pytest.mark.parametrize(
    ("pattern", "first", "prefix"),
    [
        ("events/*", "events", "events/"),
        ("events/**", "events", "events"),
        ("events/a/**/b", "events", "events/a/"),
        ("*/a", "", ""),
        ("**", "", ""),
        ("a/b", "a", "a/b"),
    ],
)
def test_every_match_begins_with_the_literal_prefix(pattern: str, first: str, prefix: str) -> None:
    assert first_segment(pattern.encode()) == first.encode()
    assert literal_prefix(pattern.encode()) == prefix.encode()


def at(ms: int) -> Now:
    return Now(ms, ms, ms, ms)


def row(**changes: object) -> SubscriptionRow:
    plain = SubscriptionRow(
        b"n",
        b"l",
        b"id",
        WEBHOOK,
        b"e/*",
        b"https://x",
        None,
        5_000,
        None,
        b"",
        b"",
        0,
        7,
        b"",
        IDLE,
        b"",
        0,
        0,
        b"",
        NEVER,
    )
    return plain._replace(**changes)  # type: ignore[arg-type]


def test_the_pause_doubles_from_one_second_to_sixty_with_a_fifth_more_or_less() -> None:
    middle = [backoff_ms(attempts, 20) for attempts in range(1, 9)]
    assert middle == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    for attempts in (1, 5, 1_000_000):
        pauses = {backoff_ms(attempts, chance) for chance in range(1_000)}
        least, most = min(pauses), max(pauses)
        assert (least, most) == (backoff_ms(attempts, 0), backoff_ms(attempts, 40))
        assert most * 80 == least * 120


def test_a_wake_has_a_new_generation_and_its_owner() -> None:
    woken = sent(row(), b"w", b"node", 99)
    assert (woken.generation, woken.wake_id, woken.phase, woken.owner, woken.due_at) == (8, b"w", WAKING, b"node", 99)


def test_a_failed_attempt_keeps_the_wake_and_waits() -> None:
    woken = sent(row(), b"w", b"node", 99)
    failed = attempt_failed(woken, at(100), 20)
    assert (failed.generation, failed.wake_id, failed.phase) == (8, b"w", WAKING)
    assert (failed.failed, failed.attempts, failed.owner, failed.due_at) == (1, 1, b"", 1_100)
    again = tried_again(failed, b"other", 2_000)
    assert (again.attempts, again.owner, again.generation, again.due_at) == (1, b"other", 8, 2_000)


def test_an_attempt_whose_node_has_died_counts_as_one() -> None:
    assert tried_again(sent(row(), b"w", b"dead", 99), b"node", 200).attempts == 1


def test_a_lease_ends_after_its_time_and_a_wake_with_its_end() -> None:
    held = leased(sent(row(failed=1), b"w", b"node", 99), at(100), b"worker")
    assert (held.phase, held.holder, held.due_at, held.failed, held.owner) == (LEASED, b"worker", 5_100, 0, b"")
    assert is_held(held, at(5_099))
    assert not is_held(held, at(5_100))
    over = ended(held, NEVER)
    assert (over.phase, over.wake_id, over.holder, over.generation) == (IDLE, b"", b"", 8)


@pytest.mark.parametrize(
    ("due_at", "is_past"),
    [
        (999, True),
        (1_000, True),
        (1_001, False),
        (1_000 + HORIZON_MS, False),
        (1_001 + HORIZON_MS, True),
        (NEVER, False),
    ],
)
def test_a_time_that_no_step_has_set_counts_as_past(due_at: int, is_past: bool) -> None:
    assert is_due(row(due_at=due_at), at(1_000)) is is_past


def test_an_event_without_a_claim_is_repeated_more_and_more_rarely() -> None:
    assert [repeat_ms(row(attempts=attempts)) for attempts in (0, 1, 9, 10, 10_000)] == [
        5_000,
        10_000,
        2_560_000,
        3_600_000,
        3_600_000,
    ]


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", AddressKind.PUBLIC),
        ("2606:2800:220:1::1", AddressKind.PUBLIC),
        ("127.0.0.1", AddressKind.LOOPBACK),
        ("127.9.9.9", AddressKind.LOOPBACK),
        ("::1", AddressKind.LOOPBACK),
        ("::ffff:127.0.0.1", AddressKind.LOOPBACK),
        ("::127.0.0.1", AddressKind.LOOPBACK),
        ("10.0.0.1", AddressKind.PRIVATE),
        ("172.16.0.1", AddressKind.PRIVATE),
        ("192.168.1.1", AddressKind.PRIVATE),
        ("100.64.0.1", AddressKind.PRIVATE),
        ("fc00::1", AddressKind.PRIVATE),
        ("fec0::1", AddressKind.PRIVATE),
        ("::ffff:10.0.0.1", AddressKind.PRIVATE),
        ("64:ff9b::a00:1", AddressKind.PRIVATE),
        ("2002:a00:1::", AddressKind.PRIVATE),
        ("169.254.169.254", AddressKind.FORBIDDEN),
        ("::ffff:169.254.169.254", AddressKind.FORBIDDEN),
        ("64:ff9b::a9fe:a9fe", AddressKind.FORBIDDEN),
        ("169.254.1.1", AddressKind.FORBIDDEN),
        ("fe80::1", AddressKind.FORBIDDEN),
        ("fd00:ec2::254", AddressKind.FORBIDDEN),
        ("100.100.100.200", AddressKind.FORBIDDEN),
        ("168.63.129.16", AddressKind.FORBIDDEN),
        ("0.0.0.0", AddressKind.FORBIDDEN),
        ("0.1.2.3", AddressKind.FORBIDDEN),
        ("::", AddressKind.FORBIDDEN),
        ("224.0.0.1", AddressKind.FORBIDDEN),
        ("ff02::1", AddressKind.FORBIDDEN),
        ("255.255.255.255", AddressKind.FORBIDDEN),
        ("240.0.0.1", AddressKind.FORBIDDEN),
    ],
)
def test_an_address_is_what_it_leads_to(address: str, kind: AddressKind) -> None:
    assert kind_of(ip_address(address)) is kind


CLOSED, DEVELOPMENT, PRIVATE = AddressPolicy(False, False), AddressPolicy(True, False), AddressPolicy(False, True)


@pytest.mark.parametrize(
    ("url", "policies"),
    [
        ("https://hooks.example/x", {CLOSED, DEVELOPMENT, PRIVATE}),
        ("https://93.184.216.34/x", {CLOSED, DEVELOPMENT, PRIVATE}),
        ("http://hooks.example/x", {PRIVATE}),
        ("http://93.184.216.34/x", set()),
        ("http://127.0.0.1:8080/x", {DEVELOPMENT, PRIVATE}),
        ("http://localhost/x", {DEVELOPMENT, PRIVATE}),
        ("https://[::1]/x", {DEVELOPMENT, PRIVATE}),
        ("http://10.0.0.1/hook", {PRIVATE}),
        ("https://10.0.0.1/hook", {PRIVATE}),
        ("http://169.254.169.254/latest", set()),
        ("https://169.254.169.254/latest", set()),
        ("https://0.0.0.0/x", set()),
        ("ftp://hooks.example/x", set()),
        ("https:///x", set()),
        ("https://user:secret@hooks.example/", set()),
        ("https://hooks.example/x#y", set()),
        ("https://hooks.example:99999/", set()),
        ("https://hooks.example/a b", set()),
        ("https://hooks.example/\r\nX: y", set()),
        ("not a url", set()),
    ],
)
def test_a_url_is_checked_before_it_is_stored(url: str, policies: set[AddressPolicy]) -> None:
    for policy in (CLOSED, DEVELOPMENT, PRIVATE):
        if policy in policies:
            check_url(url, policy)
        else:
            with pytest.raises(Refused) as refused:
                check_url(url, policy)
            assert refused.value.refusal.code == "WEBHOOK_URL_REJECTED"


def test_one_forbidden_address_forbids_the_host() -> None:
    assert check_addresses(["93.184.216.34"], CLOSED, is_secure=True)
    assert not check_addresses(["93.184.216.34", "10.0.0.1"], CLOSED, is_secure=True)
    assert not check_addresses(["93.184.216.34"], PRIVATE, is_secure=False)
    assert not check_addresses([], PRIVATE, is_secure=True)
    assert not check_addresses(["fe80::1%eth0"], PRIVATE, is_secure=True)


def test_the_host_header_names_a_port_that_is_not_usual() -> None:
    assert parse_target("https://h.example/a?b").authority == "h.example"
    assert parse_target("https://h.example:8443/a?b").authority == "h.example:8443"
    assert parse_target("http://[::1]:80/").authority == "[::1]"
    assert parse_target("https://h.example?x").target == "/?x"


def test_a_token_is_valid_until_it_expires_and_only_as_it_was_made() -> None:
    token = WakeToken(b"\x00id", b"life", 3, 1_000)
    text = format_token(b"secret", token)
    assert parse_token(b"secret", text.encode(), 999) == token
    for other, at_ms, code in (
        (text, 1_000, "TOKEN_EXPIRED"),
        (text + "x", 0, "TOKEN_INVALID"),
        ("x" + text, 0, "TOKEN_INVALID"),
        (format_token(b"another", token), 0, "TOKEN_INVALID"),
        ("", 0, "TOKEN_INVALID"),
        ("." * 5_000, 0, "TOKEN_INVALID"),
    ):
        with pytest.raises(Refused) as refused:
            parse_token(b"secret", other.encode(), at_ms)
        assert refused.value.refusal.code == code
    assert orjson.dumps("secret") not in text.encode()


def test_a_pattern_whose_beginning_too_many_streams_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "MATCHED_STREAMS", 3)
    model = SubscriptionModel(1)
    for number in range(4):
        path = b"e/%d" % number
        life = b"s%d" % number
        model.write(Create(pack(path), path, life, b"text/plain", None, None, None, False, NO_CONTENT))
    [refused] = model.write(model._put(b"hook"))
    assert refused.code == "INVALID_REQUEST"
    assert "3 streams" in refused.message
    assert model.read(lambda reading: reading.get(SUBSCRIPTION, (pack(b"hook"),))) is None
    model.write(Delete(pack(b"e/3")))
    [kept] = model.write(model._put(b"hook"))
    assert kept.is_new


def test_a_retired_key_is_published_until_no_signature_can_be_in_use() -> None:
    keys = [
        SigningKeyRow(b"ds_old", b"", b"x", 0, 1_000),
        SigningKeyRow(b"ds_new", b"", b"y", 0, None),
    ]
    shown = [orjson.loads(jwks_of(keys, at_ms))["keys"] for at_ms in (1_001, 999 + RETIRED_MS, 1_000 + RETIRED_MS)]
    assert [[key["kid"] for key in some] for some in shown] == [["ds_old", "ds_new"], ["ds_old", "ds_new"], ["ds_new"]]


def test_an_append_to_a_stream_without_subscribers_reads_and_writes_nothing_more() -> None:
    """An append needs the stream and the epoch; only a subscribed stream needs its mark."""
    model = SubscriptionModel(1)
    path = b"e/0"
    model.write(Create(pack(path), path, b"s", b"application/json", None, None, None, False, NO_CONTENT))
    append = Append(pack(path), None, b"", b"application/json", Content(b"1", 1), False, None, None, None)
    stages = Streams(Window(1)).needs(append)
    assert {table for table, _ in next(stages).keys} == {STREAM, EPOCH}
    view = BatchView(lambda order: False, lambda table, row: row)
    view.add_row(STREAM, (pack(path),), model.stream(path))
    with pytest.raises(StopIteration):
        stages.send(view)
    model.write(append)
    assert not model.read(lambda reading: reading.range(Range(MOVED, "", (), 1)))
