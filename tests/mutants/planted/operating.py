"""Bugs in metrics and in the lines of requests: what is not measured, not logged, or logged too much."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_METRICS = "tests/server/ops/test_metrics.py"
_ACCESS = "tests/server/ops/test_access_log.py"
_TROUBLES = "tests/cli/test_doctor_troubles.py"
_STANDBY = "tests/server/ops/test_standby.py"
_LINES = "tests/server/ops/test_request_lines.py"
_ENGINE = "tests/engine/test_loop_lane.py::test_the_oldest_write_is_known_before_its_batch_begins"

OPERATING = (
    bug(
        "access-known-heads-not-logged",
        "a request of a known shape has its line too",
        "server/logged_app.py",
        "        elif exchange is not None:\n",
        "        elif exchange is None:\n",
        _ACCESS,
    ),
    bug(
        "access-names-logged",
        "a line has the template of a path, and no name",
        "server/ops/access_log.py",
        "        return route_template(raw_path, self._words.get(surface, _NO_WORDS))\n",
        '        return raw_path.decode("latin-1")\n',
        _ACCESS,
    ),
    bug(
        "metrics-known-heads-not-timed",
        "the time of a request of a known shape is measured too",
        "surfaces/streams/shaped_append.py",
        "        shape.seconds.observe(monotonic() - self.admitted_at)\n        replay =",
        "        replay =",
        _METRICS,
    ),
    bug(
        "metrics-long-poll-not-apart",
        "a long poll is timed apart from other requests",
        "surfaces/jobs/worker_calls.py",
        "        request.http.is_live = bool(asked.wait_ms)\n",
        "",
        _METRICS,
    ),
    bug(
        "metrics-queue-not-aged",
        "the age of the oldest write counts those that wait for their batch",
        "engine/loop_lane.py",
        "        return min(self.runner.waiting_since, self._queue.waiting_since)\n",
        "        return self.runner.waiting_since\n",
        _ENGINE,
    ),
    bug(
        "lines-decision-fault-without-request",
        "the line of a decision that raised names the request",
        "engine/batch.py",
        "        self._around.observer.fault(error_id, error, callers_of([submission]))\n",
        "        self._around.observer.fault(error_id, error)\n",
        _LINES,
    ),
    bug(
        "lines-failed-commit-without-request",
        "the line of a commit that failed names the requests of its batch",
        "engine/batch_runner.py",
        "            self._around.observer.store_failure(error, callers_of(batch))\n"
        '            self._refuse(batch, OutcomeUnknownError("The commit',
        "            self._around.observer.store_failure(error)\n"
        '            self._refuse(batch, OutcomeUnknownError("The commit',
        _LINES,
    ),
    bug(
        "lines-call-without-request",
        "a gRPC call is known to the engine by its request id",
        "surfaces/ledger/grpc/listener.py",
        "        caller.origin = call\n",
        "",
        _LINES,
    ),
    bug(
        "lines-call-id-ignored",
        "a gRPC call has the request id of its metadata",
        "server/grpc/server.py",
        'self._process.request_id(call.fields.get(b"x-request-id"))',
        "self._process.request_id()",
        _LINES,
    ),
    bug(
        "lines-message-without-handshake",
        "a submission over a WebSocket is known by the id of the handshake",
        "server/websocket/handshake.py",
        "        conversation.handshake = KnownOrigin(request.log_facts())\n",
        "",
        _LINES,
    ),
    bug(
        "lines-push-without-handshake",
        "a push of deltas is known by the id of the handshake",
        "surfaces/deltas/socket.py",
        "        caller.origin = KnownOrigin(request.log_facts())\n",
        "",
        _LINES,
    ),
    bug(
        "lines-known-head-has-two-ids",
        "the line of a request of a known shape has the id of its answer",
        "surfaces/streams/shaped_append.py",
        "append.drawn_id()",
        "self.context.request_id()",
        _LINES,
    ),
    bug(
        "lines-known-job-has-two-ids",
        "the line of a submission of a known shape has the id of its answer",
        "surfaces/jobs/shaped_calls.py",
        "write.drawn_id()",
        "self.context.request_id()",
        _LINES,
    ),
    bug(
        "lines-known-transaction-has-two-ids",
        "the line of a transaction of a known shape has the id of its answer",
        "surfaces/ledger/shaped_write.py",
        "            self.drawn = self.shape.context.request_id()\n        return self.drawn\n",
        "            return self.shape.context.request_id()\n        return self.drawn\n",
        _LINES,
    ),
    bug(
        "lines-message-outside-of-its-connection",
        "with an access log every line of a message has the id of its handshake",
        "server/websocket/logged_messages.py",
        "        token = REQUEST.set(conversation.handshake)\n",
        "        token = REQUEST.set(None)\n",
        _ACCESS,
    ),
    bug(
        "lines-call-outside-of-its-request",
        "with an access log every line of a call has its id",
        "server/grpc/logged_server.py",
        "        token = REQUEST.set(call)\n        try:\n            super().start_call",
        "        token = REQUEST.set(None)\n        try:\n            super().start_call",
        _ACCESS,
    ),
    bug(
        "standby-that-hangs-is-ready",
        "a server whose commits wait for a standby that hangs is not ready",
        "server/ops/health_watch.py",
        "            _stalled(health.stalled),\n",
        "",
        _STANDBY,
    ),
    bug(
        "standby-replay-not-waited-for",
        "with remote_apply, a paused replay is not ready",
        "store/postgres/standby.py",
        "WHEN 'remote_apply' THEN replay_lsn",
        "WHEN 'remote_apply' THEN flush_lsn",
        _STANDBY,
    ),
    bug(
        "standby-lag-without-silence",
        "the lag of a replica that hangs grows",
        "store/postgres/usage.py",
        '_SINCE = "greatest(replay_lag, clock_timestamp() - reply_time)"\n',
        '_SINCE = "replay_lag"\n',
        _STANDBY,
    ),
    bug(
        "standby-hides-the-metrics",
        "the metrics are there while reads wait for a standby",
        "surfaces/streams/subscriptions/http.py",
        "        except (EngineError, TimeoutError):\n            self._metrics.pending_subscriptions = None\n",
        "        except ZeroDivisionError:\n            self._metrics.pending_subscriptions = None\n",
        _STANDBY,
    ),
    bug(
        "doctor-limits-unknown",
        "the doctor names a limit that is nearly used up",
        "server/ops/surface_outlook.py",
        "    if not limit or used * 10 < limit * 9:\n",
        "    if limit:\n",
        _TROUBLES,
    ),
    bug(
        "doctor-webhooks-unknown",
        "the doctor names a webhook that fails",
        "surfaces/streams/outlook.py",
        "row.failed and row.attempts >= FAILED_ATTEMPTS",
        "row.failed and row.attempts >= 1_000",
        _TROUBLES,
    ),
    bug(
        "doctor-broken-ledger-unknown",
        "the doctor names a ledger whose last block is lost",
        "surfaces/ledger/outlook.py",
        'if refused.refusal.code == "ledger:data_loss":',
        'if refused.refusal.code == "data_loss":',
        _TROUBLES,
    ),
    bug(
        "doctor-sweep-lag-unknown",
        "the doctor names expired rows that are not freed",
        "cli/doctor.py",
        "    yield from _check_upkeep(client)\n",
        "",
        _TROUBLES,
    ),
)
