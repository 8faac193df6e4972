"""`semel audit verify` on what real servers have written: attacks on the files are found, crashes are none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.server.ops.audit_log import FILE_NAME, IMPORTANT_NAME, NAMES
from semel.server.ops.rotated_file import KEPT, kept_name
from tests.cli.command import Finished, Semel
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually

TOKEN = "the-token"
ENV = {"SEMEL_TOKEN_ACTIVE": TOKEN, "SEMEL_AUDIT_FILE_BYTES": "4096"}
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SEMEL = Semel("http://127.0.0.1:1")


def cause_lines(server: RunningServer, rounds: int) -> None:
    """Lines in both files: a collision, which is written before its answer leaves, and an ordinary line before it."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        job = {"kind": "k", "idempotency_key": "one-key-of-the-job", "params": {}}
        assert client.post("/v1/jobs", json=job, headers=HEADERS).status_code in (200, 201)
        for number in range(rounds):
            wrong = {"Authorization": f"Bearer wrong-{number}"}
            assert client.get(("/v1/streams", "/metrics")[number % 2], headers=wrong).status_code == 401
            assert client.post("/v1/jobs", json=job, headers=HEADERS).status_code == 200
            other = job | {"params": {"number": number}}
            assert client.post("/v1/jobs", json=other, headers=HEADERS).status_code == 409


def verify(data: Path, *options: str) -> Finished:
    return SEMEL.here("audit", "verify", "--data", str(data), *options)


def findings(data: Path, *options: str) -> dict[str, Any]:
    """The finding of each file; the exit code agrees."""
    run = verify(data, "--json", *options)
    report = json.loads(run.out)
    found = {chain["name"]: chain["finding"] for chain in report["chains"]}
    is_bad = any(found.values())
    assert run.code == (1 if is_bad else 0)
    assert report["clean"] is not is_bad
    return found


def clean(data: Path, *options: str) -> bool:
    return not any(findings(data, *options).values())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with full rotated files of both chains, after a kill, a restart and an orderly stop."""
    data = tmp_path_factory.mktemp("written") / "data"
    server = RunningServer(data, env=ENV)
    for _ in range(2):
        server.start()
        cause_lines(server, 40)
        assert clean(data), "beside a running server"
        server.kill()
        assert clean(data), "what a kill leaves is whole"
    server.start()
    cause_lines(server, 40)
    server.stop()
    for name in NAMES:
        assert kept_name(data / "logs" / name, KEPT).exists()
    return data


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


def test_a_whole_log_is_clean_though_old_files_were_dropped(data: Path) -> None:
    report = json.loads(verify(data, "--json").out)
    for chain in report["chains"]:
        assert chain["finding"] is None
        assert chain["first"] > 1, "retention by size dropped the first lines"
        assert chain["head"] == chain["last"], "an orderly stop stores the last head"
    said = verify(data).out
    assert said.count("whole") == 2


def test_a_file_that_was_moved_to_an_archive_is_named_with_an_option(data: Path, tmp_path: Path) -> None:
    archived = kept_name(data / "logs" / FILE_NAME, KEPT).rename(tmp_path / f"{FILE_NAME}.{KEPT}")
    assert findings(data)[FILE_NAME] is not None
    assert clean(data, "--archive", str(archived))
    archived.write_bytes(archived.read_bytes().replace(b"AUTH_FAILURE", b"AUTH_FAILURF", 1))
    assert findings(data, "--archive", str(archived))[FILE_NAME] is not None


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def delete_line(path: Path) -> int:
    target = kept_name(path, 2)
    lines = lines_of(target)
    gone = lines.pop(len(lines) // 2)
    target.write_bytes(b"".join(lines))
    return int(json.loads(gone)["seq"])


def edit_line(path: Path) -> int:
    target = kept_name(path, 3)
    lines = lines_of(target)
    place = len(lines) // 2
    lines[place] = lines[place].replace(b'"details":{', b'"details":{"more":1,')
    target.write_bytes(b"".join(lines))
    return int(json.loads(lines[place])["seq"])


def swap_lines(path: Path) -> int:
    target = kept_name(path, 1)
    lines = lines_of(target)
    place = len(lines) // 2
    lines[place], lines[place + 1] = lines[place + 1], lines[place]
    target.write_bytes(b"".join(lines))
    return int(json.loads(lines[place + 1])["seq"])


def cut_off_end(path: Path) -> int:
    lines = lines_of(path)
    path.write_bytes(b"".join(lines[:-1]))
    return int(json.loads(lines[-1])["seq"])


def edit_last_line(path: Path) -> int:
    lines = lines_of(path)
    lines[-1] = lines[-1].replace(b'"details":{', b'"details":{"more":1,')
    path.write_bytes(b"".join(lines))
    return int(json.loads(lines[-1])["seq"])


def remove_file(path: Path) -> int:
    target = kept_name(path, 3)
    first = int(json.loads(lines_of(target)[0])["seq"])
    target.unlink()
    return first


def remove_oldest_file(path: Path) -> int:
    target = kept_name(path, KEPT)
    first = int(json.loads(lines_of(target)[0])["seq"])
    target.unlink()
    return first


def remove_newest_file(path: Path) -> int:
    first = int(json.loads(lines_of(path)[0])["seq"])
    path.unlink()
    return first


def remove_all_files(path: Path) -> int:
    first = remove_oldest_file(path)
    for number in range(1, KEPT):
        kept_name(path, number).unlink()
    path.unlink()
    return first


ATTACKS: tuple[Callable[[Path], int], ...] = (
    delete_line,
    edit_line,
    swap_lines,
    cut_off_end,
    edit_last_line,
    remove_file,
    remove_oldest_file,
    remove_newest_file,
    remove_all_files,
)
"""Each does its harm, and returns the number of the first bad line."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_one_file_is_found_at_its_first_bad_line(
    attack: Callable[[Path], int], name: str, data: Path
) -> None:
    bad = attack(data / "logs" / name)
    found = findings(data)
    assert found.pop(name)["seq"] == bad
    assert not any(found.values()), "the other file is whole"
    assert f"{name}: BAD from number {bad}: " in verify(data).out


