"""Options and arguments that do not go together: code 2, and a sentence that says so. Values out of bounds, files that
are not there and unknown options are tried for every command in `tests/cli/test_every_command.py`.
"""

from __future__ import annotations

from shlex import split

import pytest

from tests.cli.command import Semel

NOBODY = Semel("http://127.0.0.1:9")
"""What is refused is refused before anybody is asked."""

LINES = r"""
streams append s
streams append s text --file -
streams append s - --lines --seq 1
streams append s x --type text/plain --key 'line\nend'
streams create s --data x -
streams create s other
streams tail s --offset now --from-start
streams rm s => --yes
streams nothing
nothing
streams subscriptions create wrong --pattern '**' => a webhook or a wake stream, and not both.
streams subscriptions create wrong --pattern '**' --webhook https://a.example/ --wake-stream wakes
events submit --event '{"type": "t"}'
events submit p
events submit p --event {} --file -
events submit p --event {} --lines
events submit p --event - --file - --lines
events submit p --lines --if-watermark 0
events read p
events read --partition p --limit 1 --all
events read --partition p --limit 1 --last 1
events read --partition p --before 1
events read --partition p --since 1 --reverse
events tail
events tail --partition p --since 1 --from-start
jobs submit
jobs submit k {} --file -
jobs submit k --key a --no-key
jobs submit k {} --lines
jobs submit k --lines --wait 1
jobs submit k --delay 1 --run-at 2100-01-01T00:00:00Z
jobs submit k --run-at tomorrow
jobs submit k --run-at 2100-01-01T00:00:00
jobs submit k --debounce d
jobs submit k --priority 10
jobs submit k --priority urgent
jobs list --limit 1 --all
jobs show
jobs show dead
jobs show job_1 --key k
jobs cancel
jobs cancel job_1 --force
jobs requeue
jobs requeue schedules
jobs requeue job_1 --dead
jobs requeue job_1 --kind k
jobs requeue --dead
jobs requeue job_1 job_2
jobs release k --force
jobs queue set q
jobs queue set q --rate-limit fast
jobs members
jobs members dead
jobs close
jobs schedule rm n
ledger org set 1 => Give something to change
ledger org show 7/8 => give only the number of the organization
ledger org delete 1
ledger vault show 1 => write the vault as ORG/VAULT
ledger vault show 1/x => write the place as ORG or ORG/VAULT
ledger vault delete 1/2 => give --yes if standard input is not a terminal
ledger write 1/2 --client app => Give operations
ledger write 1/2 --client app --set a => --set takes KEY=VALUE.
ledger write 1/2 --client app --if-absent --set a=1 => --if-absent applies to a set
ledger write 1/2 --client app --delete a --expires 5
ledger write 1/2 --client app --set a=1 --if-absent --if-version 1 => A set can have one condition
ledger write 1/2 --client app --set a=1 --file - => not both
ledger write 1/2 --client app --set a=1 --split 2 => --split needs --file
ledger write 1/2 --client app --file - --split 2 --key k => With --split the key must be a UUID
ledger write 1/2 --client app --set a=1 --proof missing/file => cannot be written
ledger write 1/2 --client app --key short --set a=1 => A key must be a UUID or 16 bytes.
ledger read 1/2 => Give a KEY, or --prefix for a list.
ledger read 1/2 a --trusted-height 1 => --trusted-height needs --proof
ledger block 1/2 -- 0
ledger block 1/2 -- x
ledger block 1/2 -- 3..2
ledger block 1/2 -- 1..
ledger block 1/2 -- -1
ledger block 1/2 1..2 --watch => Give --watch one HEIGHT or none
ledger proof 1/2 nothing -o - => TX_ID must be 16 bytes
ledger proof 1/2 -o - => Give a TX_ID, or --relationship
ledger proof 1/2 00000000000000000000000000000000 --relationship a b c -o -
ledger proof 1/2 00000000000000000000000000000000 --at-height 1 -o -
ledger verify - => Name a block that you trust
ledger verify - --trust 3 => a trusted block must be HEIGHT:HASH
ledger verify - --trust 0:0000000000000000000000000000000000000000000000000000000000000000
ledger verify - --trust 3:gggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggg
ledger verify - --untrusted --key a --relationship a b c => Give --key or --relationship, not both
deltas pull g --limit 1 --follow => --follow does not end
deltas pull '' => 1 to 256 characters
deltas schema g t
deltas schema g t title:text => a column must be NAME:TYPE
deltas schema g t title:string title:json => named twice
deltas schema g to-dos a:string => a table's name
deltas clients rm g c
token revoke 0000000000000000 => Revoking cannot be undone
backup create file --keep 2
epoch raise
streams apend => Did you mean append?
stream ls => Did you mean streams?
"""
"""Command lines; behind an arrow, what the sentence has in it."""
CASES = [line.partition(" => ")[::2] for line in LINES.strip().splitlines()]


@pytest.mark.parametrize(("line", "sentence"), CASES, ids=[line for line, _ in CASES])
def test_what_does_not_go_together_is_told(line: str, sentence: str) -> None:
    run = NOBODY.here(*(word.replace("\\n", "\n") for word in split(line)))
    assert (run.code, run.raw) == (2, b""), run
    assert "Error: " in run.err
    assert sentence in run.err
