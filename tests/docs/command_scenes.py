"""What must be there before the commands below a heading of `docs/reference/cli.md` can be typed, and what is put in.

Commands that are not typed stand in `NOT_TYPED`, with the test that runs them instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

JOB = "job_0190f0d26f7a7c3e9d5b1a2b3c4d5e6f"
REQUEST = "0190f0d2-6f7a-7c3e-9d5b-1a2b3c4d5e6f"
ORG, VAULT = "6144862590052256", "1323427802732945"
TOKEN = "0b0b3696bae28bfe"
TRANSACTION = "000000000001de8e82bace780f7920d3"
DATABASE = "postgresql://semel@db.example.com/semel"
SHOP = "postgresql://app@db.example.com/shop"

FILES: Mapping[str, str] = {
    "semel.toml": "port = 8788\n",
    "first.csv": "a,b\n",
    "order.json": '{"item": "rice"}',
    "events.ndjson": '{"n": 1}\n{"n": 2}\n',
    "notes.ndjson": '{"type": "note.added"}\n{"type": "note.added", "payload": {"n": 2}}\n',
    "room-7.json": '{"notes": 3}',
    "params.json": '{"of": "yesterday"}',
    "jobs.ndjson": '{"kind": "resize", "params": {"image": 9}}\n',
    "app.log": "one line\n",
    "operator.token": "of-the-operator",
    "audit.jsonl": '{"ts":"2026-11-15T18:17:34.036Z","event":"AUTH_FAILURE","details":{"remote_addr":"192.0.2.7"}}\n',
    "idempotency_store.json": '{"records": []}',
    "idempotency_store.jsonl": "[]",
    "tasks.py": "from semel.client import Worker\nworker = Worker()\n@worker.job\ndef resize(image: int) -> int:\n"
    "    return image\n",
    "shop/tasks.py": "from semel.client import Worker\nworker = Worker()\n@worker.job\ndef mail(to: int) -> int:\n"
    "    return to\n",
    "tokens.toml": '[[token]]\nname = "shop"\nsha256 = "' + "0" * 64 + '"\n',
}
"""Files that a reader has: name and content."""


class Scene(NamedTuple):
    """What a heading needs."""

    before: tuple[str, ...] = ()
    """Lines that are typed first."""
    is_fresh: bool = False
    """Whether its folder and its database are empty at the beginning."""


SCENES: Mapping[str, Scene] = {
    "semel migrate": Scene(is_fresh=True),
    "semel backup create": Scene(("semel migrate --data /var/lib/semel",)),
    "semel restore": Scene(is_fresh=True),
    "semel epoch raise": Scene(("semel migrate --data /var/lib/semel", f"semel migrate --store {DATABASE}")),
    "semel find": Scene(
        (
            "semel jobs submit send --key invoice-4711",
            "semel streams create orders/2026 --type application/json",
            "semel streams append orders/2026 '{}' --key order-1",
        )
    ),
    "semel streams fork": Scene(('semel streams append orders \'{"item": "tea"}\'',)),
    "semel streams append": Scene(
        ("semel streams create events --type application/json", "semel streams create logs/app --type text/plain")
    ),
    "semel streams subscriptions": Scene(("semel streams create wakes --type application/json",)),
    "semel jobs release": Scene(("semel jobs submit resize '{\"image\": 7}' --key image-7 --queue images",)),
    "semel ledger vault": Scene(("semel ledger org create second",)),
    "semel ledger write": Scene((f"semel ledger vault create {ORG}",)),
    "semel once sweep": Scene((f"semel once init {SHOP}",)),
    "semel outbox run": Scene(("semel outbox init outbox.db", f"semel outbox init {SHOP}")),
}

WORK = "semel worker tasks:worker --once --queue images --queue default"
BEFORE: Mapping[str, tuple[str, ...]] = {
    "semel jobs submit resize '{\"image\": 7}' --key image-7 --wait 30": (WORK,),
}
"""Lines that are typed before one line."""

NOT_TYPED: Mapping[str, str] = {
    "semel serve --host 0.0.0.0": "it listens to other machines; tests/harness/server.py starts servers with tokens",
    "semel epoch raise --data /var/lib/semel": "it asks at a terminal; tests/cli/test_epoch.py answers",
    "semel token": "it needs a server of its own; tests/cli/test_token.py has one",
    "semel jobs wait": "it needs a worker beside it; tests/cli/test_jobs.py has one",
    "semel jobs result job_": "it needs a worker beside it; tests/cli/test_jobs.py has one",
    "semel jobs close": "it needs a group; tests/cli/test_jobs.py has one",
    "semel outbox retry outbox.db charge-7": "it needs a message that failed; tests/cli/test_outbox.py has one",
    "semel outbox drop outbox.db charge-7": "it needs a message that failed; tests/cli/test_outbox.py has one",
    "semel config check --host 0.0.0.0": "it refuses, as it should; tests/cli/test_config.py has the sentence",
    "semel events tail --partition room-7": "it goes on until it is stopped; tests/cli/test_events.py stops it",
    "semel audit watch": "it goes on until it is stopped; tests/cli/test_audit_watch.py stops it",
    "semel worker tasks:worker": "it goes on until it is stopped; tests/client/test_worker_command.py stops it",
    "semel ledger block 6144862590052256/1323427802732945 7": "the block is not there yet; tests/cli/test_ledger.py",
    "semel deltas pull gw1 --follow": "it goes on until it is stopped; tests/cli/test_deltas.py stops it",
    "semel outbox run": "it goes on until it is stopped; tests/cli/test_outbox.py stops it",
    "semel worker shop.tasks": "it is the first one with other options; tests/client/test_worker_command.py",
    "semel proxy": "it needs a service behind it; tests/proxy/test_command.py has one",
    "semel ledger verify ada.json": "it needs a hash that is trusted; tests/cli/test_ledger.py has one",
}
"""Beginnings of commands that are not typed, and why; each names the test that runs the command."""

WATCHED: Mapping[str, str] = {
    "semel serve": "http://127.0.0.1",
    "semel events tail --partition room-7 --partition audit --from-start": "note.added",
}
"""Beginnings of commands that go on until they are stopped, and what they say first."""
