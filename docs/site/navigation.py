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
            Entry("tutorial/library", "The library in ten minutes", "a shop with FastAPI and PostgreSQL, killed twice"),
            Entry("tutorial/server", "The server in ten minutes", "store, kill, retry, and run a job once"),
            Entry("concepts", "Concepts", "keys, receipts, verdicts, epochs, and what exactly once can mean"),
            Entry("glossary", "Glossary", "every word of the pages and of the code"),
        ),
    ),
    Section(
        "The library",
        (
            Entry("once/transaction", "Transactions", "the receipt of a call in your own transaction; no server"),
            Entry("once/functions", "Functions", "functions with effects outside the database, run once for each key"),
            Entry("once/middleware", "Middleware", "`Idempotency-Key` in ASGI and WSGI, FastAPI and Django"),
            Entry("once/outbox", "Outbox", "store requests to other services first, send them until they are answered"),
            Entry("once/proxy", "Proxy", "run a request with a key once, in front of any HTTP service"),
            Entry(
                "once/recipes", "Recipes", "webhooks, Kafka, SQS, RabbitMQ, Redis Streams, Celery, tools of an agent"
            ),
            Entry("once/testing", "Testing", "a pytest plugin that repeats, races and kills a call"),
        ),
    ),
    Section(
        "The server",
        (
            Entry("guide/clients", "Clients", "`semel.Client` and `semel.AsyncClient`: retries, errors, credentials"),
            Entry("guide/streams", "Streams", "append-only logs: create, append, read and follow"),
            Entry("guide/events", "Events", "one global order of events: submit, catch up and follow"),
            Entry("guide/jobs", "Jobs", "submit, claim and complete; leases, dead letters and schedules"),
            Entry("guide/workers", "Workers", "run jobs with your own Python functions; move from Celery"),
            Entry("guide/ledger", "Ledger", "transactions with sequences, conditions, blocks and proofs"),
            Entry("guide/deltas", "Deltas", "push and pull changes of rows; the last writer wins"),
            Entry("guide/replicas", "Replicas", "rows in a local file, changed offline and synced"),
        ),
    ),
    Section(
        "Reference",
        (
            Entry("reference/cli", "Command line", "every command of `semel` with its options"),
            Entry("reference/settings", "Settings", "every setting, its limits, its variable and its flag"),
            Entry("reference/errors", "Errors", "every code, whether to retry, and what to do"),
            Entry("reference/metrics", "Metrics", "the alerts to set first, a dashboard, and every metric"),
            Entry("reference/python", "Python API", "every public name, with its signature and docstring"),
            Entry("reference/http", "HTTP", "every operation, and the headers and checks of streams"),
            Entry("reference/grpc", "gRPC", "the services and messages of the ledger"),
            Entry("reference/events", "Events", "messages, states, close codes and the order of checks"),
            Entry("reference/jobs", "Jobs", "paths, fields, the submission table, states and schedules"),
            Entry("reference/ledger", "Ledger", "paths, operations, the rule table, codes and reads"),
            Entry("reference/ledger-proofs", "Ledger proofs", "every byte that is hashed, and test vectors"),
            Entry("reference/deltas", "Deltas", "paths, fields, the hash of a delta, and the order of checks"),
        ),
    ),
    Section(
        "Operating",
        (
            Entry("operating/running", "Running a server", "data folder, health, logs, upgrades, namespaces, quotas"),
            Entry("operating/deploy", "Deploying", "the image, Compose, Kubernetes and systemd"),
            Entry("operating/access", "Access", "tokens, JWTs, roles and scopes, and the audit log"),
            Entry("operating/backup", "Backup and restore", "backups beside a running server, and a restore drill"),
            Entry("operating/postgres", "PostgreSQL", "several nodes, failover, Patroni, and a failover drill"),
            Entry("operating/observe", "Observing", "the console, find a write, tracing, and a diagnosis file"),
        ),
    ),
    Section(
        "Internals",
        (
            Entry("internals/architecture", "Architecture", "layers, the commit path, stores, and each surface"),
            Entry("internals/testing", "Testing", "what the tests show, and how performance is measured"),
            Entry("contributing", "Contributing", "set up, test first, layers, style, commits"),
            Entry("changes", "Changes", "what users notice, by version"),
        ),
    ),
    Section(
        "Comparison",
        (
            Entry("comparison", "Comparison", "benchmarks, and what other libraries do after a crash"),
            Entry("scope", "What Semel does not do", "what is left out, why, and what to use instead"),
        ),
    ),
)
MOST_PAGES = 42
"""What a reader can survey, with `index`; the files above `docs` do not count."""


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