@pytest.mark.parametrize("attack", [edit_last_line, cut_off_end, remove_all_files])
def test_an_attack_is_still_found_after_the_next_start(attack: Callable[[Path], int], data: Path) -> None:
    bad = attack(data / "logs" / FILE_NAME)
    with RunningServer(data, env=ENV) as server:
        cause_lines(server, 3)
        assert "the audit log is not the one that the store remembers" in server.output_tail()
    found = findings(data)
    assert found[IMPORTANT_NAME] is None
    assert found[FILE_NAME]["seq"] == bad


def test_an_attack_while_the_server_runs_is_found(data: Path) -> None:
    with RunningServer(data, env=ENV) as server:
        bad = cut_off_end(data / "logs" / FILE_NAME)
        assert findings(data)[FILE_NAME]["seq"] == bad
        cause_lines(server, 1)
        assert findings(data)[FILE_NAME]["seq"] == bad


def test_a_kill_at_any_moment_leaves_a_log_that_is_clean(tmp_path: Path) -> None:
    """Also in the first two seconds, before a head was stored for a line."""
    server = RunningServer(tmp_path / "data", env=ENV)
    for rounds in (1, 3, 9, 20):
        server.start()
        cause_lines(server, rounds)
        server.kill()
        assert clean(server.data), verify(server.data).out


def test_the_head_follows_within_seconds_while_the_server_runs(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env=ENV) as server:
        cause_lines(server, 2)

        def is_caught_up() -> bool:
            chains = json.loads(verify(server.data, "--json").out)["chains"]
            return all(chain["head"] == chain["last"] > 0 for chain in chains)

        eventually(is_caught_up, "the heads are those of the last lines")


def test_a_restored_store_says_so_and_the_next_start_goes_on(data: Path, tmp_path: Path) -> None:
    backup = tmp_path / "the.backup"
    assert SEMEL.here("backup", str(backup), "--data", str(data)).code == 0
    restored = tmp_path / "restored"
    assert SEMEL.here("restore", str(backup), "--data", str(restored)).code == 0
    run = verify(restored)
    assert run.code == 0
    assert "restored from a backup" in run.out
    shutil.copytree(data / "logs", restored / "logs")
    assert clean(restored)
    with RunningServer(restored, env=ENV) as server:
        cause_lines(server, 2)
    run = verify(restored)
    assert run.code == 0, run.out
    assert "restored from a backup" in run.out
    cut_off_end(restored / "logs" / FILE_NAME)
    assert verify(restored).code == 1, "the restored store has heads of its own"


def test_an_older_copy_of_the_store_is_no_attack(tmp_path: Path) -> None:
    data, older = tmp_path / "data", tmp_path / "older"
    with RunningServer(data, env=ENV) as server:
        cause_lines(server, 2)
    shutil.copytree(data, older, ignore=shutil.ignore_patterns("logs"))
    with RunningServer(data, env=ENV) as server:
        cause_lines(server, 2)
    shutil.copytree(data / "logs", older / "logs")
    run = verify(older)
    assert run.code == 0, run.out
    assert "newer than the head in the store" in run.out
    assert SEMEL.here("check", "--data", str(older)).code == 0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RunningServer]]:
    env = {**ENV, "SEMEL_STORE": fresh_url()}
    servers = [RunningServer(tmp_path / f"node-{number}", env=env) for number in range(2)]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.stop()


def test_each_node_of_a_shared_store_has_its_own_chains(nodes: list[RunningServer]) -> None:
    url = nodes[0]._env["SEMEL_STORE"]
    for node in nodes:
        cause_lines(node, 12)
    for node in nodes:
        node.restart()
        assert clean(node.data, "--store", url)
    cut_off_end(nodes[0].data / "logs" / FILE_NAME)
    assert findings(nodes[0].data, "--store", url)[FILE_NAME] is not None
    assert clean(nodes[1].data, "--store", url)
    (nodes[1].data / "logs" / "audit.node").unlink()
    assert verify(nodes[1].data, "--store", url).code == 2


def test_what_cannot_be_verified_has_its_own_exit_code(tmp_path: Path) -> None:
    run = verify(tmp_path / "nothing")
    assert run.code == 2
    assert run.err.startswith("Error: The audit log cannot be verified. ")
