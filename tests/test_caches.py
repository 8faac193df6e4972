"""Every cache of the code is in one list, with its bound in bytes: none grows with what callers send."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.server.auth.jwt_claims import ClaimedIdentity
from semel.server.auth.jwt_tokens import RecentTokens
from semel.server.auth.principals import AccessScope, Principal

SOURCES = Path(__file__).parent.parent / "src"
DECORATORS = {"cache", "lru_cache"}
TOTAL_BYTES = 224 * 1024 * 1024


class Bound(NamedTuple):
    """The bound of one cache."""

    entries: int | None
    """None for a function without arguments."""
    entry_bytes: int
    """What one entry takes at most, by the limits of its arguments."""


CACHES: Mapping[str, Bound] = {
    "semel.kernel.clock._whole_seconds": Bound(16, 256),
    "semel.once.codec._accelerated": Bound(2, 256),
    "semel.once.drivers.psycopg._pieces": Bound(256, 8 * 1024),  # statements of ours, with the name of a table
    "semel.once.table._worded": Bound(256, 8 * 1024),
    "semel.once.table.receipts_of": Bound(64, 32 * 1024),
    "semel.once.transaction._driver_maker": Bound(64, 1024),
    "semel.once.units.milliseconds": Bound(64, 512),
    "semel.server.api_document.api_document": Bound(None, 2 * 1024 * 1024),
    "semel.server.grpc.health._descriptors": Bound(None, 256 * 1024),
    "semel.server.http.cors._address": Bound(256, 1024),  # a name of at most 256 bytes
    "semel.server.http.cors._name_in": Bound(256, 1024),
    "semel.server.http.cors.is_loopback_name": Bound(256, 1024),
    "semel.server.http.cors.make_policy": Bound(8, 64 * 1024),  # two settings of the operator
    "semel.server.http.remote_address.counted_as": Bound(4_096, 512),
    "semel.surfaces.deltas.rules.replicas.progress_key": Bound(1_024, 8 * 1024),
    "semel.surfaces.deltas.rules.sync_rules.rules_of": Bound(64, 320 * 1024),  # 64 KiB of text, and what it says
    "semel.surfaces.deltas.tables.gateway_key": Bound(4_096, 1024),
    "semel.surfaces.deltas.tables.text_key": Bound(4_096, 3 * 1024),  # an id of at most 1,024 characters
    "semel.surfaces.jobs.rules.cron.zone_of": Bound(256, 16 * 1024),
    "semel.surfaces.jobs.rules.leases._states": Bound(8, 2 * 1024),
    "semel.surfaces.jobs.rules.links._unpacked": Bound(1_024, 4 * 1024),
    "semel.surfaces.jobs.wire.answers._json_text": Bound(256, 1024),
    "semel.surfaces.jobs.wire.quick._known_claim": Bound(2_048, 4 * 1024),
    "semel.surfaces.jobs.wire.quick._known_result": Bound(2_048, 1024),
    "semel.surfaces.deltas.wire.plain_delta._client_text": Bound(4_096, 1024),
    "semel.surfaces.deltas.wire.plain_delta._is_identifier": Bound(4_096, 512),
    "semel.surfaces.events.rules.partitions._remembered": Bound(1_024, 8 * 1024),
    "semel.surfaces.epoch.load_pairs": Bound(4_096, 4 * 1024),
    "semel.surfaces.ledger.rules.state_tree._known_bucket": Bound(4_096, 512),
    "semel.surfaces.ledger.rules.state_tree._known_page": Bound(4_096, 10 * 1024),
    "semel.surfaces.ledger.wire.answers._second_text": Bound(16, 256),
    "semel.surfaces.registry._scope_rules": Bound(None, 16 * 1024),
    "semel.surfaces.registry._surfaces": Bound(None, 16 * 1024),
    "semel.surfaces.streams.subscriptions.rules.globs._groups": Bound(4_096, 4 * 1024),
    "semel.surfaces.streams.subscriptions.rules.globs._places": Bound(16, 8 * 1024),
    "semel.surfaces.streams.subscriptions.rules.globs._segments": Bound(4_096, 4 * 1024),
    "semel.surfaces.streams.subscriptions.webhook_client._tls": Bound(1, 1024 * 1024),
    "semel.surfaces.streams.wire.headers.stored_name": Bound(4_096, 3 * 1024),
    "semel.surfaces.streams.wire.headers.parse_name": Bound(4_096, 5 * 1024),  # a refused name is not kept
}


def caches_in(path: Path) -> Iterator[str]:
    """The functions of a module whose results `functools` keeps."""
    module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    text = path.read_text("utf-8")
    if not any(name in text for name in DECORATORS):
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(is_cache, node.decorator_list)):
            yield f"{module}.{node.name}"
    for statement in tree.body:  # a cache inside of a function ends with what the function made
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Call)
            and is_cache(statement.value.func)
        ):
            yield f"{module}.{ast.unparse(statement.targets[0])}"


def is_cache(node: ast.expr) -> bool:
    """Whether this is one of the decorators, called with options or not."""
    called = node.func if isinstance(node, ast.Call) else node
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in DECORATORS


def test_every_cache_is_listed() -> None:
    found = {name for path in SOURCES.rglob("*.py") if not path.stem.endswith("_pb2") for name in caches_in(path)}
    assert found == set(CACHES)


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_has_the_entries_of_the_list(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert getattr(importlib.import_module(module), function).cache_parameters()["maxsize"] == CACHES[name].entries


def test_all_caches_together_are_bounded_although_each_entry_is_the_largest() -> None:
    assert sum((bound.entries or 1) * bound.entry_bytes for bound in CACHES.values()) <= TOTAL_BYTES


def test_a_cache_that_is_not_listed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCES", tmp_path)
    (tmp_path / "made.py").write_text("import functools\n@functools.lru_cache(maxsize=8)\ndef grow(name): ...\n")
    assert list(caches_in(tmp_path / "made.py")) == ["made.grow"]


def claimed(names: int) -> ClaimedIdentity:
    """What a token with this number of names says."""
    scopes = tuple(AccessScope("events", b"room-%d" % number, False) for number in range(names))
    return ClaimedIdentity(Principal("ada", "user", frozenset(), scopes), 0)


def test_verified_tokens_are_kept_up_to_a_number_and_to_a_number_of_names() -> None:
    recent = RecentTokens(most=3, most_names=5)
    for digest, names in ((b"1", 2), (b"2", 2), (b"3", 0)):
        recent.put(digest, claimed(names))
    assert recent.get(b"1") is not None  # it was used last
    recent.put(b"4", claimed(0))
    assert [digest for digest in (b"1", b"2", b"3", b"4") if recent.get(digest)] == [b"1", b"3", b"4"]
    recent.put(b"5", claimed(4))
    assert [digest for digest in (b"1", b"3", b"4", b"5") if recent.get(digest)] == [b"3", b"4", b"5"]
    recent.put(b"6", claimed(6))
    assert len(recent) == 0
