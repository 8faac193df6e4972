"""Pulling: its parameters, its pages, and the cursor of each."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.deltas.vectors import LARGEST, now_ms, stamp, wall_of
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, fresh, hlcs

NUMBERS = {
    "empty": "",
    "minus": "-1",
    "plus": "%2B1",
    "leading nought": "01",
    "two noughts": "00",
    "fraction": "1.0",
    "exponent": "1e3",
    "letters": "abc",
    "hexadecimal": "0x10",
    "underscore": "1_0",
    "space before": "%201",
    "space after": "1%20",
    "final newline": "1%0A",
    "other digits": quote("\u0661"),
    "wide digits": quote("\uff11"),
    "no utf-8": "%FF",
    "nul": "%00",
}
REFUSED = {
    "nothing": "",
    "since missing": "clientId=c",
    "clientId missing": "since=0",
    "clientId empty": "since=0&clientId=",
    "since too large": f"since={LARGEST + 1}&clientId=c",
    "since of twenty nines": f"since={'9' * 20}&clientId=c",
    "since of many digits": f"since={'1' * 5_000}&clientId=c",
    "limit nought": "since=0&clientId=c&limit=0",
    "limit of noughts": "since=0&clientId=c&limit=000",
    **{f"since: {name}": f"since={text}&clientId=c" for name, text in NUMBERS.items()},
    **{
        f"limit: {name}": f"since=0&clientId=c&limit={text}"
        for name, text in NUMBERS.items()
        if name not in ("leading nought", "two noughts")
    },
}


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED.keys())
def test_bad_parameters(anywhere: Deltas, query: str) -> None:
    assert anywhere.pull_query("gw-pull", query, expect=400).code == "VALIDATION_ERROR"


TAKEN = {
    "least": "since=0&clientId=c",
    "largest since": f"since={LARGEST}&clientId=c",
    "limit one": "since=0&clientId=c&limit=1",
    "limit at the cap": "since=0&clientId=c&limit=10000",
    "limit beyond the cap": "since=0&clientId=c&limit=10001",
    "limit of many digits": f"since=0&clientId=c&limit={'9' * 100}",
    "other order": "limit=5&clientId=c&since=0",
    "unknown parameter": "since=0&clientId=c&colour=red",
    "any client": "since=0&clientId=" + quote("\U0001f389 / + & \u0000", safe=""),
}


@pytest.mark.parametrize("query", TAKEN.values(), ids=TAKEN.keys())
def test_good_parameters(deltas: Deltas, query: str) -> None:
    page = deltas.pull_query("gw-empty", query)
    assert (page["deltas"], page["hasMore"]) == ([], False)


@pytest.mark.parametrize("client", ["%FF", "%", "%ZZ", "%ED%A0%80", "c" * 4_000])
def test_a_client_that_is_no_text_harms_nothing(anywhere: Deltas, client: str) -> None:
    assert anywhere.pull_query("gw-pull", f"since=0&clientId={client}", expect=None).http in (200, 400)


@pytest.mark.parametrize("query", ["since=0&clientId=c&source=crm", "clientId=c&since=0&limit=5&source=x"])
def test_there_are_no_other_sources(anywhere: Deltas, query: str) -> None:
    assert anywhere.pull_query("gw-pull", query, expect=404).code == "NOT_FOUND"


# -- pages -------------------------------------------------------------------------------------------------------------


def filled(deltas: Deltas, gateway: str, count: int) -> list[Message]:
    """Rows of one push in the order of their stamps: each entry's position is its stamp."""
    stamps = hlcs()
    made = [delta("INSERT", columns(n=number), row=f"row-{number}", hlc=next(stamps)) for number in range(count)]
    assert deltas.push(gateway, made)["deltas"] == made
    return made


