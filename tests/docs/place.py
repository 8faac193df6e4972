"""Where a page runs: real ports, folders and databases stand for those that it names."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from tests.harness.postgres.shared import shared_cluster
from tests.harness.server import free_port

DEFAULT_PORT = 8788
GRPC_PORT = 50_051
UVICORN_PORT = 8000
_LOCAL = r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1?\])[\"']?[:,] ?"
_FLAG = r"--(?:[a-z]+-)*port[ =]|\b(?:[A-Z]+_)*PORT=|\b(?:[a-z]+_)*port ?[=:] ?"
_PORT = re.compile(rf"({_LOCAL}|{_FLAG})(\d{{4,5}})(?![\d.])")
_BELOW = r"(?:var/(?:lib|log|backups)|etc/(?:semel|prometheus)|srv|mnt|backups?|opt|run/semel|tmp)"
_PATH = re.compile(rf"(?<![\w./~-])/{_BELOW}(?![\w-])[\w./-]*")
_DATABASE = re.compile(r"(postgresql(?:\+\w+)?)://([^\s\"'`\\)>;]*[^\s\"'`\\)>;.,])")
_numbers = itertools.count(1)


class Place:
    """What stands for the names of one page, from a mark `fresh` to the next."""

    def __init__(self, page: str, folder: Path) -> None:
        self.root = folder / "root"
        """What stands for the root of the file system."""
        self.folder = folder / "page"
        """Where the page begins."""
        self.notes = folder / "notes"
        """Where the runner writes what the page must not see."""
        for one in (self.root, self.folder, self.notes):
            one.mkdir(parents=True)
        own = _DATABASE.sub("", page)
        named = {int(found[2]) for found in _PORT.finditer(own)} | {DEFAULT_PORT}
        self.ports = {shown: free_port() for shown in sorted(named | ({UVICORN_PORT} if "uvicorn" in own else set()))}
        self._databases: dict[str, str] = {}
        for found in _PATH.finditer(own):
            (self.root / found[0][1:]).parent.mkdir(parents=True, exist_ok=True)

    @property
    def grpc_port(self) -> int:
        """Where the ledger's gRPC listens; 0, nowhere, unless the page names its port."""
        return self.ports.get(GRPC_PORT, 0)

    def typed(self, text: str) -> str:
        """A text of the page as it is typed here."""
        pieces, end = [], 0
        for found in _DATABASE.finditer(text):
            pieces += [self._own(text[end : found.start()]), self._database(found[1], found[2])]
            end = found.end()
        return "".join((*pieces, self._own(text[end:])))

    def shown(self, said: str) -> str:
        """What came out, with the names of the page."""
        for name, url in self._databases.items():
            said = said.replace(url, name)
        for shown, real in self.ports.items():
            said = re.sub(rf"(?<=:){real}(?!\d)|(?<=port ){real}(?!\d)", str(shown), said)
        return said.replace(str(self.root), "")

    def _own(self, text: str) -> str:
        text = _PORT.sub(lambda found: f"{found[1]}{self.ports.get(int(found[2]), found[2])}", text)
        return _PATH.sub(lambda found: f"{self.root}{found[0]}", text)

    def _database(self, scheme: str, address: str) -> str:
        """A database for each host and name, made when it is first typed."""
        path, _, query = address.partition("?")
        name = path.rpartition("@")[2]
        if name not in self._databases:
            database = f"page_{next(_numbers)}"
            shared_cluster().execute(f"CREATE DATABASE {database}")
            self._databases[name] = shared_cluster().url.rpartition("/")[0].partition("//")[2] + f"/{database}"
        return f"{scheme}://{self._databases[name]}{'?' if query else ''}{query}"
