"""The steps of the image, run without a daemon: the `RUN` lines of its build stage, in a folder instead of `/opt`.

The result starts a server that the health check of the image finds ready, and that writes nowhere but in its data
folder. The base images, users and mounts are not tried here: there is no Docker daemon.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.harness.server import free_port

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "deploy/Dockerfile"
SECONDS = 60.0


def instructions(stage: str) -> list[tuple[str, str]]:
    """The instructions of a stage, continued lines joined."""
    text = DOCKERFILE.read_text().partition(f"AS {stage}\n")[2].partition("\nFROM ")[0]
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.M)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that stands for `/opt/semel` after the build stage."""
    folder = tmp_path_factory.mktemp("image")
    source, place = folder / "source", folder / "opt"
    source.mkdir()
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for word, rest in instructions("build"):
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                copy(ROOT / name, source / target / Path(name).name if target.endswith("/") else source / target)
        elif word == "RUN":
            command = rest.replace("/opt/semel", str(place))
            done = subprocess.run(
                ["sh", "-ec", command], cwd=source, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return place


def copy(given: Path, target: Path) -> None:
    if given.is_dir():
        made = shutil.ignore_patterns("__pycache__", "*_pb2.py", "*_pb2.pyi", "*.binpb")
        shutil.copytree(given, target, ignore=made)
    else:
        shutil.copy(given, target)


@pytest.mark.timeout(900)
def test_the_built_package_has_the_descriptors_that_grpc_serves(built: Path) -> None:
    [package] = built.glob("lib/python3*/site-packages/semel")
    health = FileDescriptorSet.FromString((package / "server/grpc/proto/health.binpb").read_bytes())
    assert [one.package for one in health.file] == ["grpc.health.v1"]
    assert (package / "surfaces/ledger/proto/ledger_pb2.py").exists()


@pytest.mark.timeout(900)
def test_the_built_server_is_found_ready_and_writes_to_its_data_folder_alone(built: Path, tmp_path: Path) -> None:
    assert not (built / "bin/pip").exists()
    data, tmp = tmp_path / "data", tmp_path / "tmp"
    tmp.mkdir()
    port = free_port()
    before = {path: path.stat().st_mtime_ns for path in built.rglob("*")}
    env = {
        "PATH": str(built / "bin"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp),
        "SEMEL_HOST": "0.0.0.0",
        "SEMEL_PORT": str(port),
        "SEMEL_DATA": str(data),
        "SEMEL_TOKEN_ACTIVE": "a-token-of-this-test",
        "SEMEL_LEDGER_GRPC_PORT": "0",
    }
    check = [built / "bin/python", ROOT / "deploy/healthcheck.py"]
    assert subprocess.run(check, env=env, check=False).returncode == 1, "nothing listens yet"
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([built / "bin/semel", "serve"], env=env, cwd=tmp, stdout=log, stderr=log)
        try:
            limit = time.monotonic() + SECONDS
            while subprocess.run(check, env=env, check=False).returncode:
                has_time = server.poll() is None and time.monotonic() < limit
                assert has_time, (tmp_path / "log").read_text()
                time.sleep(0.2)
        finally:
            server.terminate()
            code = server.wait(SECONDS)
    assert code == 0
    assert (data / "semel.db").exists()
    assert {path: path.stat().st_mtime_ns for path in built.rglob("*")} == before
    assert list(tmp.iterdir()) == []
