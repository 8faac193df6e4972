"""Bugs in the stores; those of a failover are noticed by taking a primary away."""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, Edit, bug

_FATES = "tests/store/postgres/test_commit_fate.py"
_FAILOVER = "tests/failover/test_failover.py"
_LOGS = "tests/store/test_log_tables.py"

STORES = (
    bug(
        "sqlite-commit-not-synced",
        "an acknowledged commit is on disk",
        "store/sqlite/store.py",
        '    "PRAGMA synchronous = FULL",\n',
        '    "PRAGMA synchronous = NORMAL",\n',
        "tests/store/test_sqlite.py",
    ),
    bug(
        "sqlite-goes-on-after-a-failed-commit",
        "after a failed sync nothing is believed",
        "store/sqlite/store.py",
        "            self._open = False\n            self._store._broken = True\n            raise StoreBrokenError",
        "            self._open = False\n            raise StoreError",
        "tests/store/test_sqlite.py",
    ),
    Bug(
        "log-index-filled-before-the-commit",
        "the key index changes only after COMMIT has succeeded",
        (
            Edit("store/sqlite/store.py", "        self._logs.publish()\n", "        self._logs.apply()\n"),
            Edit("store/sqlite/store.py", "            self._logs.apply()\n", "            pass\n"),
        ),
        (_LOGS,),
    ),
    bug(
        "log-index-kept-after-a-rollback",
        "a rollback leaves the key index as it was",
        "store/sqlite/store.py",
        "        if not self._open:\n            return\n        self._open = False\n",
        "        if not self._open:\n            return\n        self._open = False\n        self._logs.apply()\n",
        _LOGS,
    ),
    bug(
        "log-hash-taken-for-the-key",
        "a row that the key index names is compared with the key",
        "store/sqlite/log_table.py",
        "                if key in wanted:\n                    found[key] = values[0], row\n",
        "                found[key if key in wanted else next(iter(wanted))] = values[0], row\n",
        _LOGS,
    ),
    bug(
        "log-boundary-stored-before-its-runs",
        "a key leaves memory only when its run is stored",
        "store/sqlite/run_move.py",
        "            written = runs.write(self._connection, some, first)\n"
        "            runs.store(self._connection, boundary, keys)\n",
        "            runs.store(self._connection, boundary, keys)\n"
        '            self._connection.execute("COMMIT")\n'
        '            self._connection.execute("BEGIN")\n'
        "            written = runs.write(self._connection, some, first)\n",
        _LOGS,
    ),
    bug(
        "log-move-leaves-commits-unsynced",
        "an acknowledged commit is on disk, also after a move of keys",
        "store/sqlite/run_move.py",
        "            finally:  # no later commit may go without its sync\n"
        '                self._connection.execute("PRAGMA synchronous = FULL")\n',
        "            finally:\n                pass\n",
        "tests/store/powercut/test_power_cut.py",
    ),
    bug(
        "log-filter-not-renewed",
        "the filter of a run has every key of the run",
        "store/sqlite/run_move.py",
        "                runs.filter.set(bucket, entries)\n",
        "                pass\n",
        _LOGS,
    ),
    bug(
        "log-filter-used-by-snapshots",
        "a snapshot finds every row that it shows",
        "store/sqlite/key_runs.py",
        "        if is_writer:\n",
        "        if keys:\n",
        _LOGS,
    ),
    bug(
        "log-commit-not-shown-to-snapshots",
        "a snapshot finds every row that it shows",
        "store/sqlite/log_changes.py",
        "        self._directory.publishing = {name: part.recent for name, part in self._parts.items()}\n",
        "        self._directory.publishing = {}\n",
        _LOGS,
    ),
    bug(
        "log-entry-dropped-under-a-snapshot",
        "a snapshot finds every row that it shows",
        "store/sqlite/snapshot_epochs.py",
        "            return not self._open or min(self._open) >= epoch\n",
        "            return True\n",
        _LOGS,
    ),
    bug(
        "memory-snapshot-moves",
        "a snapshot shows the rows of one instant",
        "store/memory.py",
        "            self._store._snapshots.add(self)\n",
        "            pass\n",
        "tests/store/test_conformance_isolation.py",
    ),
    bug(
        "postgres-standby-not-waited-for",
        "what is acknowledged survives a failover",
        "store/postgres/connection.py",
        "        wire.server = facts.started\n",
        "        wire.server = facts.started\n"
        '        wire.exchange([("SET synchronous_commit = local", ())], time.monotonic() + address.patience)\n',
        _FAILOVER,
    ),
    bug(
        "postgres-lost-commit-called-stored",
        "a commit whose answer was lost is told as what became of it",
        "store/postgres/transaction.py",
        "                    return bool(found[0][0] >= number)\n",
        "                    return True\n",
        _FAILOVER,
    ),
    bug(
        "postgres-lost-commit-called-not-stored",
        "a commit whose answer was lost is told as what became of it",
        "store/postgres/transaction.py",
        "                    return bool(found[0][0] >= number)\n",
        "                    return False\n",
        _FATES,
    ),
    bug(
        "postgres-unknown-commit-called-not-stored",
        "doubt is told as doubt",
        "store/postgres/transaction.py",
        "            raise CommitUnknownError(sentence(error)) from error\n        if not is_committed:\n",
        "            raise StoreAwayError(sentence(error)) from error\n        if not is_committed:\n",
        _FATES,
    ),
    bug(
        "postgres-fate-asked-without-the-lock",
        "the fate of a commit is read after its transaction has ended",
        "store/postgres/commit_fate.py",
        "        take(schema, [mark.slot]),\n",
        "",
        _FATES,
    ),
    bug(
        "postgres-reader-begins-unconfirmed",
        "nobody is told of a commit that a standby may not have",
        "store/postgres/connection.py",
        "        if self._greet is not None:\n            self._greet(self)\n",
        "",
        "tests/store/postgres",
    ),
    bug(
        "store-row-cache-changed-before-commit",
        "a row in memory is the committed row",
        "store/sqlite/row_cache.py",
        "                        changed[table, table.key_of(row)] = row\n",
        "                        changed[table, table.key_of(row)] = row\n"
        "                        self._cache.set((table, table.key_of(row)), row)\n",
        "tests/store/test_row_cache.py",
    ),
    bug(
        "store-range-compiled-each-time",
        "a statement is compiled once",
        "store/sqlite/statements.py",
        """        terms = [f'"{column}" = +?' for column in order[:depth]]\n""",
        """        terms = [f'"{column}" = ?' for column in order[:depth]]\n""",
        "tests/store/test_sqlite.py",
    ),
    bug(
        "store-recent-row-kept-before-commit",
        "a row in memory is the committed row",
        "store/sqlite/recent_rows.py",
        "        self._written.append(changes)\n",
        "        self._written.append(changes)\n        self._apply(changes)\n",
        "tests/store/test_recent_rows.py",
    ),
    bug(
        "store-recent-row-outlives-its-deletion",
        "a row in memory is the committed row",
        "store/sqlite/recent_rows.py",
        "            if table in tables:\n                self._forget(table, keys)\n",
        "            pass\n",
        "tests/store/test_recent_rows.py",
    ),
    bug(
        "store-recent-row-read-after-a-write",
        "a transaction sees its own changes",
        "store/sqlite/recent_rows.py",
        "        known = {} if self._written else self._recent.rows[table]\n",
        "        known = self._recent.rows[table]\n",
        "tests/store/test_recent_rows.py",
    ),
    bug(
        "store-floor-not-lowered",
        "a lease that ends is found, however the range was before",
        "store/sqlite/store.py",
        "        self._store._floors.flush(changes)\n",
        "",
        "tests/store/test_recent_rows.py",
    ),
    bug(
        "store-floor-raised-by-what-was-rolled-back",
        "a lease that ends is found, also after a rollback",
        "store/sqlite/store.py",
        "        if not self._has_written:\n            floors.read",
        "        if True:\n            floors.read",
        "tests/store/test_recent_rows.py",
    ),
    bug(
        "store-row-cache-keeps-a-touched-row",
        "a row in memory has its soft changes",
        "store/sqlite/row_cache.py",
        "                changed[touch.table, touch.key] = UNKNOWN\n",
        "                pass\n",
        "tests/store/test_row_cache.py",
    ),
    bug(
        "sqlite-blank-columns-taken-on-trust",
        "a column of a wide row is stored as it was given, though it was empty in all rows before",
        "store/sqlite/blank_columns.py",
        "        if not any(map(any, map(self._blank, rows))):\n",
        "        if not any(self._blank(rows[0])):\n",
        "tests/store/test_blank_columns.py",
    ),
    bug(
        "sqlite-index-finds-the-first-of-equal-hashes",
        "every row whose key has the hash is compared",
        "store/sqlite/key_index.py",
        "                at = bucket.find(wanted, at + 1)\n        return found\n\n    def remove",
        "                break\n        return found\n\n    def remove",
        "tests/store/test_log_tables.py",
    ),
)
