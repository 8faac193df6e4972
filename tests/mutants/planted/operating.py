"""Bugs in metrics and in the lines of requests: what is not measured, not logged, or logged too much."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_METRICS = "tests/server/ops/test_metrics.py"
_ACCESS = "tests/server/ops/test_access_log.py"
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
        "access-front-answers-unlogged",
        "with an access log, no front answers by itself",
        "server/fronts/front_link.py",
        "len(sent) > 1 or self._host.relay is not None",
        "len(sent) > 1",
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
)
