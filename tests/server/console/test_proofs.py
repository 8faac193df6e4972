"""Proofs of the ledger's state: the browser and the offline verifier agree on good ones and on each changed one."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from semel.client.proofs import ProofError, Trusted, block_hash, verify_read
from semel.client.proofs.hashes import seahash
from tests.harness.chromium import Browser, running_browser
from tests.server.console.browser import ConsolePage, console_page
from tests.server.console.site import HOSTILE, ConsoleSite, console_site

KEYS = 1_500
"""So many keys that most buckets have some: absence is proved by nothing, and by another key in the place."""
Path_ = tuple[str | int, ...]


class Vault(NamedTuple):
    """A vault with many keys."""

    site: ConsoleSite
    org: str
    vault: str

    @property
    def place(self) -> str:
        """Its path."""
        return f"/ledger/v1/orgs/{self.org}/vaults/{self.vault}"

    def proof(self, key: str, height: int | None = None) -> dict[str, Any]:
        """The answer to a proved read, present or absent."""
        query: dict[str, Any] = {"proof": "true"} | ({} if height is None else {"atHeight": height})
        answer = self.site.client.get(f"{self.place}/entities/{quote(key, safe='')}", params=query)
        assert answer.status_code in (200, 404), answer.text
        return dict(answer.json())


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    with console_site(tmp_path_factory.mktemp("proofs")) as site:
        client = site.client
        org = client.post("/ledger/v1/orgs", json={"name": "proofs"}).raise_for_status().json()["slug"]["slug"]
        made = client.post(f"/ledger/v1/orgs/{org}/vaults", json={}).raise_for_status().json()
        filled = Vault(site, org, made["vault"]["slug"])
        names = [*(f"key:{number}" for number in range(KEYS)), HOSTILE]
        for sequence, start in enumerate(range(0, len(names), 100), 1):
            operations = [set_entity(name) for name in names[start : start + 100]]
            write(client, filled, sequence, operations)
        write(client, filled, 17, [set_entity("key:1", "changed", 4_102_444_800)])
        yield filled


def set_entity(key: str, value: str = "", expires_at: int = 0) -> dict[str, Any]:
    given: dict[str, Any] = {"key": key, "value": b64encode((value or f"value of {key}").encode()).decode()}
    return {"setEntity": given | ({"expiresAt": str(expires_at)} if expires_at else {})}


def write(client: httpx.Client, vault: Vault, sequence: int, operations: list[dict[str, Any]]) -> None:
    body = {"clientId": "filler", "sequence": str(sequence), "operations": operations}
    answer = client.post(f"{vault.place}/writes", json=body).raise_for_status().json()
    assert "success" in answer, answer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def page(browser: Browser, vault: Vault) -> Iterator[ConsolePage]:
    with console_page(browser, vault.site.url) as tab:
        tab.open("#/ledger")
        yield tab
        assert tab.faults() == []


def in_browser(page: ConsolePage, documents: list[dict[str, Any]], key: str, trusted: str) -> list[bool]:
    """Whether the browser takes each document as a proof of the key."""
    given = json.dumps([documents, key, trusted])
    found = page.run(
        f"import('{page.base}/console/static/state_proof.js').then(async ({{checkedState}}) => {{"
        f"const [documents, key, trusted] = {given}; const found = [];"
        "for (const one of documents) {"
        "let steps; try { steps = await checkedState(one, new TextEncoder().encode(key), trusted) }"
        "catch { steps = [['', false]] } found.push(steps.length > 0 && steps.every(([, holds]) => holds)) }"
        "return found })"
    )
    return [bool(one) for one in found]


def offline(document: dict[str, Any], key: str, trusted: str, height: int) -> bool:
    """Whether the offline verifier takes it."""
    try:
        verify_read(document, key, Trusted(height, bytes.fromhex(trusted)))
    except ProofError:
        return False
    return True


def leaves(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The paths of all values."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(inner, (*path, place))
    else:
        yield path


def changed(document: dict[str, Any], path: Path_, by: int = 1) -> dict[str, Any]:
    """A copy with one value changed: a bit of bytes, a number, a direction, a time."""
    copy: Any = deepcopy(document)
    holder = copy
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = flipped(holder[path[-1]], path, by)
    return dict(copy)


def flipped(value: Any, path: Path_, by: int) -> Any:
    if isinstance(value, int):
        return value + by
    if value in ("DIRECTION_LEFT", "DIRECTION_RIGHT"):
        return "DIRECTION_LEFT" if value == "DIRECTION_RIGHT" else "DIRECTION_RIGHT"
    if path[-1] == "timestamp":
        return value.replace("20", "21", 1)
    if value.isdigit():
        return str(int(value) + by)
    raw = bytearray(b64decode(value))
    if not raw:
        return b64encode(b"x").decode()
    raw[len(raw) // 2] ^= 4
    return b64encode(bytes(raw)).decode()


CASES = {
    "present": ("key:7", None),
    "present before": ("key:1", 3),
    "changed, with an end": ("key:1", None),
    "hostile": (HOSTILE, None),
    "absent yet": ("key:1400", 3),
    **{f"absent {number}": (f"never:{number}", None) for number in range(12)},
}


def test_every_case_of_absence_is_among_the_cases(vault: Vault) -> None:
    """Another key in the place, and nothing."""
    proofs = [vault.proof(f"never:{number}")["stateProof"] for number in range(12)]
    assert any(one.get("bucketEntries") for one in proofs)
    assert not all(one.get("bucketEntries") for one in proofs)


@pytest.mark.parametrize("name", CASES)
def test_browser_and_offline_verifier_agree(page: ConsolePage, vault: Vault, name: str) -> None:
    key, height = CASES[name]
    good = vault.proof(key, height)
    header = good["blockHeader"]
    trusted = block_hash(header).hex()
    flips = [path for path in leaves(good) if "leaderId" not in path and not is_one_of_many(path)]
    documents = [good, *(changed(good, path) for path in flips)]
    told = in_browser(page, documents, key, trusted)
    assert told[0] is True
    for path, document, is_fine in zip([(), *flips], documents, told, strict=True):
        assert is_fine == offline(document, key, trusted, int(header["height"])), path
    assert not any(told[1:]), [path for path, is_fine in zip(flips, told[1:], strict=True) if is_fine]
    other = in_browser(page, [good], f"{key}x", trusted)
    assert other == [offline(good, f"{key}x", trusted, int(header["height"]))] == [False]
    assert in_browser(page, [good], key, "00" * 32) == [False]


def is_one_of_many(path: Path_) -> bool:
    """Of the 255 roots of other buckets, some stand for all."""
    return "otherBucketRoots" in path and path[path.index("otherBucketRoots") + 1] not in (0, 1, 100, 253, 254)


@pytest.mark.parametrize("member", ["siblings", "otherBucketRoots", "bucketEntries"])
def test_a_missing_or_a_further_part_is_found(page: ConsolePage, vault: Vault, member: str) -> None:
    for key in ("key:7", *(f"never:{number}" for number in range(12))):
        good = vault.proof(key)
        trusted, height = block_hash(good["blockHeader"]).hex(), int(good["blockHeader"]["height"])
        holder = "merkleProof" if member == "siblings" else "stateProof"
        less, more = deepcopy(good), deepcopy(good)
        less[holder][member] = list(less[holder].get(member, []))[:-1]
        filler = {"bucketEntries": {"key": "eA==", "value": "", "expiresAt": "0", "version": "1"}}.get(
            member, more["stateProof"]["bucketRoot"]
        )
        if member == "siblings":
            filler = {"hash": filler, "direction": "DIRECTION_LEFT"}
        more[holder][member] = [*more[holder].get(member, []), filler]
        documents = [one for one in (less, more) if one != good and one[holder][member] != good[holder].get(member, [])]
        expected = [offline(one, key, trusted, height) for one in documents]
        assert in_browser(page, documents, key, trusted) == expected == [False] * len(documents), key


def test_the_bucket_of_a_key_is_that_of_the_reference(page: ConsolePage) -> None:
    texts = ["", "12345678", "to be or not to be", "user:1", HOSTILE, "ä" * 33]
    found = page.run(
        f"import('{page.base}/console/static/state_proof.js').then(({{seahash}}) => {json.dumps(texts)}.map("
        "text => seahash(new TextEncoder().encode(text)).toString(16).padStart(16, '0')))"
    )
    assert found == [f"{seahash(text.encode()):016x}" for text in texts]
    assert found[:2] == ["c920ca43256fdcb9", "79476d25d4c6dfc4"]


def test_the_page_calls_a_forged_value_wrong(page: ConsolePage, vault: Vault) -> None:
    route = f"#/ledger/{vault.org}/{vault.vault}/state"
    page.open(f"{route}?key=key%3A7", "document.querySelector('.badge[data-word=verified]')")
    assert "value of key:7" in page.text()
    forged = b64encode(b"forged of key:7").decode()
    page.run(
        "window.real = fetch; window.fetch = async (url, given) => { const answer = await real(url, given);"
        "if (!/entities/.test(url)) return answer; return new Response((await answer.text()).replaceAll("
        f"'{b64encode(b'value of key:7').decode()}', '{forged}'), answer); }}; 0"
    )
    page.go(f"{route}?key=key%3A7&height=17", "document.querySelector('.badge[data-word=wrong]')")
    assert not page.run("document.querySelector('.badge[data-word=verified]')")


def test_a_present_key_is_not_proved_absent_by_an_entry_in_its_place(page: ConsolePage, vault: Vault) -> None:
    """Its own entry, and that of each other key, given as what stands in its place."""
    for key, other in (("key:7", "key:7"), *((f"never:{number}", f"key:{number}") for number in range(12))):
        proof = vault.proof(other)
        state, trusted = proof["stateProof"], block_hash(proof["blockHeader"]).hex()
        entry = {name: state[name] for name in ("key", "value", "expiresAt", "version")}
        forged = deepcopy(proof)
        forged.pop("value")
        empty = {"key": b64encode(key.encode()).decode(), "value": "", "expiresAt": "0", "version": "0"}
        forged["stateProof"] |= empty | {"bucketEntries": [entry]}
        documents = [forged, deepcopy(forged)]
        documents[1]["stateProof"]["bucketId"] = seahash(key.encode()) % 256
        height = int(proof["blockHeader"]["height"])
        expected = [offline(one, key, trusted, height) for one in documents]
        assert in_browser(page, documents, key, trusted) == expected == [False, False], (key, other)


def test_a_number_of_more_than_64_bits_is_none(page: ConsolePage, vault: Vault) -> None:
    """Its lower bits have the same hash: the page would show another end, or another height, than the one proved."""
    for key in ("key:7", "key:1", "never:1"):
        good = vault.proof(key)
        trusted, height = block_hash(good["blockHeader"]).hex(), int(good["blockHeader"]["height"])
        paths = [path for path in leaves(good) if path[-1] in ("expiresAt", "version", "height", "blockHeight", "term")]
        beyond = [changed(good, path, 2**64) for path in paths]
        whole = deepcopy(good)
        for part, name in (("blockHeader", "height"), ("stateProof", "blockHeight")):
            whole[part][name] = str(height + 2**64)
        beyond.append(whole | {"blockHeight": str(height + 2**64)})
        expected = [offline(one, key, trusted, height) for one in beyond]
        assert in_browser(page, beyond, key, trusted) == expected == [False] * len(beyond), (key, paths)
