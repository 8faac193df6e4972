"""Bugs in traces: spans of the wrong call, spans of no call, and what must not be exported."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_ONE = "tests/tracing/test_one_trace.py"
_SERVER = "tests/tracing/test_server_traces.py"

TRACING = (
    bug(
        "trace-unsampled-request-traced",
        "a request without a sampled traceparent is not traced",
        "server/ops/traces.py",
        "[0-9a-f][13579bdf](?:-.*)?",
        "[0-9a-f][0-9a-f](?:-.*)?",
        _SERVER,
    ),
    bug(
        "trace-raw-path-exported",
        "names in a path are not exported",
        "server/ops/traces.py",
        "        shown = piece if piece in words else _NAME\n",
        "        shown = piece\n",
        _SERVER,
    ),
    bug(
        "trace-client-path-exported",
        "names in a path are not exported by a client",
        "client/telemetry.py",
        '        shown = piece if piece in _WORDS else "{}"\n',
        "        shown = piece\n",
        _ONE,
    ),
    bug(
        "trace-commit-without-its-call",
        "a commit is a child of the request whose write it holds",
        "server/ops/traces.py",
        "            self._trace.set_span_in_context(call.span),\n",
        "            None,\n",
        _ONE,
    ),
    bug(
        "trace-messages-of-others-in-a-call",
        "what the engine schedules belongs to no call",
        "server/ops/traced_engine.py",
        "    token = CURRENT.set(None)\n",
        "    token = CURRENT.set(CURRENT.get())\n",
        _SERVER,
    ),
    bug(
        "trace-span-for-each-attempt",
        "attempts of one call have one client span",
        "client/telemetry.py",
        "        self._attempts += 1\n",
        "        self._attempts = 1\n",
        _ONE,
    ),
    bug(
        "trace-lost-client-never-ends",
        "a client that leaves before the answer ends the span of its request",
        "server/http/exchange.py",
        "            request.end_trace()\n",
        "",
        _SERVER,
    ),
    bug(
        "trace-export-failure-logged-each-time",
        "a collector that fails is logged once",
        "server/ops/trace_export.py",
        "        if has_failed and not self._is_failing:\n",
        "        if has_failed:\n",
        _SERVER,
    ),
    bug(
        "trace-group-of-the-ledger-is-one-span",
        "each transaction of a group of the ledger has a commit span of its own call",
        "surfaces/ledger/traced_queue.py",
        "        if span is not None:\n",
        "        if span is None:\n",
        _ONE,
    ),
    bug(
        "trace-not-carried-to-the-worker",
        "a job carries the trace of its submitter to its worker",
        "surfaces/jobs/wire/answers.py",
        """                **({"client": orjson.Fragment(job.client)} if job.client else {}),\n""",
        "",
        _ONE,
    ),
)
