"""`semel outbox`: what a person and a script see of the messages of an outbox."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from semel.once import EnvSecret, Outbox
from tests.cli.command import Semel
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema
from tests.once.counter import LOST, CounterService, counting

SEMEL = Semel("http://127.0.0.1:1")


@pytest.fixture
def service() -> Iterator[CounterService]:
    """A service that counts."""
    with counting() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> str:
    """An empty outbox."""
    path = str(tmp_path / "outbox.db")
    assert SEMEL.here("outbox", "init", path).code == 0
    return path


def fill(place: str, service: CounterService, keys: str, *, path: str = "bad") -> None:
    """Post messages."""
    box = Outbox(place)
    for key in keys:
        box.post(
            f"{service.url}/{path}?token=hunter3",
            json="hunter4",
            headers={"Authorization": EnvSecret("PAY_TOKEN", "Bearer "), "X-Secret": "hunter2"},
            key=key,
            order_by="shop",
        )
    box.close()


def test_run_once_delivers_in_order_with_secrets_of_its_environment(place: str, service: CounterService) -> None:
    fill(place, service, "abc", path="x")
    found = SEMEL.here("outbox", "run", place, "--once", "--json", env={"PAY_TOKEN": "hunter1"})
    assert found.facts == {"delivered": 3, "failed": 0, "poisoned": 0, "left": 0, "unknown": 0}
    assert service.keys() == ['"a"', '"b"', '"c"']
    assert {one.headers["Authorization"] for one in service.arrived} == {"Bearer hunter1"}
    assert "hunter" not in found.out + found.err


def test_run_once_says_what_is_left(place: str, service: CounterService) -> None:
    fill(place, service, "a", path="x")
    found = SEMEL.here("outbox", "run", place, "--once", "--seconds", "0.1")
    assert (found.code, service.arrived) == (1, [])
    assert "Some messages could not be sent yet" in found.err
    shown = SEMEL.here("outbox", "ls", place).out
    assert "the variable PAY_TOKEN is not set" in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_delivers_what_is_posted_meanwhile_and_ends_on_a_signal(
    place: str, service: CounterService, number: signal.Signals
) -> None:
    SEMEL.env["PAY_TOKEN"] = "t"
    process = SEMEL.start("outbox", "run", place)
    try:
        fill(place, service, "a", path="x")
        eventually(lambda: len(service.effects) == 1, "it was delivered")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        del SEMEL.env["PAY_TOKEN"]
    assert (process.returncode, out) == (0, b"Delivered 1 messages; 0 attempts failed, 0 became poison.\n"), err


def poisoned(place: str, service: CounterService) -> None:
    """Two messages that were refused for good, and one behind them."""
    service.answer("/bad?token=hunter3", 400, 404)
    fill(place, service, "ab")
    box = Outbox(place, secret=lambda _: "hunter1")
    box.flush_sync(20)
    box.post(f"{service.url}/other?token=hunter3", json=1, key="o")
    box.close()


def test_ls_shows_messages_and_nothing_that_could_be_secret(place: str, service: CounterService) -> None:
    poisoned(place, service)
    shown, lines = SEMEL.here("outbox", "ls", place), SEMEL.here("outbox", "ls", place, "--json")
    assert shown.out.splitlines()[0].split() == ["KEY", "STATE", "TRIES", "STATUS", "NEXT", "ORDER", "TO", "ERROR"]
    assert shown.out.splitlines()[1].split()[:4] == ["a", "poison", "1", "400"]
    assert "hunter" not in shown.out + lines.out
    facts = [json.loads(line) for line in lines.out.splitlines()]
    assert [(one["key"], one["state"], one["status"]) for one in facts] == [
        ("a", "poison", 400),
        ("b", "queued", None),
        ("o", "queued", None),
    ]
    assert facts[0]["url"] == f"{service.url}/bad"
    assert SEMEL.here("outbox", "ls", place, "--state", "poison").out.count("\n") == 2
    assert "more than 1" in SEMEL.here("outbox", "ls", place, "--limit", "1").err
    assert "No messages match" in SEMEL.here("outbox", "ls", place, "--state", "done").err


def test_retry_and_drop_say_what_they_would_do_ask_for_many_and_tell_what_they_left(
    place: str, service: CounterService
) -> None:
    poisoned(place, service)
    assert "Would drop 1 messages" in SEMEL.here("outbox", "drop", place, "--poison", "--dry-run").out
    assert "give --yes" in SEMEL.here("outbox", "drop", place, "a", "b").err
    assert "give --yes" in SEMEL.here("outbox", "retry", place, "--poison").err
    assert "or --poison" in SEMEL.here("outbox", "drop", place).err
    assert "no message with the key z" in SEMEL.here("outbox", "drop", place, "z").err
    assert SEMEL.here("outbox", "retry", place, "--poison", "--yes", "--json").facts == {
        "key": "a",
        "queued": True,
        "dry_run": False,
    }
    box = Outbox(place)
    assert [one.state for one in box.messages()] == ["queued"] * 3
    assert SEMEL.here("outbox", "drop", place, "a").out == "Dropped a\n"
    assert SEMEL.here("outbox", "drop", place, "b", "o", "--yes").out == "Dropped 2 messages\n"
    assert not list(box.messages())
    box.post(f"{service.url}/x", json=1, key="done")
    box.flush_sync(20)
    refused = SEMEL.here("outbox", "drop", place, "done")
    assert (refused.code, box.state("done")) == (1, "done")
    assert "it was not changed" in refused.err
    box.close()


def test_what_may_have_arrived_is_shown_and_left_to_a_person(place: str, service: CounterService) -> None:
    service.answer("/x?token=hunter3", LOST)
    fill(place, service, "a", path="x")
    SEMEL.env["PAY_TOKEN"] = "t"
    try:
        found = SEMEL.here("outbox", "run", place, "--once", "--keys-kept", "30m")
        assert found.code == 1
        assert "1 messages may have arrived and are not sent again" in found.err
        shown = SEMEL.here("outbox", "ls", place, "--state", "unknown")
        assert shown.out.splitlines()[1].split()[:3] == ["a", "unknown", "1"]
        assert SEMEL.here("outbox", "retry", place, "a").code == 0
        assert SEMEL.here("outbox", "run", place, "--once", "--keys-kept", "30m", "--json").facts["delivered"] == 1
    finally:
        del SEMEL.env["PAY_TOKEN"]
    assert list(service.effects) == ['"a"']
    assert "is not a duration" in SEMEL.here("outbox", "run", place, "--once", "--give-up-after", "soon").err


def test_a_place_that_is_no_outbox_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    missing, text = tmp_path / "none.db", tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at as if it were one")
    for place, words in ((missing, "There is no outbox at"), (text, "is not an outbox")):
        refused = SEMEL.here("outbox", "ls", str(place))
        assert refused.code == 1
        assert words in refused.err
    assert not missing.exists()


def test_init_makes_the_table_in_postgresql_and_may_be_run_again(service: CounterService) -> None:
    url = fresh_schema()
    assert "run `semel outbox init URL`" in SEMEL.here("outbox", "ls", url).err
    for _ in range(2):
        assert SEMEL.here("outbox", "init", url).out == "The table semel_outbox is ready in the database\n"
    box = Outbox(url)
    box.post(f"{service.url}/x", json=1, key="k")
    box.close()
    assert SEMEL.here("outbox", "run", url, "--once", "--json").facts["delivered"] == 1
