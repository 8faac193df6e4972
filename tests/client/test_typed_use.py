"""What a user's own checker of types makes of the clients: mypy and Pyright, strict, in another folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.once.test_typed_use import found

PROGRAMS = Path(__file__).parent / "typed"

HEAD = """\
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
"""
WRONG = (
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
)
RIGHT = ('bill.submit("7")', 'report.submit(region="eu")', 'await mail.submit_async("me")', 'bill("7", 5)')
"""Lines of the same program that no checker may mind: else the ones above would prove nothing."""


def test_types_are_kept_and_wrong_uses_are_errors(tmp_path: Path) -> None:
    for program in PROGRAMS.glob("*program.py"):
        shutil.copy(program, tmp_path)
    (tmp_path / "wrong.py").write_text(
        f"# pyright: standard\n{HEAD}" + "".join(f"    {one}\n" for one in WRONG + RIGHT)
    )
    first = HEAD.count("\n") + 2
    for tool, errors in found(tmp_path).items():
        assert not [one for one in errors if one[0] != "wrong.py"], tool
        minded = {WRONG[number - first] for _, number, _ in errors if first <= number < first + len(WRONG)}
        assert not [one for one in WRONG if one not in minded], tool
        assert not [one for one in errors if not first <= one[1] < first + len(WRONG)], tool
