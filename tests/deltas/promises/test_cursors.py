"""What each cursor means: own entries, aliases, lost answers, other nodes, crashes, and clocks that are set back.

A client takes the cursor of every push, although it has not pulled what others committed before it. So the server
remembers, for such a cursor, where the client really was.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.deltas.peers import Peer, Peers, rows_in, walk
from tests.deltas.rig import signed, wrong_clock
from tests.deltas.vectors import now_ms, stamp, wall_of
from tests.deltas.wire import Deltas, delta, fresh, hlcs, serving
from tests.harness.server import RunningServer

AHEAD_SECONDS = 3_600
SECRET = "a secret of the tests, which is long enough"
KEPT = 8
"""Aliases that outlive a later pull, at least."""


@pytest.fixture
def peers(deltas: Deltas, gateway: str) -> Peers:
    """On the store of the test."""
    return Peers(deltas, gateway)


# -- positions ---------------------------------------------------------------------------------------------------------


def test_in_order_a_position_is_the_stamp_and_a_late_delta_comes_after_all_that_was_issued(peers: Peers) -> None:
    writer, stamps = peers.peer(), hlcs()
    first, second, late = (next(stamps) for _ in range(3))
    issued = writer.push(writer.change("INSERT", "r1", at=first), writer.change("INSERT", "r3", at=late))
    after = writer.push(writer.change("INSERT", "r2", at=second))
    reader, cursors = peers.peer(), [0]
    for _ in range(2):
        cursors.append(reader.look(cursors[-1], limit=1).hlc)
    assert cursors == [0, first, late]
    last = reader.look(cursors[-1], limit=1)
    assert (rows_in(last), last["hasMore"]) == (["r2"], False)
    assert rows_in(reader.look(issued)) == ["r2"], "it was placed after the answer of the push before it"
    assert reader.look(after)["deltas"] == []
    assert issued < after <= last.hlc


def test_a_delta_without_effect_takes_a_position_too(peers: Peers) -> None:
    one, two = peers.some(2)
    stamps = hlcs()
    early, at, between = (next(stamps) for _ in range(3))
    one.push(one.change("INSERT", "r", at=at, title="t"))
    before = one.cursor
    lost = one.push(one.change("UPDATE", "r", at=early, title="lost"))
    assert lost > before
    assert between < two.insert("s")
    assert rows_in(two.look(0)) == ["r", "s"]


def test_cursors_of_pushes_and_pulls_rise(peers: Peers) -> None:
    one, two = peers.some(2)
    told = []
    for number in range(4):
        told += [one.insert(f"a{number}"), two.insert(f"b{number}")]
    assert told == sorted(set(told))
    assert two.look(0).hlc >= told[-1]


def test_what_was_written_in_the_past_reaches_those_who_are_up_to_date(peers: Peers) -> None:
    reader, writer, offline = peers.some(3)
    writer.insert("r1", "r2")
    assert rows_in(reader.pull()) == ["r1", "r2"]
    for age_ms in (1, 60_000, 10**12):
        offline.push(offline.change("INSERT", f"old {age_ms}", at=stamp(now_ms() - age_ms)))
        assert rows_in(reader.pull()) == [f"old {age_ms}"]
    offline.push(offline.change("INSERT", "oldest", at=0))
    assert rows_in(reader.pull()) == ["oldest"]
    assert reader.pull() == []


# -- what the cursor of a push means ---------------------------------------------------------------------------------


def test_a_push_with_nothing_outstanding_moves_the_client_on(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1")
    one.settle()
    pulled = one.cursor
    pushed = one.insert("o1")
    assert one.look(pushed)["deltas"] == []
    two.insert("t2")
    assert one.insert("o2") > pushed
    assert rows_in(one.look()) == ["t2"], "neither what was pulled nor what is its own"
    assert rows_in(one.look(pushed)) == ["t2", "o2"], "this cursor means itself"
    assert rows_in(one.look(pulled)) == ["o1", "t2", "o2"]


def test_a_push_before_the_first_pull_keeps_everything_outstanding(peers: Peers) -> None:
    two, one = peers.some(2)
    two.insert("t1", "t2")
    one.insert("o1")
    two.insert("t3")
    one.insert("o2", "o3")
    assert rows_in(one.look()) == ["t1", "t2", "t3"]
    assert rows_in(one.look(0)) == ["t1", "t2", "o1", "t3", "o2", "o3"], "from the start everything is given"


def test_own_entries_are_skipped_up_to_the_cursor_and_not_beyond(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1")
    earlier = one.insert("o1")
    two.insert("t2")
    later = one.insert("o2")
    assert rows_in(one.look(earlier)) == ["t1", "t2", "o2"]
    assert rows_in(one.look(later)) == ["t1", "t2"]
    assert rows_in(one.look(earlier)) == ["t1", "t2", "o2"], "as often as it is asked"


def test_pages_behind_an_alias_go_on_where_they_ended(peers: Peers) -> None:
    one, two = peers.some(2)
    for number in range(4):
        two.insert(f"t{number}", f"u{number}")
        one.insert(f"o{number}")
    cursor = one.cursor
    expected = [f"{letter}{number}" for number in range(4) for letter in "tu"]
    for limit in (1, 2, 3, 5, 8, 100):
        assert walk(one, cursor, limit) == expected, limit


def test_a_page_that_ends_early_is_not_left_behind_by_the_next_push(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1", "t2", "t3")
    one.insert("o1")
    assert rows_in(one.pull(limit=1)) == ["t1"]
    two.insert("t4")
    one.insert("o2")
    assert rows_in(one.pull(limit=2)) == ["t2"]
    assert rows_in(one.pull(limit=4)) == ["t3", "t4"]
    # It has not shown that the first page arrived: that is told again, with all behind it.
    assert rows_in(one.pull()) == ["t1", "t2", "t3", "t4"]
    assert one.pull() == []


def test_g1_a_client_that_pushes_before_every_pull_hears_of_everything_however_small_its_pages(peers: Peers) -> None:
    """It never shows a page, so every page is in doubt; yet it is not given the same one for ever."""
    one, two = peers.some(2)
    rows = [f"t{number}" for number in range(12)]
    two.insert(*rows)
    heard: list[str] = []
    for number in range(2 * len(rows)):
        one.insert(f"o{number}")
        heard += rows_in(one.pull(limit=2))
    assert set(heard) == set(rows)
    while one.pull(limit=2):
        pass
    assert one.pull() == []


def test_g1_a_page_that_was_lost_is_told_by_the_number_of_a_push(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1")
    one.look()  # the answer is lost
    one.insert("o1")
    entries = one.look()["deltas"]
    assert [(entry["op"], entry["rowId"]) for entry in entries] == [("DELETE", "t1"), ("INSERT", "t1")]
    assert rows_in(one.pull()) == ["t1"]
    assert one.pull() == []


def test_entries_that_come_after_an_alias_follow_it_once(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1")
    one.insert("o1")
    two.insert("t2")
    assert rows_in(one.pull()) == ["t1", "t2"]
    two.insert("t3")
    assert rows_in(one.pull()) == ["t3"]
    assert one.pull() == []


def test_a_plain_cursor_shows_own_entries(peers: Peers) -> None:
    [one] = peers.some(1)
    one.insert("o1")
    middle = one.look(0).hlc
    one.insert("o2")
    assert rows_in(one.look(middle)) == ["o2"]
    assert rows_in(one.look(0)) == ["o1", "o2"]


def test_the_cursor_of_one_client_means_nothing_special_to_another(peers: Peers) -> None:
    one, two, three = peers.some(3)
    two.insert("t1")
    cursor = one.insert("o1")
    assert rows_in(one.look(cursor)) == ["t1"]
    assert rows_in(three.look(cursor)) == []
    assert rows_in(two.look(cursor)) == []


def test_gateways_keep_cursors_of_their_own(peers: Peers, deltas: Deltas) -> None:
    one, two = peers.some(2)
    elsewhere = Peers(deltas, fresh("gw")).peer(one.name)
    two.insert("t1")
    cursor = one.insert("o1")
    elsewhere.insert("e1")
    assert rows_in(elsewhere.look(0)) == ["e1"]
    assert rows_in(one.look(cursor)) == ["t1"]


def test_many_pushes_without_a_pull_keep_the_meaning_of_every_cursor(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t")
    cursors = [one.insert(f"o{number}") for number in range(KEPT + 4)]
    for place, cursor in enumerate(cursors):
        own = [f"o{number}" for number in range(place + 1, len(cursors))]
        assert rows_in(one.look(cursor)) == ["t", *own], place
    for place in range(len(cursors) - KEPT, len(cursors)):
        own = [f"o{number}" for number in range(place + 1, len(cursors))]
        assert rows_in(one.look(cursors[place])) == ["t", *own], place


def test_a_push_of_duplicates_alone_keeps_what_is_outstanding(peers: Peers) -> None:
    one, two = peers.some(2)
    mine = one.change("INSERT", "o1", title="t")
    one.push(mine)
    two.insert("t1")
    one.push(mine)
    one.push()
    assert rows_in(one.look()) == ["t1"], "nor does an empty push move the client on"


def test_a_page_that_was_shown_is_not_given_again_after_a_push(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1")
    assert rows_in(one.pull()) == ["t1"]
    one.settle()
    two.insert("t2")
    one.insert("o1")
    assert rows_in(one.pull()) == ["t2"]


def test_who_starts_again_from_nothing_gets_everything_and_goes_on_from_there(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1", "t2")
    one.insert("o1")
    one.pull()
    assert rows_in(one.look(0)) == ["t1", "t2", "o1"]
    first = one.look(0, limit=1)
    assert rows_in(first) == ["t1"]
    cursor = one.insert("o2")
    # What it wrote before it started again is news to it; and whether the page has arrived is not known.
    rest = one.look(cursor)
    assert rows_in(rest) == ["t2", "o1"]
    assert rows_in(one.look(rest.hlc)) == ["t1", "t2", "o1"]


def test_another_caller_who_names_a_client_does_not_move_its_cursor(tmp_path: Path, gateway: str) -> None:
    with serving(tmp_path / "data", DELTAS_JWT_SECRET=SECRET) as deltas, ExitStack() as open_clients:

        def called(name: str, role: str = "client") -> Peer:
            claims = {"sub": name, "gw": gateway, "role": role, "exp": now_ms() // 1_000 + 3_600}
            client = open_clients.enter_context(closing(deltas.with_token(signed(claims, SECRET))))
            return Peer(client, gateway, name, stamps)

        stamps = hlcs()
        one, two, operator = called("one"), called("two"), called("operator", "admin")
        operator.name = "one"
        two.insert("t1")
        assert rows_in(operator.look(0)) == ["t1"]
        one.insert("o1")
        assert rows_in(operator.look(one.cursor)) == [], "the alias is that of the other caller"
        assert rows_in(operator.look(0)) == ["t1", "o1"]
        assert rows_in(one.pull()) == ["t1"]
        one.settle()
        two.insert("t2")
        assert rows_in(operator.look(0)) == ["t1", "o1", "t2"]
        one.insert("o2")
        assert rows_in(one.pull()) == ["t2"]


# -- crashes and the other node ----------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_cursors_keep_their_meaning_over_a_crash_and_on_the_other_node(peers: Peers) -> None:
    one, two = peers.some(2)
    two.insert("t1", "t2", "t3")
    alias = one.insert("o1")
    two.insert("t4")
    part = one.look(alias, limit=4)
    assert rows_in(part) == ["t1", "t2"]
    quiet, other = peers.some(2)
    assert len(quiet.pull()) == 5
    given = quiet.cursor
    peers.deltas.crash()
    for _ in range(2):  # each node in turn
        assert rows_in(one.look(alias)) == ["t1", "t2", "t3", "t4"]
        assert rows_in(one.look(part.hlc)) == ["t3", "t4"]
        assert rows_in(quiet.look(given)) == []
    one.cursor = part.hlc
    two.insert("t5")
    quiet.insert("q1")
    told = rows_in(quiet.pull())
    assert told[-1] == "t5"
    assert told[:-1] in ([], ["t1", "t2", "t3", "o1", "t4"]), "what was shown may be forgotten: then it is told again"
    assert rows_in(one.pull()) == ["t3", "t4", "t5", "q1"]
    assert len(other.pull()) == 7


@pytest.mark.each_store
def test_positions_go_on_above_every_cursor_after_a_crash(peers: Peers) -> None:
    writer, reader, idler = peers.some(3)
    writer.insert("r1")
    issued = max(writer.cursor, reader.look(0).hlc, idler.look(writer.cursor).hlc)
    peers.deltas.crash()
    assert reader.look(issued)["deltas"] == []
    writer.push(writer.change("INSERT", "old", at=1))
    for _ in range(2):
        assert rows_in(reader.look(issued)) == ["old"]
    assert writer.cursor > issued


def test_a_clock_that_is_set_back_over_a_crash_hides_nothing(tmp_path: Path, gateway: str) -> None:
    with serving(tmp_path / "data", env=wrong_clock(tmp_path, AHEAD_SECONDS * 1_000)) as deltas:
        peers = Peers(deltas, gateway)
        writer, reader = peers.some(2)
        ahead = stamp(now_ms() + AHEAD_SECONDS * 1_000)
        writer.push(writer.change("INSERT", "r1", at=ahead))
        reader.pull()
        issued = max(writer.cursor, reader.look().hlc, reader.cursor)
        assert wall_of(issued) > now_ms() + AHEAD_SECONDS * 1_000 // 2
        assert isinstance(deltas.server, RunningServer)
        deltas.server.kill()
        behind = RunningServer(deltas.server.data, port=deltas.server.port)
        with behind:
            deltas.redial()
            assert reader.look(issued)["deltas"] == []
            writer.insert("r2")
            assert writer.cursor > issued
            assert rows_in(reader.look(issued)) == ["r2"]
            assert rows_in(reader.look(0)) == ["r1", "r2"]
            late = delta("INSERT", row="r3", client=writer.name, hlc=ahead)
            assert deltas.push(gateway, [late], client=writer.name, expect=409).hlc > 0
