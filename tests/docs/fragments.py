"""What the fragments of Python in the pages stand in: names that a page takes from its reader's program, and a check.

A fragment is found by its page and by a line of it. It runs with what is `before` it, inside a function if it says so,
and `after` it with the same names.
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple


class Fragment(NamedTuple):
    """One block of a page, and what surrounds it in a program."""

    page: str
    line: str
    """A line of the block that no other block of the page has."""
    before: str = ""
    after: str = ""
    function: str = ""
    """The head of a function that the block is the body of; `after` calls it."""

    def program(self, block: str) -> str:
        """The whole program."""
        body = f"{self.function}\n{textwrap.indent(block, '    ')}" if self.function else block
        return "\n".join((textwrap.dedent(self.before), body, textwrap.dedent(self.after)))


SHOP = """
import sqlite3
from semel import Once, once
connection = sqlite3.connect(":memory:")
connection.executescript("CREATE TABLE charges (amount integer);" + once.ddl("sqlite"))
"""
FASTAPI = """
import asyncio
from typing import Annotated, Any
from types import SimpleNamespace
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from semel import Once, once
from semel.once.fastapi import Key
app = FastAPI()
user = SimpleNamespace(id="ada")
engine = create_async_engine("sqlite+aiosqlite:///shop.db")
class Charge(BaseModel):
    amount: int
Order = Charge
async def tables():
    async with engine.begin() as connection:
        for statement in ["CREATE TABLE IF NOT EXISTS charges (amount integer)", *once.ddl("sqlite").split(";")]:
            if statement.strip():
                await connection.execute(text(statement))
asyncio.run(tables())
"""
TWICE = """
client = TestClient(app)
answers = [client.post(PATH, json={"amount": 5}, headers={"Idempotency-Key": "order-7"}) for _ in range(2)]
assert [one.status_code for one in answers] == [200, 200], answers[0].text
"""
WORKER = """
import sys
sys.path.insert(0, EXAMPLES)
from semel.client import Client, Job, Worker
from worker import bill
worker = Worker()
"""
ORM = """
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from semel.once import Outbox, outbox_ddl
class Base(DeclarativeBase): pass
class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int] = mapped_column(default=0)
engine = create_engine("sqlite:///shop.db")
Base.metadata.create_all(engine)
with engine.begin() as connection:
    for statement in outbox_ddl("sqlite").split(";"):
        if statement.strip():
            connection.exec_driver_sql(statement)
"""
POSTGRES_ORM = ORM.replace(
    'create_engine("sqlite:///shop.db")', 'create_engine(DATABASE.replace("postgresql:", "postgresql+psycopg:", 1))'
).replace('outbox_ddl("sqlite")', 'outbox_ddl("postgresql")')
PSYCOPG = """
import psycopg
from semel import once
with psycopg.connect(DATABASE) as connection:
    connection.execute("CREATE TABLE charges (amount integer)")
    connection.execute(once.ddl("postgresql"))
"""

TRACER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
tracer = trace.get_tracer("shop")
"""
DJANGO = """
import django
from django.conf import settings
from django.urls import path
own = ("django.contrib.auth", "django.contrib.contenttypes")
behind = "django.contrib.auth.middleware.AuthenticationMiddleware"
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
    INSTALLED_APPS=own,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware", behind],
    MIGRATION_MODULES={"auth": None, "contenttypes": None},
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    USE_TZ=True,
)
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, models
from django.test import Client
from semel import once
class Charge(models.Model):
    owner = models.ForeignKey(User, models.CASCADE)
    class Meta:
        app_label = "shop"
call_command("migrate", run_syncdb=True, verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Charge)
with connection.cursor() as cursor:
    for statement in filter(str.strip, once.ddl("sqlite").split(";")):
        cursor.execute(statement)
"""
DJANGO_TWICE = """
urlpatterns = [path("charges", charge)]
told = []
for name in ("ada", "ada", "bob"):
    client = Client()
    client.force_login(User.objects.get_or_create(username=name)[0])
    answer = client.post("/charges", headers={"Idempotency-Key": "order-7"})
    told.append((answer.status_code, answer.json()["charge"], answer.headers.get("Idempotency-Replayed")))
assert told == [(201, 1, None), (201, 1, "true"), (201, 2, None)], told
assert Charge.objects.count() == 2
"""