@pytest.mark.parametrize("limit", [1, 7, 83, 84, 249, 250, 251, 10_000])
def test_pages_of_every_size_hold_everything_once(deltas: Deltas, gateway: str, limit: int) -> None:
    count = 250 if limit > 1 else 40
    made, seen, cursor = filled(deltas, gateway, count), 0, 0
    for _ in range(count):
        page = deltas.pull(gateway, cursor, limit=limit)
        assert page["deltas"] == made[seen : seen + limit]
        seen += len(page["deltas"])
        assert page["hasMore"] is (seen < count)
        if page["hasMore"]:
            assert page["serverHlc"] == page["deltas"][-1]["hlc"]
        cursor = page.hlc
        if not page["hasMore"]:
            break
    assert seen == count
    assert cursor >= int(made[-1]["hlc"])
    assert deltas.pull(gateway, cursor)["deltas"] == []


def test_a_hundred_unless_asked_otherwise(deltas: Deltas, gateway: str) -> None:
    made = filled(deltas, gateway, 101)
    page = deltas.pull(gateway)
    assert (page["deltas"], page["hasMore"], page["serverHlc"]) == (made[:100], True, made[99]["hlc"])
    rest = deltas.pull(gateway, page["serverHlc"])
    assert (rest["deltas"], rest["hasMore"]) == (made[100:], False)


def test_a_full_last_page_is_the_last(deltas: Deltas, gateway: str) -> None:
    made = filled(deltas, gateway, 100)
    page = deltas.pull(gateway)
    assert (page["deltas"], page["hasMore"]) == (made, False)


def test_a_page_may_be_asked_for_again(deltas: Deltas, gateway: str) -> None:
    filled(deltas, gateway, 20)
    first = deltas.pull(gateway, limit=8)
    assert deltas.pull(gateway, limit=8)["deltas"] == first["deltas"]
    second = deltas.pull(gateway, first["serverHlc"], limit=8)
    for _ in range(3):
        again = deltas.pull(gateway, first["serverHlc"], limit=8)
        assert (again["deltas"], again["serverHlc"]) == (second["deltas"], second["serverHlc"])


def test_any_number_is_a_cursor(deltas: Deltas, gateway: str) -> None:
    """One that nobody was given means itself: everything after it."""
    made = filled(deltas, gateway, 5)
    for number, one in enumerate(made):
        assert deltas.pull(gateway, int(one["hlc"]), client=fresh("c"))["deltas"] == made[number + 1 :]
        assert deltas.pull(gateway, int(one["hlc"]) - 1, client=fresh("c"))["deltas"] == made[number:]
    assert deltas.pull(gateway, LARGEST)["deltas"] == []


def test_what_comes_later_is_behind_every_cursor(deltas: Deltas, gateway: str) -> None:
    """However old its stamp is, and however far ahead the cursor's owner has read."""
    late = [delta("INSERT", row=f"row-{hlc}", client="w", hlc=hlc) for hlc in (stamp(now_ms()), 7, 0, 8, stamp(5))]
    cursors = []
    for number, one in enumerate(late):
        cursors.append(deltas.pull(gateway, client=f"r{number}").hlc)
        deltas.push(gateway, [one], client="w")
        for reader, cursor in enumerate(cursors):
            page = deltas.pull(gateway, cursor, client=f"r{reader}")
            assert page["deltas"] == late[reader : number + 1]


def test_since_nought_is_everything_for_everyone(deltas: Deltas, gateway: str) -> None:
    made = filled(deltas, gateway, 3)
    for client in (CLIENT, "reader", "another"):
        assert deltas.pull(gateway, client=client)["deltas"] == made
        assert deltas.pull(gateway, client=client)["deltas"] == made


def test_the_clock_of_a_pull_is_no_later_than_the_time(deltas: Deltas, gateway: str) -> None:
    """And an empty page moves nobody back."""
    filled(deltas, gateway, 3)
    cursor = 0
    for _ in range(3):
        page = deltas.pull(gateway, cursor)
        assert cursor <= page.hlc
        assert wall_of(page.hlc) <= now_ms()
        cursor = page.hlc


def test_a_gateway_that_nobody_wrote_to_is_empty(deltas: Deltas, gateway: str) -> None:
    page = deltas.pull(gateway)
    assert (page["deltas"], page["hasMore"]) == ([], False)
    made = delta("INSERT", hlc=0)
    deltas.push(gateway, [made])
    assert deltas.pull(gateway, page["serverHlc"])["deltas"] == [made]
