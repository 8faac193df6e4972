"""What a user's own checker of types makes of the clients: mypy and Pyright, strict, in another folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from tests.once.test_typed_use import found

FOLDER = Path(__file__).parent
PROGRAMS = (*FOLDER.glob("typed/*program.py"), *FOLDER.glob("events/typed/*program.py"))
"""Programs that no checker may mind."""


class Use(NamedTuple):
    """A program of one surface."""

    head: str
    wrong: tuple[str, ...]
    """Lines of it that are errors."""
    right: tuple[str, ...]
    """Lines that no checker may mind: else the ones above would prove nothing."""

    @property
    def text(self) -> str:
        """All of it."""
        return f"# pyright: standard\n{self.head}" + "".join(f"    {one}\n" for one in self.wrong + self.right)


JOBS = Use(
    """\
from semel.client import AsyncJob, Client, Job, Worker
worker = Worker()
client = Client()
@worker.job
def bill(order: str, cents: int = 5) -> str:
    return order
@worker.job(queue="q")
async def mail(job: AsyncJob, to: str) -> int:
    return len(to)
@worker.job("k")
def report(job: Job, region: str) -> None: ...
def plain() -> None: ...
async def use() -> None:
""",
    (
        "bill.submit()",
        "bill.submit(order=5)",
        'bill.submit(order="7", amount=5)',
        'bill.submit("7", 5, 6)',
        'number: int = bill.submit("7").result()',
        'bill("7", "5")',
        'mail.submit("me", job=None)',
        'await mail.submit("me")',
        'text: str = await (await mail.submit_async("me"))',
        "report.submit(region=5)",
        'report("eu")',
        'bill.submit_in("7")',
        "bill.submit_join([], order=5)",
        'bill.with_options(attempts="3")',
        "bill.with_options(retries=3)",
        "worker.job(queue=5)",
        'worker.job("k", priority="urgent")',
        'worker.job("k", retries=5)',
        'worker.cron("@daily")(plain)',
        'worker.cron("@daily", catch_up="first")',
        "client.jobs.submit()",
        'client.jobs.submit("k", retries=5)',
        'client.jobs.list(state="done")',
        "client.jobs.walk(order=5)",
        'client.jobs.set_queue("q", max_inflight="5")',
        "Worker(process=5)",
        "client.with_options(patience=5)",
        "client.with_options()",
    ),
    ('bill.submit("7")', 'report.submit(region="eu")', 'await mail.submit_async("me")', 'bill("7", 5)'),
)
REPLICA = Use(
    """\
from semel.client import AsyncClient, Client
client, other = Client(), AsyncClient()
db, far = client.deltas("a.db", "shop"), other.deltas("b.db", "shop")
async def use() -> None:
""",
    (
        "client.deltas()",
        "client.deltas('a.db', gateway=5)",
        "client.deltas('a.db', 'shop', moved='yes')",
        "client.deltas('a.db', 'shop', on_dead=5)",
        "db.insert('todos', 1, {})",
        "db.insert('todos', '1')",
        "number: int = db.insert('todos', '1', {})",
        "db.update('todos', '1', ['title'])",
        "text: str = db.update('todos', '1', {})",
        "await db.sync()",
        "pushed: int = db.push()",
        "accepted: str = (await far.push()).accepted",
        "far.push().accepted",
        "db.follow(every='soon')",
        "db.watch('todos', where=5)",
        "db.watch('todos', lambda: True)",
        "db.take_lost('all')",
        "for one in far.watch('todos'): pass",
        "client.deltas_admin.save_schema('todos', {'n': 'integer'})",
        "client.deltas_admin.nothing()",
        "db.nothing()",
    ),
    ("db.sync()", "await far.sync()", "db.watch('todos', {'done': None})", "client.deltas_admin.flush()"),
)
LEDGER = Use(
    """\
from semel.client import AsyncClient, Client, DeleteKey, IfVersion, SetKey
client, other = Client(), AsyncClient()
place, far = client.ledger.place(1, 2), other.ledger.place(1, 2)
writer = place.writer("c", "c.db")
async def use() -> None:
""",
    (
        'place.write([DeleteKey("a")])',
        'place.write(DeleteKey("a"), client="c")',
        'place.write([DeleteKey("a")], client="c", sequence="1")',
        'place.write([DeleteKey("a")], client=5)',
        'place.write([{"deleteEntity": {"key": "a"}}], client="c")',
        'number: int = place.write([DeleteKey("a")], client="c")',
        'text: str = await far.read("a")',
        "place.read(5)",
        'place.read("a").value',
        'SetKey("a", 5)',
        'SetKey("a", "1", "absent")',
        'IfVersion("3")',
        'writer.write([DeleteKey("a")], client="c")',
        "writer.recovered[0].outcome.height",
        "client.ledger.place(1, 2, head='file')",
        "client.ledger.nothing()",
    ),
    ('place.write([DeleteKey("a")], client="c")', 'await far.read("a")', 'SetKey("a", b"1", IfVersion(3))'),
)
EVENTS = Use(
    """\
from semel import AsyncClient, Client
from semel.client import Cursor, EventDraft, FileCursor
client = Client()
other = AsyncClient()
async def use() -> None:
""",
    (
        'client.events.submit("t")',
        'client.events.submit(5, partitions="p")',
        'client.events.submit("t", partition="p")',
        'client.events.submit("t", partitions=5)',
        'text: str = client.events.submit("t", partitions="p").committed_id',
        'client.events.submit_many(["t"])',
        'client.events.follow("p", cursor="0:5")',
        'client.events.follow("p", cursor=FileCursor("c"), types=5)',
        'client.events.follow("p").ack("0:5")',
        'client.events.read("p", since="0:5")',
        'Cursor("0", 5)',
        "EventDraft(5)",
        'number: int = other.events.end("p")',
        'for event in other.events.follow("p"): ...',
        "client.events.nothing",
    ),
    (
        'client.events.submit("t", partitions="p")',
        'await other.events.submit("t", partitions="p")',
        'client.events.follow("p", cursor=Cursor(0, 5))',
    ),
)
USES = {"jobs_use.py": JOBS, "replica_use.py": REPLICA, "ledger_use.py": LEDGER, "events_use.py": EVENTS}


def test_types_are_kept_and_wrong_uses_are_errors(tmp_path: Path) -> None:
    for program in PROGRAMS:
        shutil.copy(program, tmp_path)
    for name, use in USES.items():
        (tmp_path / name).write_text(use.text)
    for tool, errors in found(tmp_path).items():
        assert not [one for one in errors if one[0] not in USES], tool
        for name, use in USES.items():
            first = use.head.count("\n") + 2
            told = {number - first for file, number, _ in errors if file == name}
            assert told <= set(range(len(use.wrong))), (tool, name)
            assert not [one for number, one in enumerate(use.wrong) if number not in told], (tool, name)
