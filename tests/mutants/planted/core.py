"""Bugs in the kernel and in the engine."""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, Edit, bug

_EARLY = Bug(
    "engine-answers-before-commit",
    "nobody hears of a write before it is on disk",
    (
        Edit(
            "engine/batch.py",
            '        around.reach("decided")\n        yield from batch.commit(',
            '        around.reach("decided")\n        EARLY[0](batch.result)\n        yield from batch.commit(',
        ),
        Edit(
            "engine/plain_batch.py",
            '            around.reach("flushed")\n            undone = yield result',
            '            around.reach("flushed")\n            EARLY[0](result)\n            undone = yield result',
        ),
        Edit(
            "engine/plain_batch.py",
            "_NO_CHANGES = ",
            "EARLY: list[object] = [lambda result: None]\n_NO_CHANGES = ",
        ),
        Edit(
            "engine/batch.py",
            "from semel.engine.plain_batch import ",
            "from semel.engine.plain_batch import EARLY, ",
        ),
        Edit(
            "engine/batch_runner.py",
            "        self._deliver = deliver\n",
            "        self._deliver = deliver\n        EARLY[0] = deliver\n",
        ),
        Edit("engine/batch_runner.py", "    LOADED_BYTES,\n", "    EARLY,\n    LOADED_BYTES,\n"),
    ),
    ("tests/streams/crash/test_crash.py",),
)

CORE = (
    bug(
        "kernel-names-sorted-by-code-point",
        "equal JSON has equal canonical bytes, names in the order of UTF-16",
        "kernel/json/canonical.py",
        "    return sorted(names, key=_utf16)\n",
        "    return sorted(names)\n",
        "tests/kernel/test_canonical_vectors.py",
        "tests/kernel/test_canonical.py",
    ),
    bug(
        "kernel-upper-case-uuid-packed",
        "two keys that differ in a letter's case are two keys",
        "kernel/keys.py",
        "    if len(name) == 36 and _UUID_TEXT.fullmatch(name):\n        return UUID",
        "    if len(name) == 36 and _UUID_TEXT.fullmatch(name.lower()):\n        return UUID",
        "tests/kernel/test_keys.py",
    ),
    bug(
        "kernel-producer-gap-accepted",
        "a producer's sequence has no hole",
        "kernel/producer.py",
        "    (EpochPosition.SAME, SeqPosition.AHEAD): Verdict.GAP,\n",
        "    (EpochPosition.SAME, SeqPosition.AHEAD): Verdict.FRESH,\n",
        "tests/kernel/test_producers.py",
    ),
    bug(
        "kernel-old-epoch-not-fenced",
        "a new epoch of a producer fences every older one",
        "kernel/producer.py",
        "    if epoch < known.epoch:\n        return EpochPosition.OLDER, opening\n",
        "",
        "tests/kernel/test_producers.py",
    ),
    bug(
        "kernel-clock-repeats",
        "a hybrid clock never gives out a reading twice",
        "kernel/hlc.py",
        "    return max(state + 1, join(physical_ms, 0))\n",
        "    return max(state, join(physical_ms, 0))\n",
        "tests/kernel/test_hlc.py",
    ),
    bug(
        "kernel-delta-id-without-row",
        "the id of a delta is the hash of its content, row included",
        "kernel/hashes.py",
        '"rowId":{row},',
        '"rowId":"",',
        "tests/kernel/test_delta_id.py",
    ),
    _EARLY,
    bug(
        "engine-refused-parts-stored",
        "a write that is decided in parts is stored as a whole, or nothing of it is",
        "engine/batch.py",
        "        if last is None or last.is_refused:\n",
        "        if last is None:\n",
        "tests/engine/test_parts.py",
    ),
    bug(
        "engine-parts-committed-one-by-one",
        "the parts of a large write are one transaction",
        "engine/batch.py",
        "        self._tx.flush(self._view.changes(()))\n        return ",
        "        self._tx.flush(self._view.changes(()))\n        self._tx.commit()\n        return ",
        "tests/engine/test_parts.py",
    ),
    bug(
        "engine-failed-decision-not-undone",
        "a decision that raises leaves nothing behind",
        "engine/batch.py",
        "        except Exception as error:  # noqa: BLE001 - an error in one decision must not fail the others\n"
        "            self._view.undo(mark)\n",
        "        except Exception as error:  # noqa: BLE001 - an error in one decision must not fail the others\n",
        "tests/engine/test_batch.py",
        "tests/engine/test_engine.py",
    ),
    bug(
        "engine-unloaded-rows-passed-over",
        "a range never shows a row behind one that was not loaded",
        "engine/view.py",
        "        return place >= self._edge if self._wanted.reverse else place <= self._edge\n",
        "        return True\n",
        "tests/engine/test_ranges.py",
        "tests/engine/test_view.py",
    ),
    bug(
        "engine-sequence-out-of-order",
        "writes of one sequence are decided in the order of their numbers",
        "engine/batch_order.py",
        "        if len(taken) > 1:\n",
        "        if len(taken) > 1_000_000:\n",
        "tests/engine/test_batch.py",
        "tests/engine/test_engine.py",
    ),
    bug(
        "plain-batch-drops-soft-changes",
        "soft changes that a batch of plain writes has taken along are stored",
        "engine/plain_batch.py",
        "            changes = changes._replace(topics=result.plain_topics, touches=touches)\n",
        "            changes = changes._replace(topics=result.plain_topics)\n",
        "tests/engine/test_loop_lane.py",
    ),
    bug(
        "engine-soft-change-falls",
        "a soft change only ever goes upwards",
        "store/protocol.py",
        "        if not getattr(row, self.column) < self.value:\n",
        "        if getattr(row, self.column) == self.value:\n",
        "tests/engine/test_soft_changes.py",
    ),
    bug(
        "engine-reader-armed-late",
        "a signal that comes before a reader waits is not missed",
        "engine/notification.py",
        '        """Called at a signal; if it returns true, the reader has all that was committed, and waits on."""\n'
        "        self.arm()\n",
        '        """Called at a signal; if it returns true, the reader has all that was committed, and waits on."""\n',
        "tests/engine/test_notification.py",
    ),
    bug(
        "engine-follower-armed-after-its-look",
        "a commit between the look of a follower and its wait is not missed",
        "engine/follow.py",
        "            watch.arm()\n            found = await look()\n",
        "            found = await look()\n            watch.arm()\n",
        "tests/engine/test_follow.py",
    ),
)
