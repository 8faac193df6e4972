"""Bugs in front processes and in the channel to them."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

FRONTS = (
    bug(
        "front-credential-not-checked-again",
        "the credential of a plain append is checked for each request",
        "surfaces/streams/shaped_append.py",
        "                connection.ask_again()\n                return\n            principal = known.actor\n",
        "                pass\n            principal = known.actor if known else self._name.decode()\n",
        "tests/server/fronts/test_limits.py::test_an_expired_token_is_refused_without_a_signal",
    ),
    bug(
        "front-answer-before-the-commit",
        "a plain append of a front is answered after its commit",
        "surfaces/streams/shaped_append.py",
        "        connection.running = append\n        try:\n",
        "        connection.settle(0, 0, False)\n        try:\n",
        "tests/server/fronts/test_differential.py",
    ),
    bug(
        "front-key-not-sent",
        "a front sends the key of a plain append",
        "surfaces/streams/front_append.py",
        "            packed, mark = pack(parsed), plain_fingerprint(body)\n",
        "            packed, mark = None, plain_fingerprint(body)\n",
        "tests/server/fronts/test_differential.py",
    ),
    bug(
        "front-limit-of-its-own",
        "the limits of connections are those of all fronts together",
        "server/fronts/front_link.py",
        "        opened = len(host.connections) + 1\n",
        "        opened = len(self) + 1\n",
        "tests/server/fronts/test_limits.py::test_the_limit_of_connections_is_that_of_all_fronts",
    ),
    bug(
        "front-outlives-the-writer",
        "no process stays behind when the writer is killed",
        "server/front_process.py",
        "    _end_with(writer)\n",
        "",
        "tests/server/fronts/test_lifecycle.py::test_a_killed_writer_ends_its_fronts",
    ),
    bug(
        "front-hangs-for-ever",
        "a front that hangs is replaced",
        "server/fronts/front_processes.py",
        "                if link.unanswered_pings >= HUNG_PINGS:\n",
        "                if not HUNG_PINGS:\n",
        "tests/server/fronts/test_lifecycle.py::test_a_front_that_hangs_delays_no_one_else_and_is_replaced",
    ),
    bug(
        "front-not-replaced",
        "a front that was killed is replaced",
        "server/fronts/front_processes.py",
        "        while not self._is_stopping:\n            if not has_started:\n",
        "        while self._is_stopping:\n            if not has_started:\n",
        "tests/server/fronts/test_lifecycle.py::test_killed_fronts_lose_their_connections_and_no_append",
    ),
    bug(
        "channel-drops-the-rest",
        "a batch that arrives in pieces is read",
        "server/fronts/channel.py",
        "            self._unread += view[at:]\n",
        "            pass\n",
        "tests/server/fronts/test_channel.py",
    ),
)
