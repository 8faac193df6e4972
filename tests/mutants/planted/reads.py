"""Bugs in reads: the tail cache, and readers that are served without being woken."""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, Edit, bug

_TAILS = "tests/streams/reads/test_tail_cache.py"

READS = (
    Bug(
        "tail-filled-before-the-commit",
        "a tail in memory holds only content that is on disk",
        (
            Edit(
                "engine/plain_batch.py",
                "_NO_CHANGES = Changes({}, {}, {})\n",
                "_NO_CHANGES = Changes({}, {}, {})\nEARLY_WATCHERS: list = []\n",
            ),
            Edit(
                "engine/plain_batch.py",
                "            undone = yield result.timed(tx.commit)\n",
                "            for watcher in EARLY_WATCHERS:\n                watcher(changes)\n"
                "            undone = yield result.timed(tx.commit)\n",
            ),
            Edit(
                "engine/engine.py",
                "        self._commit_watchers.append(watcher)\n",
                "        from semel.engine.plain_batch import EARLY_WATCHERS\n\n"
                "        EARLY_WATCHERS.append(watcher)\n",
            ),
        ),
        (_TAILS,),
    ),
    bug(
        "tail-kept-after-delete",
        "a deleted stream has no tail in memory",
        "surfaces/streams/tail_cache.py",
        "        for (scope,) in changes.deletes.get(STREAM, ()):\n            self._drop(scope)\n",
        "",
        _TAILS,
    ),
    bug(
        "tail-of-the-stream-before",
        "a stream that is created again sees nothing of the one before it",
        "surfaces/streams/tail_cache.py",
        "        if tail.life != row.id or row.deadline != NEVER or row.gone or not tail.extend(row, appends):\n",
        "        if row.deadline != NEVER or row.gone or not tail.extend(row, appends):\n",
        _TAILS,
    ),
    bug(
        "tail-dropped-for-another-stream-of-its-commit",
        "no commit fails because of what is kept in memory",
        "surfaces/streams/tail_cache.py",
        "        tail = self._tails.get(row.scope)\n        if tail is None:\n"
        "            return  # dropped for another stream of this commit\n",
        "        tail = self._tails[row.scope]\n",
        _TAILS,
    ),
    bug(
        "watcher-that-failed-keeps-what-it-holds",
        "what a cache missed of a commit is not served from it",
        "engine/engine.py",
        "            self.observer.fault(self._error_id(), error)\n            watcher(None)\n",
        "            self.observer.fault(self._error_id(), error)\n",
        "tests/engine/test_loop_lane.py",
    ),
    bug(
        "tail-serves-content-that-it-dropped",
        "a page that begins before the tail in memory is read from the store",
        "surfaces/streams/tail_cache.py",
        "        if row is None or not self.start <= position <= row.tail:\n",
        "        if row is None or position > row.tail:\n",
        _TAILS,
    ),
    bug(
        "live-reader-served-behind-its-back-keeps-its-position",
        "a reader gets every append once",
        "surfaces/streams/live.py",
        "        self._position = page.end\n\n    async def _look",
        "\n    async def _look",
        _TAILS,
    ),
    bug(
        "live-reader-served-although-it-does-not-keep-up",
        "a client that does not read is sent nothing more",
        "server/http/body_stream.py",
        "        if connection.flow.write_paused or self._request.gone or connection.transport.is_closing():\n"
        "            return False\n",
        "",
        _TAILS,
    ),
    bug(
        "live-reader-not-armed-after-it-was-served",
        "a reader that was served waits for the next commit",
        "engine/notification.py",
        "        if self._takes():\n            self._enter()\n",
        "        if self._takes():\n            pass\n",
        _TAILS,
    ),
    bug(
        "events-page-backwards-skips",
        "pages backwards have every event once",
        "surfaces/events/places.py",
        "    start, stop = mirror - target, mirror - run.known_to\n",
        "    start, stop = mirror - target, mirror - run.known_to - 1\n",
        "tests/events/rules/test_partition_merge.py",
        "tests/events/promises/test_backward.py",
    ),
    bug(
        "events-pruned-edge-not-told-backwards",
        "a page backwards that meets the pruned part says so",
        "surfaces/events/reading.py",
        "    pruned_to = 0 if has_more or since >= head.pruned_to else head.pruned_to\n",
        "    pruned_to = 0\n",
        "tests/events/promises/test_backward.py",
    ),
    bug(
        "events-lost-position-served-backwards",
        "a position of a lost epoch is told, never served",
        "surfaces/events/reading.py",
        "    cursor = asked.since if asked.before is None else max(asked.before - 1, 0)\n",
        "    cursor = asked.since\n",
        "tests/epoch/test_events_restored.py",
    ),
    bug(
        "events-cursor-of-a-filter-stays",
        "a reader of some types makes progress past the others",
        "surfaces/events/reading.py",
        "    next_since = ids[used - 1] if used else since\n",
        "    next_since = rows[-1].committed_id if rows else since\n",
        "tests/events/promises/test_type_filter.py",
    ),
    bug(
        "events-filter-compares-without-end",
        "a page with a filter looks at a bounded number of bytes",
        "surfaces/events/reading.py",
        "            if number and scanned > SCANNED_BYTES:\n",
        "            if number and scanned < 0:\n",
        "tests/events/promises/test_type_filter.py",
    ),
    bug(
        "events-type-inside-the-payload-taken",
        "a filter compares the type of the event itself",
        "surfaces/events/rules/event_types.py",
        "    if event.startswith(_BEGINNING):\n        end = event.index(b'\"', len(_BEGINNING))\n"
        "        found = event[len(_BEGINNING) : end]\n",
        "    if (at := event.find(b'\"type\":\"')) >= 0:\n        end = event.index(b'\"', at + 8)\n"
        "        found = event[at + 8 : end]\n",
        "tests/events/promises/test_type_filter.py",
    ),
    bug(
        "events-live-filter-ignored",
        "a subscription to some types is sent these alone",
        "surfaces/events/feed.py",
        "                if member.types is not None and (kind or type_of(row.event)) not in member.types:\n",
        "                if member.types is not None and kind == row.event:\n",
        "tests/events/rules/test_feed.py",
    ),
    bug(
        "events-changed-types-miss-events",
        "a new subscription applies from the watermark of the sync that named it",
        "surfaces/events/subscriber.py",
        "            missing = _Subscription(names - old.names, types) if types == old.types else new\n",
        "            missing = _Subscription(names - old.names, types)\n",
        "tests/events/rules/test_subscriber.py",
    ),
    bug(
        "events-event-of-others-found",
        "a caller learns nothing of events that it may not read",
        "surfaces/events/http_reads.py",
        "        if not any(map(who.may_read, orjson.loads(found.partitions))):\n",
        "        if not found.partitions:\n",
        "tests/events/promises/test_lookups.py",
    ),
    bug(
        "events-pruned-event-of-others-told",
        "a caller learns nothing of events that it may not read",
        "surfaces/events/http_reads.py",
        '        if isinstance(found, PrunedEvent) and (b"", True) in self._service.reach(principal):\n',
        "        if isinstance(found, PrunedEvent):\n",
        "tests/events/promises/test_lookups.py",
    ),
    bug(
        "events-partition-of-others-listed",
        "the list has only partitions that the caller may read",
        "surfaces/events/lookups.py",
        "        elif is_prefix and asked.prefix.startswith(name):\n",
        "        elif asked.prefix.startswith(name):\n",
        "tests/events/promises/test_lookups.py",
    ),
    bug(
        "events-watermark-told-to-a-writer",
        "a client that may not read a partition does not learn its watermark",
        "surfaces/events/wire/items.py",
        "        if if_watermark is not None and not who.may_read(partition):  # the answer tells the watermark\n",
        "        if if_watermark is not None and not who.may_write(partition):\n",
        "tests/events/promises/test_if_watermark.py",
    ),
)
