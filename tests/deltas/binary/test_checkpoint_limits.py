"""Checkpoints that many ask for, that nobody reads, or that the disk does not take: refused, and nothing is left."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.deltas.binary.readers import Reader, held_bytes, slow_reader
from tests.deltas.vectors import columns, delta
from tests.deltas.wire import Deltas, fresh, hlcs, serving
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import check_log, eventually, log_of

MAX_AT_ONCE, MAX_EACH = 16, 4
ROW_BYTES = 900_000


def path(gateway: str, client: str | None = None) -> str:
    return f"/v1/sync/{gateway}/checkpoint?clientId={client or fresh('reader')}"


def filled(deltas: Deltas, rows: int) -> str:
    """A gateway of so many large rows."""
    gateway, hlc = fresh("gw"), hlcs()
    for number in range(rows):
        deltas.push(gateway, [delta("INSERT", columns(text="x" * ROW_BYTES), row=f"r{number}", hlc=next(hlc))])
    return gateway


@pytest.fixture(scope="module")
def large(one: Deltas) -> str:
    """More than the system takes in for a client that does not read."""
    return filled(one, 9)


def check_nothing_is_left(deltas: Deltas) -> None:
    """Neither counted nor open."""
    eventually(lambda: held_bytes(deltas, "checkpoints") == 0, "the room is given back")
    assert open_files(deltas) == 0


def open_files(deltas: Deltas) -> int:
    """Files of the server that have no name."""
    names: list[str] = []
    for one in Path(f"/proc/{deltas.nodes[0].pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile: connections end while one looks
            names.append(one.readlink().name)
    return sum(name.endswith("(deleted)") for name in names)


def long_read(deltas: Deltas) -> str:
    """The path of an answer that fills the connection of a client that does not read."""
    stream = f"/v1/stream/{fresh('long')}"
    assert deltas.send("PUT", stream, b"x" * 8_000_000, {"Content-Type": "text/plain"}).status_code == 201
    return stream


def test_so_many_in_all_and_for_each_caller(one: Deltas, large: str) -> None:
    check_nothing_is_left(one)  # of the test before this one
    with ExitStack() as stack:
        for number in range(MAX_AT_ONCE):
            stack.enter_context(slow_reader(one, path(large), number // MAX_EACH))
            if number == MAX_EACH - 1:
                assert one.call("GET", path(large), expect=503).code == "BACKPRESSURE_ERROR"
        with Reader(one.server.port, MAX_AT_ONCE) as another:
            assert another.get(path(large)) == 503
    check_nothing_is_left(one)
    assert one.send("GET", path(large)).status_code == 200


def test_one_whose_head_must_wait_has_its_place_all_the_time(one: Deltas, large: str) -> None:
    """An unread answer stands before it on the connection."""
    check_nothing_is_left(one)
    before = long_read(one)
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(one.server.port)) for _ in range(MAX_EACH)]
        for reader in readers:
            reader.ask(before, path(large))
        eventually(lambda: held_bytes(one, "checkpoints") > MAX_EACH * 9 * ROW_BYTES, "all of them are written")
        assert one.call("GET", path(large), expect=503).code == "BACKPRESSURE_ERROR"
        for reader in readers:
            for _ in range(2):
                answer = reader.answer()
                assert (answer.status, len(answer.read())) == (200, answer.size)
    check_nothing_is_left(one)


def test_readers_that_leave(one: Deltas, large: str) -> None:
    with slow_reader(one, path(large)) as answer:
        answer.read(1_000)
    before = long_read(one)
    with Reader(one.server.port) as reader:
        reader.ask(before, path(large))
        eventually(lambda: held_bytes(one, "checkpoints") > 9 * ROW_BYTES, "it is written")
    check_nothing_is_left(one)


def test_a_head_has_the_status_of_the_answer(one: Deltas) -> None:
    gateway, newcomer = fresh("gw"), fresh("reader")
    one.push(gateway, [delta("INSERT", columns(a=1))])
    target = path(fresh("gw"))
    assert one.send("HEAD", target).status_code == one.send("GET", target).status_code == 404
    head = one.send("HEAD", path(gateway, newcomer))
    whole = one.send("GET", path(gateway, newcomer))
    assert (head.status_code, head.content, whole.status_code) == (200, b"", 200)
    assert int(head.headers["Content-Length"]) == len(whole.content)
    assert head.headers["X-Checkpoint-Hlc"] == whole.headers["X-Checkpoint-Hlc"]
    one.push(gateway, [delta("INSERT", columns(a=1), row="half \ud800")])
    assert one.send("HEAD", path(gateway)).status_code == 404
    check_nothing_is_left(one)


def test_so_many_bytes_in_all_and_for_each_caller(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "memory", DELTAS_CHECKPOINTS_BYTES=16 * 1024 * 1024) as deltas:
        small, wide = filled(deltas, 3), filled(deltas, 5)
        told = deltas.call("GET", path(wide), expect=404)
        assert "too large" in told["error"]
        with Reader(deltas.server.port) as reader:
            reader.ask(long_read(deltas), path(small))
            eventually(lambda: held_bytes(deltas, "checkpoints") > 3 * ROW_BYTES, "it is written")
            assert deltas.call("GET", path(small), expect=503).code == "BACKPRESSURE_ERROR"
            with Reader(deltas.server.port, 1) as another:
                assert another.get(path(small)) == 200
        check_nothing_is_left(deltas)


class HomelessServer(RunningServer):
    """The real server, with a data folder that nobody makes and a folder for temporary files of its own."""

    def __init__(self, folder: Path, store: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        super().__init__(folder / "none", env={"SEMEL_STORE": store, "TMPDIR": str(self.temporary)})

    def launch(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "semel", "serve"]
        command += ["--host", HOST, "--port", str(self.port), "--data", str(self.data)]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(command, env=self._env | dict(env), stdout=output, stderr=output)
        return self._process


@pytest.fixture(scope="module")
def homeless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    with HomelessServer(tmp_path_factory.mktemp("homeless"), "memory:") as server:
        deltas = Deltas(server)
        yield deltas
        deltas.close()
    assert "Traceback" not in log_of(server)


def test_without_a_data_folder(homeless: Deltas, tmp_path: Path) -> None:
    assert not homeless.nodes[0].data.exists()
    assert homeless.send("GET", path(filled(homeless, 1))).status_code == 200
    with HomelessServer(tmp_path, fresh_url()) as server:
        deltas = Deltas(server)
        assert deltas.send("GET", path(filled(deltas, 1))).status_code == 200
        deltas.close()
    check_log(server)


def errors_of(deltas: Deltas) -> int:
    return log_of(deltas.server).count("a checkpoint could not be written")


def test_a_folder_that_has_gone(homeless: Deltas) -> None:
    server, gateway = homeless.nodes[0], filled(homeless, 1)
    assert isinstance(server, HomelessServer)
    shutil.rmtree(server.temporary)
    before = errors_of(homeless)
    assert homeless.call("GET", path(gateway), expect=503).code == "BACKPRESSURE_ERROR"
    assert errors_of(homeless) == before + 1
    server.temporary.mkdir()
    assert homeless.send("GET", path(gateway)).status_code == 200


def test_a_disk_that_takes_no_more(homeless: Deltas) -> None:
    """The system lets the server write no file of more than a megabyte."""
    gateway, before = filled(homeless, 2), errors_of(homeless)
    pid = homeless.nodes[0].pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024 * 1024, hard))
    try:
        assert homeless.call("GET", path(gateway), expect=503).code == "BACKPRESSURE_ERROR"
        assert homeless.send("HEAD", path(gateway)).status_code == 503
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert errors_of(homeless) == before + 2
    assert homeless.send("GET", path(gateway)).status_code == 200
    check_nothing_is_left(homeless)
