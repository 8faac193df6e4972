"""Bugs in the client of events, and in the headers that it reads."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

FOLLOW, CUTS, CURSORS = (f"tests/client/events/test_{name}.py" for name in ("follow", "cuts", "cursors"))
SUBMIT, OUTBOX, GROUPS = (f"tests/client/events/test_{name}.py" for name in ("submit", "outbox", "groups"))

EVENT_CLIENTS = (
    bug(
        "events-follower-goes-back",
        "a follower goes on behind the last event that it handed over",
        "client/events/follow.py",
        "        if event.committed_id <= at.committed_id:\n"
        "            raise LogBehindError(at, event.committed_id)\n"
        "        self._position = event.cursor\n",
        "        self._position = self._position if self._position.committed_id else event.cursor\n",
        FOLLOW,
    ),
    bug(
        "events-follower-passes-over-pruned-events",
        "a follower tells of deleted events",
        "client/events/follow.py",
        '        if frame.kind == "pruned":\n',
        '        if frame.kind == "":\n',
        FOLLOW,
    ),
    bug(
        "events-accepted-gap-not-stored",
        "an accepted gap is stored as the cursor of an event is",
        "client/events/follow.py",
        "        await self._save(cursor, using)\n        self._drop()\n",
        "        self._drop()\n",
        FOLLOW,
    ),
    bug(
        "events-pages-skip-pruned-events",
        "pages without live events tell of deleted events too",
        "client/events/follow.py",
        "            if page.pruned_to is not None:\n",
        "            if page.pruned_to == 0:\n",
        FOLLOW,
    ),
    bug(
        "events-file-cursor-moved-by-another",
        "a cursor in a file moves only from where its follower left it",
        "client/events/cursors.py",
        "            if self._lock is None or self._read() not in before:\n",
        "            if self._lock is None:\n",
        CURSORS,
    ),
    bug(
        "events-cancelled-save-forgotten",
        "a save whose caller was cancelled may have been made",
        "client/events/follow.py",
        "            self._stored = (*stored, cursor)\n",
        "            self._stored = stored\n",
        CURSORS,
    ),
    bug(
        "events-second-ack-does-nothing",
        "an event whose transaction was rolled back is acknowledged by the next transaction",
        "client/events/follow.py",
        "            if not self._store.is_undoable:\n",
        "            if cursor == stored[0]:\n",
        CURSORS,
    ),
    bug(
        "events-late-save-moves-back",
        "a save whose caller was cancelled does not replace a later one",
        "client/events/cursors.py",
        "            if number < self._saved:\n",
        "            if number < 0:\n",
        CURSORS,
    ),
    bug(
        "events-follower-skips-an-interrupted-event",
        "an interrupt skips no event",
        "client/events/follow.py",
        "                self._drop()\n                self._position, self._has_epoch = at, has_epoch\n",
        "                pass\n",
        FOLLOW,
    ),
    bug(
        "events-left-follower-keeps-its-connection",
        "a follower that was left gives its connection back",
        "client/events/follow.py",
        "        with suppress(AttributeError, RuntimeError):  # it was not made, or the event loop is closed\n"
        "            self._drop()\n",
        "        pass\n",
        FOLLOW,
    ),
    bug(
        "events-pages-end-before-the-cursor-in-silence",
        "pages tell that the log ends before the cursor",
        "client/events/follow.py",
        "            if self._to is None and page.sync_to < self._position.committed_id:\n",
        "            if page.sync_to < 0:\n",
        FOLLOW,
    ),
    bug(
        "events-sent-after-a-busy-request",
        "events after a request without a definite answer are not sent",
        "client/events/calls.py",
        "                if error.may_pass:\n",
        "                if error.status == 0:\n",
        SUBMIT,
    ),
    bug(
        "events-outbox-believes-a-proxy",
        "only a refusal of the event itself sets it aside",
        "client/events/outbox.py",
        'refusal.code not in ("", FORBIDDEN)',
        "refusal.code != FORBIDDEN",
        OUTBOX,
    ),
    bug(
        "events-file-cursor-saved-too-early",
        "the cursor of an event is saved when the next one is asked for",
        "client/events/follow.py",
        "        self._position = event.cursor\n        return event\n\n    def _pass",
        "        self._position = Cursor(epoch, event.committed_id + 1)\n        return event\n\n    def _pass",
        CURSORS,
    ),
    bug(
        "events-transaction-cursor-moved-by-another",
        "a cursor in a table moves only from where its follower left it",
        "once/cursor_table.py",
        "AND committed_id = ? RETURNING name",
        "AND committed_id >= ? - 9999 RETURNING name",
        CURSORS,
    ),
    bug(
        "events-cursor-left-in-a-transaction",
        "reading a cursor leaves no transaction open",
        "once/drivers/sqlalchemy.py",
        "            if is_idle:\n                self._target.rollback()\n",
        "            if not is_idle:\n                self._target.rollback()\n",
        CURSORS,
    ),
    bug(
        "events-rejection-called-committed",
        "a rejected event raises",
        "client/events/calls.py",
        "        if isinstance(verdict, EventRejectedError):\n            raise verdict\n        return verdict\n",
        "        return verdict  # type: ignore[return-value]\n",
        SUBMIT,
    ),
    bug(
        "events-rejection-delivered",
        "the outbox sets a rejected event aside",
        "client/events/outbox.py",
        "            return _refused(verdict)\n",
        "            return Delivery(answer.status)\n",
        OUTBOX,
    ),
    bug(
        "events-consumer-acknowledges-too-early",
        "an event is acknowledged when the next one is asked for",
        "client/events/consumer.py",
        "            await self._groups.ack(self._lease, [self._current])\n",
        "            await self._groups.ack(self._lease, [self._current, *list(self._left)[:1]])\n",
        GROUPS,
    ),
    bug(
        "events-replay-not-told",
        "the server tells which items were committed before",
        "surfaces/events/http.py",
        "isinstance(one, EventCommitted) and not one.is_new",
        "isinstance(one, EventCommitted) and one.is_new",
        SUBMIT,
    ),
)
