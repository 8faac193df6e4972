"""Bugs in forks and in retention."""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, Edit, bug

_FORKS = "tests/streams/promises/test_forks.py"
_CRASH = "tests/streams/forks/test_forks_crash.py"
_RETENTION = "tests/streams/promises/test_retention.py"
_RULES = "surfaces/streams/rules/forks.py"

FORKS: tuple[Bug, ...] = (
    bug(
        "fork-not-counted-at-its-source",
        "a stream with forks is kept for them when it is deleted",
        _RULES,
        "    view.put(STREAM, source._replace(forks=source.forks + 1))\n",
        "",
        _FORKS,
    ),
    bug(
        "release-does-not-go-up",
        "the end of the last fork ends a deleted source, up the chain",
        _RULES,
        "        if freed.gone and not freed.forks:\n            return end_stream(view, freed, now)\n",
        "",
        _FORKS,
    ),
    bug(
        "grave-deleted-before-the-release",
        "a crash between the end of a fork and the release of its source loses nothing",
        "surfaces/streams/contract.py",
        "    return [purge_rows] if fork is None else [Release(life, fork.source_scope, fork.source_id), purge_rows]\n",
        "    return [purge_rows]\n",
        _FORKS,
    ),
    bug(
        "released-into-the-stream-after",
        "the end of a fork does not touch a newer stream of the name of its source",
        _RULES,
        "    if source is not None and source.id == command.source_id:\n",
        "    if source is not None:\n",
        _FORKS,
    ),
    bug(
        "fork-of-a-secret",
        "a caller forks only what it may read",
        "surfaces/streams/http_writes.py",
        "        if not credential.may(Role.READ, self.streams.name, wanted.source_path):\n",
        "        if not credential.may(Role.READ, self.streams.name, wanted.source_path[:0] or b'open/'):\n",
        _FORKS,
    ),
    bug(
        "fork-at-the-source-of-another-life",
        "a fork has the content of the source that was planned",
        "surfaces/streams/rules/fork_chain.py",
        "        kept.append(ChainSegment(segment.id, min(segment.end, position)))\n",
        "        kept.append(segment)\n",
        _CRASH,
    ),
    bug(
        "gone-stream-in-the-tail-cache",
        "a deleted stream that is kept for its forks is gone for its readers",
        "surfaces/streams/tail_cache.py",
        "row.deadline != NEVER or row.gone or not tail.extend",
        "row.deadline != NEVER or not tail.extend",
        _CRASH,
    ),
    bug(
        "messages-cut-inside-of-strings",
        "a sub-offset counts JSON messages whatever they hold",
        "kernel/json/messages.py",
        "        number -= kind == _COMMA and level == 0\n",
        "        number -= kind == _COMMA\n",
        _FORKS,
    ),
    Bug(
        "trim-frees-what-forks-need",
        "a fork keeps what its source drops",
        (
            Edit(
                "surfaces/streams/retention_cut.py",
                "    chunks = () if stream.forks else tuple(reading.keys(dropped))\n",
                "    chunks = tuple(reading.keys(dropped))\n",
            ),
            Edit(
                "surfaces/streams/rules/retention.py",
                "    if not stream.forks and command.freed <= floor:\n",
                "    if command.freed <= floor:\n",
            ),
        ),
        (_RETENTION,),
    ),
    bug(
        "slow-reader-not-told",
        "a reader behind the front of a stream is told",
        "surfaces/streams/rules/offsets.py",
        "    if position < floor:\n        raise Refused.of(behind_floor(stream))\n",
        "    position = max(position, floor)\n",
        _RETENTION,
    ),
    bug(
        "size-keeps-too-little",
        "at least the bytes of the retention are kept",
        "surfaces/streams/retention_cut.py",
        "        floor = max(floor, _end_before(reading, chain, stream.tail - kept.max_bytes, floor))\n",
        "        floor = max(floor, _end_before(reading, chain, stream.tail - kept.max_bytes + 9, floor))\n",
        _RETENTION,
    ),
    bug(
        "trim-forks-unlocked",
        "content is freed only while the stream has no forks",
        "surfaces/streams/rules/retention.py",
        "    if not stream.forks and command.freed <= floor:\n",
        "    if command.freed <= floor:\n",
        "tests/streams/rules/test_retention_rules.py",
    ),
)
