"""`semel streams subscriptions`, against a real server."""

from __future__ import annotations

from tests.cli.command import Semel

START = "0000000000000000_0000000000000000"


def created(semel: Semel, name: str, *options: str) -> None:
    semel.here("streams", "create", "wakes", "--type", "application/json")
    made = semel.here("streams", "subscriptions", "create", name, "--wake-stream", "wakes", *options)
    assert (made.code, made.out) == (0, f"Created subscription {name}\n"), made.err


def test_create_says_whether_it_was_there(semel: Semel) -> None:
    created(semel, "mailer", "--pattern", "mail/*", "--lease", "60")
    again = ("streams", "subscriptions", "create", "mailer", "--wake-stream", "wakes", "--pattern", "mail/*")
    assert semel.here(*again, "--lease", "60").out == "Already there: subscription mailer\n"
    other = semel.here(*again)
    assert (other.code, "[SUBSCRIPTION_ALREADY_EXISTS]" in other.err, other.err.count("\n")) == (1, True, 1)
    facts = semel.here(*again, "--lease", "60", "--json").facts
    assert (facts["created"], facts["type"], facts["lease_ttl_ms"]) == (False, "pull-wake", 60_000)


def test_show_lists_the_streams_and_link_and_unlink_change_them(semel: Semel) -> None:
    for name in ("a", "b", "c d"):
        semel.here("streams", "create", name)
    created(semel, "linked", "--stream", "a", "--stream", "b", "--description", "two of them")
    assert semel.here("streams", "subscriptions", "link", "linked", "c d", "a").out == "linked watches c d, a\n"
    assert semel.here("streams", "subscriptions", "unlink", "linked", "b").out == "linked has no link to b\n"
    assert semel.here("streams", "subscriptions", "show", "linked").out.splitlines() == [
        "linked: active, wakes wakes, lease 30 s",
        f"  a (explicit) acknowledged up to {START}",
        f"  c d (explicit) acknowledged up to {START}",
    ]
    facts = semel.here("streams", "subscriptions", "show", "linked", "--json").facts
    assert [one["path"] for one in facts["streams"]] == ["a", "c d"]
    assert facts["description"] == "two of them"


def test_rm_asks_first(semel: Semel) -> None:
    created(semel, "doomed", "--pattern", "x/**")
    gone = ("streams", "subscriptions", "rm", "doomed")
    assert "give --yes" in semel.here(*gone).err
    dry = semel.here(*gone, "--dry-run")
    assert dry.out == "Would delete subscription doomed (active, 0 streams)\n"
    assert semel.here(*gone, "--yes").out == "Deleted subscription doomed\n"
    missing = semel.here("streams", "subscriptions", "show", "doomed")
    assert (missing.code, "[SUBSCRIPTION_NOT_FOUND]" in missing.err) == (1, True)


def test_a_webhook_of_a_private_address_is_refused_in_words(semel: Semel) -> None:
    options = ("--pattern", "x", "--webhook", "http://10.0.0.1/")
    refused = semel.here("streams", "subscriptions", "create", "inner", *options)
    assert (refused.code, "[WEBHOOK_URL_REJECTED]" in refused.err, refused.err.count("\n")) == (1, True, 1)


def test_ls_shows_the_state_of_each_wake(semel: Semel) -> None:
    created(semel, "listed", "--pattern", "nothing/*")
    lines = semel.here("streams", "subscriptions", "ls").out.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "PHASE", "FAILED", "ATTEMPTS", "WAKES"]
    assert ["listed", "active", "idle", "0", "wakes"] in [line.split() for line in lines[1:]]


def test_producers_and_forks_of_a_stream_are_listed(semel: Semel) -> None:
    semel.here("streams", "create", "numbered", "--type", "text/plain")
    assert semel.here("streams", "producers", "numbered").err == "No producer has written to this stream.\n"
    semel.here("streams", "fork", "numbered", "branch")
    listed = semel.here("streams", "ls", "--forks-of", "numbered").out.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", "branch"]
    assert semel.here("streams", "ls", "--forks-of", "branch").err == "No such stream was forked from branch.\n"