FRAGMENTS = (
    Fragment(
        "docs/once/functions.md",
        'store = Once("app.db")',
        """
        calls = []
        class bank:
            def charge(amount, idempotency_key):
                calls.append(idempotency_key)
                return amount
        """,
        "assert len(calls) == 1",
    ),
    Fragment(
        "docs/once/middleware.md",
        'app.add_middleware(once.Middleware, store=Once("receipts.db"), scope=lambda request: request.user.id)',
        "from fastapi import FastAPI\napp = FastAPI()",
        "assert [one.cls for one in app.user_middleware] == [once.Middleware]",
    ),
    Fragment(
        "docs/once/middleware.md",
        "async def charge(body: Charge):",
        FASTAPI
        + """
async def charge_card(connection, body):
    await connection.execute(text("INSERT INTO charges VALUES (5)"))
    return {"charged": body.amount}
app.add_middleware(once.Middleware, store=Once("receipts.db"), scope=None)
PATH = "/charges"
""",
        TWICE,
    ),
    Fragment(
        "docs/once/middleware.md",
        'Once("receipts.db").once(key=str, scope=f"request:{user.id}")(lambda key: None).forget("order-7")',
        'from types import SimpleNamespace\nfrom semel import Once\nuser = SimpleNamespace(id="ada")',
    ),
    Fragment(
        "docs/once/middleware.md",
        "async def order(body: Order, key: Key, session: Session):",
        FASTAPI
        + """
async def opened():
    async with AsyncSession(engine) as session:
        yield session
Session = Annotated[AsyncSession, Depends(opened)]
PATH = "/orders"
""",
        TWICE,
    ),
    Fragment("docs/once/middleware.md", "return JsonResponse(", DJANGO, DJANGO_TWICE),
    Fragment(
        "docs/once/outbox.md",
        'box = Outbox("postgresql://app@db.example.com/shop")',
        POSTGRES_ORM,
        'assert box.state("charge-7").value == "queued"',
    ),
    Fragment(
        "docs/once/outbox.md",
        "from semel.once import EnvSecret",
        'from semel.once import Outbox\nbox = Outbox("out.db")',
        'assert box.state("charge-7").value == "queued"',
    ),
    Fragment(
        "docs/once/testing.md",
        'point("charged")  # does nothing outside a test',
        """
        notes = []
        class bank:
            charge = notes.append
        class ledger:
            note = notes.append
        """,
        'charge("order-7")\nassert notes == ["order-7"] * 2',
    ),
    Fragment(
        "docs/once/transaction.md",
        'with psycopg.connect("postgresql://localhost/shop") as connection:',
        PSYCOPG,
        """
        assert attempt.result == {"charged": 5}
        with psycopg.connect(DATABASE) as connection:
            assert connection.execute("SELECT count(*) FROM charges").fetchone() == (1,)
        """,
    ),
    Fragment(
        "docs/once/transaction.md",
        "return place_order(connection, key, order)",
        SHOP
        + """
tries = []
def place_order(connection, key, order):
    tries.append(key)
    if len(tries) < 3:
        raise once.RunAgain("another transaction committed first")
    return order
key, order = "order-7", {"amount": 5}
""",
        "assert tried() == order\nassert len(tries) == 3",
        "def tried():",
    ),
    Fragment(
        "docs/guide/workers.md",
        'return job.once("charge", charge, order, job.step_key("charge"))',
        WORKER
        + """
calls = []
def charge(order, key): return calls.append(key) or "paid " + order
async def charge_async(order): return calls.append(order) or "paid " + order
""",
        """
        handles = [pay.submit(order="4711"), pay_later.submit(order="4712")]
        worker.run(until_idle=True)
        assert [handle.result(timeout=30) for handle in handles] == ["paid 4711", "paid 4712"]
        assert len(calls) == 2
        """,
    ),
    Fragment(
        "docs/guide/workers.md",
        "async def trace(job, call):",
        WORKER + ORM + TRACER + "\nfrom contextvars import ContextVar\ncurrent_session = ContextVar('s')\n",
        """
        @worker.job
        def place(order: int) -> int:
            current_session.get().add(Order(id=order))
            return order
        handle = place.submit(order=7)
        worker.run(until_idle=True)
        assert handle.result(timeout=30) == 7
        with Session(engine) as session:
            assert session.get(Order, 7) is not None
        assert [span.name for span in exporter.get_finished_spans()] == ["place"]
        """,
    ),
    Fragment("docs/guide/workers.md", "def remind(days: int) -> None: ...", WORKER),
    Fragment(
        "docs/guide/workers.md",
        "@worker.job(unique=Unique(window=3600))  # a report for the same region at most once an hour",
        WORKER + "\n@worker.job\ndef index(version: int) -> int: return version\n",
        'assert report.submit(region="eu").job_id == report.submit(region="eu").job_id',
    ),
    Fragment("docs/guide/workers.md", "def order(job: Job, lines: list[str]) -> int:", WORKER),
    Fragment("docs/guide/workers.md", "def report(job: Job, region: str) -> int:", WORKER, "assert handle.job_id"),
    Fragment(
        "docs/guide/workers.md",
        'bill.with_options(key="bill-7").submit_in(session, order="7")',
        WORKER + ORM,
    ),
    Fragment(
        "docs/guide/workers.md",
        'assert handle.result().payment == "pay-4711"',
        WORKER + "\nfrom worker import worker\n",
    ),
    Fragment(
        "docs/guide/workers.md",
        "from semel.client import AsyncClient, JobRequest",
        """
        import asyncio
        import threading
        from semel.client import Client
        def work():
            with Client() as client:
                [lease] = client.jobs.claim("w-1", kinds=["order.bill"], queues=["default"], wait=30.0).leases
                client.jobs.complete(lease, "billed")
        worker = threading.Thread(target=work)
        worker.start()
        """,
        "asyncio.run(submitted())\nworker.join(30)",
        "async def submitted():",
    ),
    Fragment(
        "docs/operating/tracing.md",
        'client = Client("http://127.0.0.1:8788", telemetry=ClientTelemetry())',
        TRACER,
        """
        client.streams.create("traced", content_type="text/plain")
        client.close()
        [span] = exporter.get_finished_spans()
        assert (span.name, span.kind.name) == ("semel streams create", "CLIENT")
        assert span.attributes["url.template"] == "/v1/stream/{}"
        """,
    ),
)
