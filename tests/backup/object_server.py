"""A real server of the S3 protocol, SeaweedFS, on free ports of 127.0.0.1 with one bucket."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port

PROGRAM = Path(sys.executable).with_name("weed")
BUCKET = "backups"
KEY, SECRET = "some_key", "some_secret"
SECONDS = 60
_RIGHTS = ["Admin", "Read", "Write", "List", "Tagging"]


class ObjectServer:
    """The server, which is killed at the end of the block."""

    def __init__(self, folder: Path) -> None:
        guard()
        self._folder = folder
        self._ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        self._grpc_ports = {name: free_port() for name in self._ports}
        self.url = f"http://{HOST}:{self._ports['s3']}"
        self.env = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def __enter__(self) -> Self:
        identity = {"name": "semel", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": _RIGHTS}
        data, settings = self._folder / "data", self._folder / "identities.json"
        data.mkdir(parents=True)
        settings.write_text(json.dumps({"identities": [identity]}))
        ports = [f"-{name}.port={port}" for name, port in self._ports.items()]
        ports += [f"-{name}.port.grpc={port}" for name, port in self._grpc_ports.items()]
        command = [PROGRAM, "server", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}", "-filer", "-s3", *ports]
        command += [f"-s3.config={settings}", "-s3.autoCreateBucket=false", "-s3.iam=false", "-volume.max=100"]
        command += ["-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output)
        try:
            self._make_bucket()
        except BaseException:
            self._kill()
            raise
        return self

    def _make_bucket(self) -> None:
        """Wait until it answers, and create the bucket."""
        master = f"{HOST}:{self._ports['master']}.{self._grpc_ports['master']}"
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "output").read_text()[-4_000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        order = f"s3.bucket.create -name {BUCKET}\n".encode()
        subprocess.run(
            [PROGRAM, "shell", f"-master={master}"], input=order, check=True, capture_output=True, timeout=60
        )

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url, timeout=5).status_code < 500
        except httpx.HTTPError:
            return False

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
