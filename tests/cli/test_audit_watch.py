"""`semel audit watch`: the rule about bursts as a table, and the command on files that grow, move and break."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.kernel.clock import utc_text
from semel.server.ops.audit_alerts import Bursts, KnownAlerts, LogTail, is_loopback
from semel.server.ops.rotated_file import LineFile
from tests.cli.command import SECONDS, Semel
from tests.harness.server import RunningServer

START = 1_709_164_800_000
AUTH, PORT, KEY = "AUTH_FAILURE", "PORT_MISMATCH", "IDEMPOTENCY_KEY_COLLISION"


def line(second: float, event: str = AUTH, address: str | None = "192.0.2.7", **more: Any) -> dict[str, Any]:
    details = {"remote_addr": address, **more}
    return {"ts": utc_text(START + int(second * 1_000)), "event": event, "details": details}


def raised(
    lines: list[dict[str, Any]], *, above: int = 3, exempt: bool = False, known: KnownAlerts | None = None
) -> list[tuple[float, str, int]]:
    """Second, event and count of each alert."""
    bursts = Bursts(above, is_loopback_exempt=exempt, known=known or KnownAlerts())
    alerts = [alert for one in lines if (alert := bursts.take(one)) is not None]
    return [((alert.ts_ms - START) / 1_000, alert.event, alert.count) for alert in alerts]


STEADY = [line(second) for second in range(150)]

RULE: dict[str, tuple[list[dict[str, Any]], list[tuple[float, str, int]]]] = {
    "nothing": ([], []),
    "as many as are fine": ([line(n) for n in (0, 1, 2)], []),
    "one too many": ([line(n) for n in (0, 1, 2, 3)], [(3, "BURST_AUTH_FAILURE", 4)]),
    "wrong ports": ([line(n, PORT) for n in range(4)], [(3, "BURST_PORT_MISMATCH", 4)]),
    "collisions": ([line(n, KEY) for n in range(4)], [(3, "BURST_COLLISION", 4)]),
    "kinds are counted apart": ([line(n, (AUTH, PORT, KEY)[n % 3]) for n in range(9)], []),
    "other events are not counted": ([line(n, "LEASE_REAP") for n in range(50)], []),
    "the last of them within the minute": ([line(n) for n in (0, 1, 2, 59.999)], [(59.999, "BURST_AUTH_FAILURE", 4)]),
    "the last of them a minute later": ([line(n) for n in (0, 1, 2, 60)], []),
    "spread too thin": ([line(n * 20) for n in range(50)], []),
    "once a minute while it lasts": (
        STEADY,
        [(3, "BURST_AUTH_FAILURE", 4), (63, "BURST_AUTH_FAILURE", 60), (123, "BURST_AUTH_FAILURE", 60)],
    ),
    "two bursts in a minute": ([line(n) for n in (0, 0, 0, 0, 55, 55, 55, 55)], [(0, "BURST_AUTH_FAILURE", 4)]),
    "two bursts": (
        [line(n) for n in (0, 0, 0, 0, 100, 100, 100, 100)],
        [(0, "BURST_AUTH_FAILURE", 4), (100, "BURST_AUTH_FAILURE", 4)],
    ),
    "a little out of order": ([line(n) for n in (1, 3, 2, 0)], [(0, "BURST_AUTH_FAILURE", 4)]),
    "a clock that was set back is not the end of watching": (
        [line(n) for n in (9_000, 9_000, 9_000, 9_000, 0, 1, 2, 3)],
        [(9_000, "BURST_AUTH_FAILURE", 4), (3, "BURST_AUTH_FAILURE", 4)],
    ),
    "a line that stands for others": ([line(0, suppressed=3)], [(0, "BURST_AUTH_FAILURE", 4)]),
    "an address is not needed": ([line(n, address=None) for n in range(4)], [(3, "BURST_AUTH_FAILURE", 4)]),
}


@pytest.mark.parametrize(("lines", "alerts"), RULE.values(), ids=RULE)
def test_the_rule(lines: list[dict[str, Any]], alerts: list[tuple[float, str, int]]) -> None:
    assert raised(lines) == alerts


def test_the_machine_itself_may_be_left_out() -> None:
    lines = [line(n, address="127.0.0.1") for n in range(50)] + [line(50 + n) for n in range(3)]
    assert raised(lines, exempt=True) == []
    assert len(raised(lines)) == 1


@pytest.mark.parametrize("first", range(4))
def test_alerts_of_an_earlier_run_are_not_raised_again(first: int) -> None:
    """Even if the beginning of the burst is no longer there."""
    known = KnownAlerts([("BURST_AUTH_FAILURE", START + 3_000), ("BURST_AUTH_FAILURE", START + 63_000)])
    assert raised(STEADY[first:], known=known) == [(123, "BURST_AUTH_FAILURE", 60)]


@pytest.mark.parametrize(
    ("address", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1:4711", True),
        ("::1", True),
        ("[::1]:80", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.7", False),
        ("192.0.2.7:80", False),
        ("2001:db8::1", False),
        ("::ffff:192.0.2.7", False),
        ("localhost.example", False),
        ("", False),
        (None, False),
    ],
)
def test_loopback(address: str | None, is_it: bool) -> None:
    assert is_loopback(address) is is_it


@pytest.mark.parametrize("strange", [None, [], "x", {}, {**line(0), "ts": "?"}, {**line(0), "details": None}])
def test_what_is_no_audit_line(strange: object) -> None:
    with pytest.raises(ValueError, match=r"^not a|^Invalid"):
        Bursts(1, is_loopback_exempt=False, known=KnownAlerts()).take(strange)


def numbered(count: int) -> list[bytes]:
    lines = ({"ts": utc_text(START + n), "event": "N", "details": {"n": f"{n:03}"}} for n in range(count))
    return [json.dumps(one).encode() for one in lines]


def test_each_line_once_however_files_move(tmp_path: Path) -> None:
    """Eight lines fill a file; looks happen at every distance from the moves."""
    path = tmp_path / "lines"
    written = numbered(200)
    file = LineFile(path, max_bytes=8 * len(written[0]))
    following, seen = LogTail(path), list[bytes]()
    for number, one in enumerate(written):
        file.append(one + b"\n")
        if number % 7 == 0 or number % 31 == 0:
            seen += following.new_lines()
    seen += following.new_lines()
    file.close()
    assert seen == written


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    first, second = numbered(2)
    following = LogTail(path)
    assert list(following.new_lines()) == []
    with path.open("wb", buffering=0) as file:
        file.write(first + b"\n" + second[:50])
        assert list(following.new_lines()) == [first]
        file.write(second[50:] + b"\n")
        assert list(following.new_lines()) == [second]
        file.write(b"x" * 2_500_000 + b"\n" + first + b"\n")
        assert list(following.new_lines())[-1] == first


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "logs"
    folder.mkdir(parents=True)
    return folder


def write(logs: Path, *lines: dict[str, Any]) -> None:
    with (logs / "audit.jsonl").open("ab") as file:
        file.writelines(json.dumps(one).encode() + b"\n" for one in lines)


def alerts_in(logs: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in (logs / "alerts.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="module")
def semel() -> Semel:
    """No server is needed."""
    return Semel("http://127.0.0.1:9")


def test_one_pass(semel: Semel, logs: Path) -> None:
    write(logs, *(line(n / 10) for n in range(21)))
    data = str(logs.parent)
    shown = "2024-02-29T00:00:02.000Z  BURST_AUTH_FAILURE  21 in a minute, the last from 192.0.2.7\n"
    rehearsed = semel.here("audit", "watch", "--data", data, "--once", "--dry-run")
    assert (rehearsed.code, rehearsed.out, rehearsed.err) == (0, shown, "")
    assert not (logs / "alerts.jsonl").exists()
    done = semel.here("audit", "watch", "--data", data, "--once")
    assert (done.code, done.out, done.err) == (0, shown, "")
    details = {"count": 21, "above": 20, "window_sec": 60, "remote_addr": "192.0.2.7"}
    assert alerts_in(logs) == [{"ts": "2024-02-29T00:00:02.000Z", "event": "BURST_AUTH_FAILURE", "details": details}]
    again = semel.here("audit", "watch", "--data", data, "--once")
    assert (again.code, again.out) == (0, ""), "an alert is raised once"
    lower = semel.here("audit", "watch", "--file", str(logs / "audit.jsonl"), "--above", "30", "--once", "--json")
    assert (lower.code, lower.out) == (0, "")


def test_alerts_as_json_and_loopback_left_out(semel: Semel, logs: Path) -> None:
    write(logs, *(line(n, KEY, "127.0.0.1") for n in range(5)), *(line(n, PORT) for n in range(5)))
    file = str(logs / "audit.jsonl")
    run = semel.here("audit", "watch", "--file", file, "--above", "4", "--exempt-loopback", "--once", "--json")
    assert run.facts["event"] == "BURST_PORT_MISMATCH"
    assert [run.facts] == alerts_in(logs)


def test_strange_lines_are_left_out_and_told(semel: Semel, logs: Path) -> None:
    write(logs, line(0))
    with (logs / "audit.jsonl").open("ab") as file:
        file.write(b'{"ts":"2024-\n\xff\n[]\n')
    write(logs, line(1))
    run = semel.here("audit", "watch", "--data", str(logs.parent), "--above", "1", "--once")
    assert run.out.count("BURST_AUTH_FAILURE") == 1
    assert run.err == "3 lines cannot be read and were skipped.\n"


def test_no_log_yet(semel: Semel, tmp_path: Path) -> None:
    run = semel.here("audit", "watch", "--data", str(tmp_path / "none"), "--once")
    assert (run.code, run.out) == (0, "")
    assert "a server creates it" in run.err
    assert not (tmp_path / "none").exists()


def test_alerts_that_cannot_be_written_are_a_failure(semel: Semel, logs: Path) -> None:
    write(logs, line(0), line(0))
    (logs / "alerts.jsonl").symlink_to("/dev/full")
    run = semel.here("audit", "watch", "--data", str(logs.parent), "--above", "1", "--once")
    assert (run.code, run.out) == (1, "")
    assert "No space left" in run.err


@contextmanager
def watching(semel: Semel, logs: Path) -> Iterator[subprocess.Popen[bytes]]:
    with semel.start("audit", "watch", "--data", str(logs.parent), "--above", "2") as run:
        try:
            yield run
        finally:
            run.kill()


def shown(run: subprocess.Popen[bytes]) -> str:
    assert run.stdout is not None
    return run.stdout.readline().decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_over_a_move_until_a_signal(semel: Semel, logs: Path, number: signal.Signals) -> None:
    write(logs, *(line(0) for _ in range(3)))
    with watching(semel, logs) as run:
        assert "BURST_AUTH_FAILURE  3" in shown(run)
        write(logs, line(200), line(200))
        (logs / "audit.jsonl").rename(logs / "audit.jsonl.1")
        write(logs, line(201))
        assert "00:03:21.000Z  BURST_AUTH_FAILURE  3" in shown(run)
        run.send_signal(number)
        out, err = run.communicate(timeout=SECONDS)
    assert (run.returncode, out, err) == (0, b"", b"")
    assert len(alerts_in(logs)) == 2


def test_a_real_server_is_watched_and_does_not_notice(semel: Semel, tmp_path: Path) -> None:
    data = tmp_path / "data"
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKEN_ACTIVE": "planted-secret-token"}
    with RunningServer(data, env=env) as server, watching(semel, data / "logs") as run:
        for _ in range(3):
            wrong = httpx.get(server.url + "/metrics", headers={"Authorization": "Bearer wrong"})
            assert wrong.status_code == 401
        alert = shown(run)
        assert "BURST_AUTH_FAILURE  3 in a minute, the last from 127.0.0.1" in alert
        run.kill()
        run.wait(SECONDS)
        assert httpx.get(server.url + "/readyz").status_code == 200
        assert alerts_in(data / "logs")[0]["details"]["above"] == 2
        for file in (data / "logs").iterdir():
            assert b"planted" not in file.read_bytes()
