"""The order of the pages: the navigation of the site, and the list of all pages at the end of `docs/index.md`.

A page that is not in this table is refused by a test. The first page, `docs/index.md`, stands before all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """One page: its path below `docs` without `.md`, its name in the navigation, and what it holds."""

    path: str
    name: str
    about: str


class Section(NamedTuple):
    """One heading of the navigation, with its pages."""

    name: str
    pages: Sequence[Entry]


ABOVE = {"contributing": "CONTRIBUTING.md", "changes": "CHANGELOG.md"}
"""Pages of the site that are files beside `docs`."""

SECTIONS = (
    Section(
        "Start",
        (
            Entry("tutorial", "The server in ten minutes", "store, kill, retry; a job that is done once"),
            Entry(
                "once/tutorial", "No double charge in ten minutes", "a shop with FastAPI and PostgreSQL, killed twice"
            ),
        ),
    ),
    Section(
        "Guide: the library",
        (
            Entry("once/transaction", "Transactions", "the receipt of a call in your own transaction; no server"),
            Entry("once/functions", "Functions", "functions with effects outside the database, run once for each key"),
            Entry("once/middleware", "Middleware", "`Idempotency-Key` for ASGI and WSGI applications"),
            Entry(
                "once/outbox", "Outbox", "requests to other services, stored first, then sent until they are answered"
            ),
            Entry(
                "once/compatibility",
                "Compatibility",
                "drivers, frameworks and servers that the tests run, and what is refused",
            ),
            Entry("once/proxy", "Proxy", "requests with a key take effect once, in front of any service"),
            Entry("once/testing", "Testing", "a pytest plugin: is a call that is repeated, raced or killed made once?"),
        ),
    ),
    Section(
        "Guide: the server",
        (
            Entry(
                "guide/clients", "Clients", "`semel.Client` and `semel.AsyncClient`: retries, unknown outcomes, errors"
            ),
            Entry("guide/streams", "Streams", "create, append, close and read; keys and producers"),
            Entry("guide/events", "Events", "submit, catch up and follow over WebSocket or HTTP; Insieme clients"),
            Entry("guide/jobs", "Jobs", "submit once, claim, complete, fail; leases, dead letters, schedules"),
            Entry("guide/workers", "Workers", "run jobs with your own Python functions; steps that happen once"),
            Entry("guide/ledger", "Ledger", "transactions, sequences and keys, conditions, proofs, gRPC"),
            Entry("guide/deltas", "Deltas", "push and pull row changes; conflicts, cursors, LakeSync clients"),
            Entry("guide/replicas", "Replicas", "rows in a local file, changed offline and synced"),
        ),
    ),
    Section(
        "How to",
        (
            Entry("howto/fastapi", "FastAPI", "a handler that takes effect once"),
            Entry("howto/django", "Django", "a view that takes effect once"),
            Entry(
                "guide/celery", "Move from Celery", "what a task becomes, how to move one, the features side by side"
            ),
            Entry("howto/kubernetes", "Kubernetes", "one node with a disk, or several over PostgreSQL"),
            Entry("howto/failover-drill", "Failover drill", "break the database under load, and count"),
            Entry("howto/restore-drill", "Restore drill", "is the backup any good?"),
            Entry("once/recipes", "Recipes", "webhooks, Kafka, SQS, RabbitMQ, Redis Streams, the tools of an agent"),
        ),
    ),
    Section(
        "Concepts",
        (
            Entry("concepts/one-law", "The one law", "verdict, effect and receipt are one transaction"),
            Entry("concepts/verdicts", "Verdicts", "fresh, replay, mismatch; the life of a job"),
            Entry("concepts/epochs", "Epochs", "which history a position belongs to"),
            Entry("concepts/exactly-once", "What exactly once can mean", "inside one commit, and outside of it"),
            Entry("concepts/words", "Words", "what key, receipt, replay, lease and the others mean"),
        ),
    ),
    Section(
        "Reference",
        (
            Entry("reference/cli", "Command line", "every command of `semel`"),
            Entry("reference/commands", "Options of every command", "usage, options, variables and defaults"),
            Entry("reference/settings", "Settings", "every setting, by variable, flag and file"),
            Entry("reference/limits", "Limits", "every limit, and what happens at it"),
            Entry("reference/errors", "Errors", "every code, whether to retry, and what to do"),
            Entry("operating/metrics", "Metrics", "the alerts to set first, a dashboard, and all metrics"),
            Entry("reference/http", "HTTP", "routes, headers, statuses, and the order of checks of streams"),
            Entry("reference/openapi", "OpenAPI", "the document at `/openapi.json`, and every operation"),
            Entry("reference/grpc", "gRPC", "the services and messages of the ledger"),
            Entry("reference/python", "Python API", "every public name, with its signature and docstring"),
            Entry("reference/events", "Events", "messages, states, close codes, dialects, the order of checks"),
            Entry("reference/jobs", "Jobs", "paths, fields, the submission table, states, hashes, schedules"),
            Entry("reference/ledger", "Ledger", "paths, operations, the rule table, codes, eviction, reads"),
            Entry("reference/ledger-proofs", "Ledger proofs", "every byte that is hashed, and test vectors"),
            Entry("reference/deltas", "Deltas", "paths, fields, the hash, the order of checks of a push, cursors"),
        ),
    ),
    Section(
        "Operating",
        (
            Entry("operating/running", "Running a server", "data folder, health, logs, stopping, full disks, upgrades"),
            Entry("operating/deploy", "Deploying", "the image, Compose, Kubernetes, systemd, releases"),
            Entry("operating/credentials", "Credentials", "who may connect and do what; tokens and JWTs"),
            Entry("operating/quotas", "Quotas", "what one principal may use"),
            Entry("operating/namespaces", "Namespaces", "several stores in one server"),
            Entry("operating/tracing", "Tracing", "OpenTelemetry from the caller to the commit"),
            Entry("operating/find-a-write", "Find a write", "did it happen, when, what was answered, who retried it"),
            Entry("operating/console", "The console", "web pages at `/console`: what the server does and stores"),
            Entry("operating/diagnosis", "Diagnosis", "one file with diagnostic data and without secrets"),
            Entry("operating/audit", "The audit log", "its events, its file, and `semel audit watch`"),
            Entry("operating/backup", "Backup and restore", "beside a running server, into an empty store"),
            Entry("operating/check", "Checking a store", "`semel check`, beside a server"),
            Entry("operating/scaling", "Scaling", "where nodes take turns, and what lifts it"),
            Entry("operating/postgres", "Many nodes over PostgreSQL", "what it needs, failures, sizing, failover"),
            Entry("operating/high-availability", "A cluster with Patroni", "Patroni, etcd and PgBouncer"),
        ),
    ),
    Section(
        "Internals",
        (
            Entry("internals/architecture", "Architecture", "layers, the one law, the commit path, adding a surface"),
            Entry("internals/surface-streams", "Streams, inside", "tables, locks, rules and modules"),
            Entry("internals/surface-events", "Events, inside", "tables, locks, rules and modules"),
            Entry("internals/surface-jobs", "Jobs, inside", "tables, locks, rules and modules"),
            Entry("internals/surface-ledger", "Ledger, inside", "tables, locks, rules and modules"),
            Entry("internals/surface-deltas", "Deltas, inside", "tables, locks, rules and modules"),
            Entry("internals/stores", "Stores", "the store protocol, SQLite, PostgreSQL, schema, epochs"),
            Entry(
                "internals/loop-law", "The law of the event loop", "what may hold it, and what the worst requests do"
            ),
            Entry("internals/glossary", "Glossary", "the words of the code, and where each lives"),
            Entry("internals/testing", "Testing", "what each folder of tests shows, and how the harnesses judge"),
            Entry("internals/regressions", "Defects that must not return", "each with the tests that hold it"),
            Entry("internals/performance", "Performance", "what `make bench` measures, and how"),
            Entry("internals/dependencies", "Dependencies", "why each one is here"),
            Entry("contributing", "Contributing", "set up, test first, layers, style, commits"),
            Entry("changes", "Changes", "what users notice, by version"),
        ),
    ),
    Section(
        "Comparison",
        (
            Entry("benchmarks", "Benchmarks", "beside Redis, NATS and others: machine, versions, date, command"),
            Entry("once/comparison", "What others do after a crash", "one kill schedule under six libraries"),
            Entry("scope", "What Semel does not do", "what was left out, why, and what to use instead"),
        ),
    ),
)


def all_pages() -> Iterator[Entry]:
    """Every page, in the order of the navigation."""
    for section in SECTIONS:
        yield from section.pages


def page_list() -> Iterator[str]:
    """The list of all pages, as Markdown for `docs/index.md`."""
    for section in SECTIONS:
        yield from ("" for _ in [0] if section is not SECTIONS[0])
        yield from (f"### {section.name}", "")
        for page in section.pages:
            path = f"../{ABOVE[page.path]}" if page.path in ABOVE else f"{page.path}.md"
            yield f"- [{page.name}]({path}): {page.about}"


def toctrees() -> str:
    """The navigation in Sphinx's own words."""
    parts = []
    for section in SECTIONS:
        lines = "\n".join(f"{page.name} <{page.path}>" for page in section.pages)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {section.name}\n\n{lines}\n```\n")
    return "\n".join(parts)
