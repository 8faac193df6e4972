"""A new place on a real server, and what is in its chain, read without the client under test."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx

from tests.client.names import fresh

SECONDS = 30.0


class VaultRoom(NamedTuple):
    """A vault that no other test has."""

    url: str
    org: str
    vault: str

    @property
    def path(self) -> str:
        return f"{self.url}/ledger/v1/orgs/{self.org}/vaults/{self.vault}"

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        answer = httpx.get(f"{self.path}/{path}", timeout=SECONDS)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def transactions(self) -> list[tuple[str, int, list[Any]]]:
        """Client, sequence and operations of every block, in order."""
        found: list[tuple[str, int, list[Any]]] = []
        while blocks := self.get(f"blocks?from={len(found) + 1}&to={len(found) + 1_000}").get("blocks"):
            for block in blocks:
                [one] = block["transactions"]
                found.append((one["clientId"]["id"], int(one["sequence"]), one["operations"]))
        return found

    def write(self, client: str, sequence: int | None, key: str, value: str, **rest: Any) -> httpx.Response:
        """A write that the client under test knows nothing of."""
        body: dict[str, Any] = {"clientId": client, "operations": [{"setEntity": {"key": key, "value": value}}]}
        body |= {"sequence": str(sequence)} if sequence is not None else {}
        return self.send(body | rest)

    def send(self, body: dict[str, Any]) -> httpx.Response:
        """A write with this body."""
        return httpx.post(f"{self.path}/writes", json=body, timeout=SECONDS)

    def set_status(self, status: str) -> None:
        """Change the status of the vault."""
        answer = httpx.patch(self.path, json={"status": f"VAULT_STATUS_{status}"}, timeout=SECONDS)
        assert answer.status_code == 200, answer.text

    def suspend(self) -> None:
        """Suspend its organization."""
        path = f"{self.url}/ledger/v1/orgs/{self.org}"
        answer = httpx.patch(path, json={"status": "ORGANIZATION_STATUS_SUSPENDED"}, timeout=SECONDS)
        assert answer.status_code == 200, answer.text


def new_place(url: str, **policy: Any) -> VaultRoom:
    """A new vault of a new organization."""
    root = f"{url}/ledger/v1/orgs"
    org = httpx.post(root, json={"name": fresh("org")}, timeout=SECONDS).json()["slug"]["slug"]
    vault = httpx.post(f"{root}/{org}/vaults", json=policy, timeout=SECONDS).json()["vault"]["slug"]
    return VaultRoom(url, org, vault)
