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
                "            undone = yield tx.commit\n",
                "            for watcher in EARLY_WATCHERS:\n                watcher(changes)\n"
                "            undone = yield tx.commit\n",
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
        "        if tail.life != row.id or row.deadline != NEVER or not tail.extend(row, appends):\n",
        "        if row.deadline != NEVER or not tail.extend(row, appends):\n",
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
)
