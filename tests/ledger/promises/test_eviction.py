"""What is forgotten, when, and what a client then hears. Time is real: everything is made first and grows old together.

An organization forgets after each entry of its log whose index is a multiple of its interval, by the time of that
entry; so a test ages its streams, then drives the log with another client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.ledger.rig import Ledger, SiteOf, Told
from tests.ledger.words import WIRES, Place, fresh, new_key, put, refused

TTL_SECONDS = 1
AGE_SECONDS = 2.1
"""More than the time to live, also when both instants are taken as whole seconds."""
LONG = 1_000_000
CASES: dict[str, dict[str, int]] = {
    "evicted": {},
    "evicted-key": {},
    "evicted-many": {},
    "idle": {},
    "not-yet": {},
    "young": {"ttlSeconds": 3_600},
    "replayed": {},
    "own-write": {"evictionInterval": 1},
    "fence": {"fence": True},
    "fence-compacted": {"fence": True},
    "settings": {"ttlSeconds": 3_600},
    "other-vault": {},
}


class Old(NamedTuple):
    """A stream with two commits that are older than the memory of its organization."""

    ledger: Ledger
    place: Place
    client: str
    keys: tuple[bytes, bytes]
    commits: tuple[Told, Told]

    def drive(self, *, upto: int | None = None) -> None:
        """Let another client write until the log has passed the next multiple of the interval, or has this length."""
        self.ledger.set_org(self.place, evictionInterval=2)
        stop = upto or self.ledger.entries(self.place) + 2
        while self.ledger.entries(self.place) < stop:
            self.ledger.commit(self.place, fresh("driver"), put("driver"), sequence=1)

    def retry(self, number: int, **identity: int | bytes) -> Told:
        return self.ledger.write(self.place, self.client, put("k", str(number)), **identity)


def _begin(ledger: Ledger, case: str) -> Old:
    org = ledger.new_org()
    ledger.set_org(org, **{"ttlSeconds": TTL_SECONDS, "evictionInterval": LONG} | CASES[case])
    place = ledger.new_vault(org, keep=1 if case == "fence-compacted" else None)
    client, keys = fresh("client"), (new_key(), new_key())
    first = ledger.commit(place, client, put("k", b"1"), sequence=1, key=keys[0])
    second = ledger.commit(place, client, put("k", b"2"), sequence=2, key=keys[1])
    return Old(ledger, place, client, keys, (first, second))


@pytest.fixture(scope="module")
def aged(request: pytest.FixtureRequest, site_of: SiteOf) -> dict[tuple[str, str], Old]:
    """A stream for each test of this module and each wire, all old by now."""
    site = site_of(request.param)
    wanted = [(via, case) for via in WIRES for case in CASES]
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda each: _begin(site.ledger(each[0], pinned=True), each[1]), wanted))
    time.sleep(AGE_SECONDS)
    return dict(zip(wanted, begun, strict=True))


@pytest.fixture
def old_of(request: pytest.FixtureRequest, aged: dict[tuple[str, str], Old]) -> Callable[[str], Old]:
    return lambda case: aged[request.param, case]


@pytest.mark.each_store
def test_an_evicted_client_begins_again(old_of: Callable[[str], Old]) -> None:
    old = old_of("evicted")
    ledger, place, client = old.ledger, old.place, old.client
    old.drive()
    state = ledger.state(place, client)
    assert state["lastCommittedSequence"] == "0"
    assert "lastTxId" not in state
    for sequence in (2, 3):
        told = old.retry(sequence, sequence=sequence)
        assert (told.code, told.last) == ("SEQUENCE_GAP", 0)
    height = ledger.height(place)
    again = old.retry(1, sequence=1, key=old.keys[0])
    assert (again.code, again.sequence, again.height) == ("OK", 1, height + 1)
    assert again.tx != old.commits[0].tx


@pytest.mark.each_store
def test_an_evicted_clients_key_is_new(old_of: Callable[[str], Old]) -> None:
    old = old_of("evicted-key")
    old.drive()
    again = old.retry(9, key=old.keys[1])
    assert (again.code, again.sequence) == ("OK", 1)


@pytest.mark.each_store
def test_those_who_come_later_stay(old_of: Callable[[str], Old]) -> None:
    old = old_of("evicted-many")
    ledger, place = old.ledger, old.place
    old.drive()
    ledger.set_org(place, ttlSeconds=3_600)
    names = [fresh("young") for _ in range(3)]
    for name in names:
        ledger.commit(place, name, put("k"), sequence=1)
    assert [ledger.last(place, name) for name in (old.client, *names)] == [0, 1, 1, 1]


@pytest.mark.each_store
def test_an_idle_organization_forgets_nothing(old_of: Callable[[str], Old]) -> None:
    old = old_of("idle")
    assert old.ledger.last(old.place, old.client) == 2
    old.ledger.check_replay(old.retry(1, key=old.keys[0]), old.commits[0])
    old.ledger.check_replay(old.retry(2, sequence=2), old.commits[1])


@pytest.mark.each_store
def test_entries_before_the_multiple_forget_nothing(old_of: Callable[[str], Old]) -> None:
    """The organization has five entries (settings, vault, two writes; then settings again); the tenth triggers."""
    old = old_of("not-yet")
    ledger, place = old.ledger, old.place
    assert ledger.entries(place) == 4
    ledger.set_org(place, evictionInterval=10)
    while ledger.entries(place) < 9:
        ledger.commit(place, fresh("driver"), put("driver"), sequence=1)
        assert ledger.last(place, old.client) == 2
    ledger.commit(place, fresh("driver"), put("driver"), sequence=1)
    assert ledger.last(place, old.client) == 0


@pytest.mark.each_store
def test_what_is_not_old_stays(old_of: Callable[[str], Old]) -> None:
    old = old_of("young")
    old.drive()
    assert old.ledger.last(old.place, old.client) == 2
    old.ledger.check_replay(old.retry(1, key=old.keys[0]), old.commits[0])


@pytest.mark.each_store
def test_replays_do_not_keep_a_client(old_of: Callable[[str], Old]) -> None:
    old = old_of("replayed")
    for _ in range(3):
        old.ledger.check_replay(old.retry(2, key=old.keys[1]), old.commits[1])
    old.drive()
    assert old.ledger.last(old.place, old.client) == 0


@pytest.mark.each_store
def test_a_client_that_writes_stays_and_its_old_commits_are_forgotten(old_of: Callable[[str], Old]) -> None:
    """By key they are new; by sequence they are found in their blocks."""
    old = old_of("own-write")
    third = old.retry(3, sequence=3)
    assert (third.code, third.height) == ("OK", 3)
    old.ledger.check_replay(old.retry(3, sequence=3), third)
    old.ledger.check_replay(old.retry(1, sequence=1), old.commits[0])
    assert old.retry(9, sequence=1).code == "IDEMPOTENCY_KEY_REUSED"
    assert old.ledger.last(old.place, old.client) == 3
    renewed = old.retry(1, key=old.keys[0])
    assert (renewed.code, renewed.sequence) == ("OK", 4)


@pytest.mark.each_store
def test_a_fence_keeps_the_last_sequence(old_of: Callable[[str], Old]) -> None:
    old = old_of("fence")
    ledger, place, client = old.ledger, old.place, old.client
    old.drive()
    assert ledger.last(place, client) == 2
    height = ledger.height(place)
    for sequence in (1, 2):
        told = old.retry(sequence, sequence=sequence)
        assert told.facts == old.commits[sequence - 1].facts
        assert told.code in ("OK", "ALREADY_COMMITTED")
        assert old.retry(9, sequence=sequence).code == "IDEMPOTENCY_KEY_REUSED"
    assert old.retry(4, sequence=4).last == 2
    assert ledger.height(place) == height
    assert old.retry(1, key=old.keys[0]).sequence == 3
    assert old.retry(4, sequence=4).sequence == 4


@pytest.mark.each_store
def test_a_fence_holds_without_the_bodies(old_of: Callable[[str], Old]) -> None:
    """Never executed again, and told that nothing could be compared; only the last commit stays with its stream."""
    old = old_of("fence-compacted")
    old.drive()
    height = old.ledger.height(old.place)
    for number in (1, 9):
        told = old.retry(number, sequence=1)
        assert (told.code, told.facts) == ("ALREADY_COMMITTED", (None, None, 1))
        assert told.details["verified"] == "false"
    assert old.retry(2, sequence=2).facts == old.commits[1].facts
    assert old.retry(9, sequence=2).code == "IDEMPOTENCY_KEY_REUSED"
    assert (old.ledger.last(old.place, old.client), old.ledger.height(old.place)) == (2, height)
    assert old.retry(3, sequence=3).code == "OK"


@pytest.mark.each_store
def test_the_time_to_live_is_that_of_the_trigger(old_of: Callable[[str], Old]) -> None:
    """A change counts from its entry on."""
    old = old_of("settings")
    old.drive()
    assert old.ledger.last(old.place, old.client) == 2
    old.ledger.set_org(old.place, ttlSeconds=TTL_SECONDS)
    old.drive()
    assert old.ledger.last(old.place, old.client) == 0


@pytest.mark.each_store
def test_entries_of_other_scopes_count(old_of: Callable[[str], Old]) -> None:
    """One log for the whole organization: another vault and the organization's own scope drive it."""
    old = old_of("other-vault")
    ledger = old.ledger
    ledger.set_org(old.place, evictionInterval=3)
    other = ledger.new_vault(old.place)
    while ledger.entries(old.place) % 3 or ledger.last(old.place, old.client):
        ledger.commit(other, fresh("driver"), put("k"), sequence=1)
        ledger.commit(old.place.whole, fresh("driver"), put("k"), sequence=1)
        assert ledger.entries(old.place) < 20
    assert ledger.last(old.place, old.client) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"ttlSeconds": 0}, {"evictionInterval": 0}, {"ttlSeconds": -1}, {"fence": "perhaps"}, {"unknown": 1}],
    ids=["no-ttl", "no-interval", "negative", "no-boolean", "unknown"],
)
def test_settings_that_cannot_be(site_of: SiteOf, wrong: dict[str, object]) -> None:
    ledger = site_of("sqlite").ledger()
    org = ledger.new_org(ttlSeconds=7)
    before = dict(ledger.ask("GetOrganization", slug={"slug": str(org.org)}))
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.set_org(org, **wrong)
    assert dict(ledger.ask("GetOrganization", slug={"slug": str(org.org)})) == before
    assert (before["ttlSeconds"], before["entries"]) == ("7", "1")
