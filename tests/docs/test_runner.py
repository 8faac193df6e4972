"""The runner of pages can fail: each page that is wrong is refused, at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.answers import compared
from tests.docs.fences import fences
from tests.docs.page import Failure, run
from tests.harness.processes import is_there

JOB, OTHER = "job_0190f0d26f7a7c3e9d5b1a2b3c4d5e6f", "job_0190f0d26f7a7c3e9d5b1a2b3c4d5eff"


def ran(text: str, folder: Path) -> list[Failure]:
    """What goes wrong in a page of this text; `'''` stands for the marks of a fence."""
    page = folder / "page.md"
    page.write_text(text.replace("'''", "```"), "utf-8")
    return run(page, folder / "place")


WRONG = {
    "output of Python": ("'''python\nprint(1)\n'''\n\n'''text\n2\n'''\n", 5, "this came out"),
    "less output than is shown": ("'''python\nprint(1)\n'''\n\n'''text\n1\n2\n'''\n", 5, "this came out"),
    "crash of Python": ("'''python\nprint(1)\nraise ValueError(2)\n'''\n", 1, "ValueError: 2"),
    "crash behind the output": ("'''python\nprint(1)\nraise ValueError(2)\n'''\n'''text\n1\n'''\n", 1, "ValueError"),
    "end of the process": ("'''python\nimport os\nos._exit(3)\n'''\n", 1, "ended with 3"),
    "Python that is none": ("'''python\nprint(\n'''\n", 1, "SyntaxError"),
    "file that is no Python": ("'''python\n# a.py\nprint(\n'''\n", 3, "no Python"),
    "output of a command": ("'''console\n$ echo 1\n2\n'''\n", 2, "this came out"),
    "second command": ("'''console\n$ echo 1\n1\n$ echo 2\n1\n'''\n", 4, "$ echo 2"),
    "line too many": ("'''console\n$ echo 1\n1\n2\n'''\n", 2, "this came out"),
    "line that is not shown": ("'''console\n$ echo 1; echo 2\n1\n'''\n", 2, "this came out"),
    "command that fails": ("'''console\n$ false\n'''\n", 2, "ended with 1"),
    "command that is not there": ("'''console\n$ semmel serve\nnot found\n'''\n", 2, "ended with 127"),
    "hidden command that fails": ("<!-- console\n$ false\n-->\n", 2, "ended with 1"),
    "command in the background": ("'''console\n$ sh -c 'exit 3' &\n$ sleep 0.2\n'''\n", 2, "ended with 3"),
    "console without a command": ("'''console\necho 1\n'''\n", 1, "without a command"),
    "member of JSON": ("""'''console\n$ echo '{"a": 1, "b": 2}'\n{"a": 1, "c": 2}\n'''\n""", 2, "this came out"),
    "value in JSON": ("""'''console\n$ echo '{"a": 1, "b": 2}'\n{"a": 2,...}\n'''\n""", 2, "this came out"),
    "JSON": ("'''json\n{\"a\": 1,}\n'''\n", 1, "JSONDecodeError"),
    "TOML": ("'''toml\nport = \n'''\n", 1, "TOMLDecodeError"),
    "setting": ("'''toml\n# semel.toml\nprot = 1\n'''\n", 1, "did you mean port"),
    "token file": ("'''toml\n[[token]]\nname = 'a'\nsha256 = '0'\nroles = [1]\n'''\n", 1, "TokenFileError"),
    "YAML": ("'''yaml\na: [\n'''\n", 1, "ParserError"),
    "INI": ("'''ini\n[Unit\n'''\n", 1, "MissingSectionHeaderError"),
    "SQL": ("'''sql\nSELEKT 1\n'''\n", 1, "syntax error"),
    "nginx": ("'''nginx\nlocation / { proxy_pass http://a }\n'''\n", 1, "has no end"),
    "shell": ("'''sh\nif true\n'''\n", 1, "syntax error"),
    "language that nobody reads": ("'''perl\nprint 1\n'''\n", 1, "nobody reads"),
    "no language": ("'''\nprint 1\n'''\n", 1, "nobody reads"),
    "no end": ("'''text\nprint 1\n", 1, "has no end"),
    "not run without a reason": ("<!-- not run: -->\n'''console\n$ false\n'''\n", 1, "without a reason"),
    "not run without a fence": ("<!-- not run: it needs a cluster -->\nwords\n", 1, "before a fence"),
    "comment that nobody knows": ("<!-- pyhton\nprint(1)\n-->\n", 1, "nobody knows"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_refused(name: str, tmp_path: Path) -> None:
    text, line, what = WRONG[name]
    (failure,) = ran(text, tmp_path)
    assert (failure.line, what in str(failure)) == (line, True), failure


RIGHT = {
    "one program": "'''python\na = 1\n'''\nWords.\n'''python\nprint(a)\n'''\n'''text\n1\n'''\n",
    "await": "'''python\nimport asyncio\nawait asyncio.sleep(0)\n'''\n",
    "shown traceback": "'''python\n1 / 0\n'''\n'''text\nTraceback (most recent call last):\n...\n"
    "ZeroDivisionError: division by zero\n'''\n",
    "text of another section": "'''python\nprint(1)\n'''\n\n## Other\n\n'''text\na = b\n'''\n",
    "file": "'''python\n# a.py\nprint(1)\n'''\n'''console\n$ python a.py\n1\n'''\n",
    "file of another language": "'''sql\n-- a.sql\nSELECT 1\n'''\n'''console\n$ tail -n 1 a.sql\nSELECT 1\n'''\n",
    "hidden": "<!-- python\na = 1\n-->\n\n'''python\nprint(a)\n'''\n'''text\n1\n'''\n",
    "variables and folders": "'''console\n$ mkdir a && cd a\n$ A=$(pwd)\n$ basename $A\na\n"
    "$ ls b\n...\n$ echo $?\n2\n'''\n",
    "lines that go on": "'''console\n$ cat <<'END'\na\nEND\na\n$ echo b \\\n  c\nb c\n$ echo 'd\ne'\nd\ne\n'''\n",
    "not run": "<!-- not run: it needs a cluster -->\n'''console\n$ false\n'''\n",
    "command that fails and shows it": "'''console\n$ ls nothing\n"
    "ls: cannot access 'nothing': No such file or directory\n'''\n",
    "fresh": "'''console\n$ touch a\n'''\n<!-- fresh -->\n'''console\n$ ls | wc -l\n0\n'''\n",
    "list": "- words\n\n  '''console\n  $ echo 1\n  1\n  '''\n",
    "left out": """'''console\n$ echo '{"a": {"b": 1}, "c": [1, 2], "d": 3}'\n{"a": {...}, "c": [1,...],...}\n'''\n""",
    "kept id": f"'''console\n$ head -c 16 /dev/urandom | od -An -vtx1 | tr -d ' \\n' | tee id\n{JOB[4:]}\n"
    f"$ test {JOB[4:]} = $(cat id)\n$ cat id id | fold -w 32\n{JOB[4:]}\n{JOB[4:]}\n'''\n",
    "folders of a machine": "'''console\n$ echo 1 > /var/lib/semel.txt\n$ ls /var/lib/semel.txt\n"
    "/var/lib/semel.txt\n'''\n",
    "what is only read": "'''sql\nCREATE TABLE a (b integer);\nSELECT c FROM d\n'''\n'''nginx\na { b c; }\n'''\n"
    "'''ini\n[Unit]\nAfter=a\nAfter=b\n'''\n'''yaml\na: 1\n'''\n",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_page_is_right(name: str, tmp_path: Path) -> None:
    assert ran(RIGHT[name], tmp_path) == []


def test_a_page_has_a_server_and_what_it_starts_ends_with_it(tmp_path: Path) -> None:
    page = """
'''console
$ curl http://127.0.0.1:8788/v1/stream/a -X PUT -H 'Content-Type: text/plain'
$ kill -9 $(cat data/semel.lock)
$ semel serve
Semel is listening on http://127.0.0.1:8788 ...
$ semel streams ls
...
a ...
$ cp data/semel.lock ../server.pid
$ python -m http.server --bind 127.0.0.1 --directory . 8000 &
$ echo $! > ../other.pid
'''
"""
    assert ran(page, tmp_path) == []
    for name in ("server.pid", "other.pid"):
        (pid,) = (tmp_path / "place").rglob(name)
        assert not is_there(int(pid.read_text()))


def test_a_page_has_a_database(tmp_path: Path) -> None:
    page = """
'''python
import psycopg
with psycopg.connect("postgresql://app:secret@db.example.com/shop") as connection:
    connection.execute("CREATE TABLE charges (amount integer)")
'''

'''console
$ semel once init postgresql://db.example.com/shop
$ semel migrate --store postgresql://db.example.com/other
'''
"""
    assert ran(page, tmp_path) == []


ALIKE = (
    ("2026-11-18T16:39:44.455Z took 12.5 ms", "2027-01-01T00:00:00.000Z took 3 ms"),
    ('{"at":1794787251506}', '{"at":1794787251999}'),
    ('{"id":"0190f0d2-6f7a-7c3e-9d5b-1a2b3c4d5e6f"}', '{"id":"0190f0d2-6f7a-7c3e-9d5b-1a2b3c4d5eff"}'),
    (f"{JOB} {JOB}", f"{OTHER} {OTHER}"),
    ("HTTP/1.1 200 OK\na: b\n\n{}", "HTTP/1.1 200 OK\nc: d\na: b\n\n{}"),
    ("a\n...\nd", "a\nb\nc\nd"),
    ('{"b": 1,\n "a": [1]\n}', '{"a":[1],"b":1}'),
    ('data: {"a":1,...}', 'data: {"a":1,"b":2}'),
    ('[{"a":1},...]', '[{"a":1},{"a":2}]'),
    ('{"oldestAge":3,"disk_free":1.5}', '{"oldestAge":4,"disk_free":2}'),
    ('{"a":"AAAA...","b":{...},"c":...}', '{"a":"AAAAbb","b":{},"c":[1]}'),
)
DIFFERENT = (
    ("at 2026-11-18T16:39:44.455Z", "at noon"),
    (f"{JOB} {JOB}", f"{JOB} {OTHER}"),
    (f"{JOB} {OTHER}", f"{JOB} {JOB}"),
    ('{"at":1794787251506}', '{"at":"1794787251506"}'),
    ('{"a":1}', '{"a":true}'),
    ('{"a":1}', '{"a":1,"b":2}'),
    ('{"a":1,"b":2,...}', '{"a":1}'),
    ("[1,2]", "[1]"),
    ("HTTP/1.1 200 OK\na: b", "HTTP/1.1 200 OK\na: c"),
    ("HTTP/1.1 200 OK\n\n{}", "HTTP/1.1 200 OK\n\n[]"),
    ("HTTP/1.1 200 OK", "HTTP/1.1 201 Created"),
    ("a\n...\nd", "a\nb"),
    ("0000000000000000_0000000000000013", "0000000000000000_0000000000000016"),
    ("3 jobs", "4 jobs"),
    ('{"messages":3}', '{"messages":4}'),
)


@pytest.mark.parametrize(("shown", "said"), ALIKE)
def test_what_may_differ_may_differ(shown: str, said: str) -> None:
    assert compared(shown, said, {}) is not None


@pytest.mark.parametrize(("shown", "said"), DIFFERENT)
def test_anything_else_may_not(shown: str, said: str) -> None:
    assert compared(shown, said, {}) is None


def test_an_id_is_known_from_one_answer_to_the_next() -> None:
    known = compared(JOB, OTHER, {}) or {}
    assert compared(f"of {JOB}", f"of {OTHER}", known) is not None
    assert compared(f"of {JOB}", f"of {JOB}", known) is None


def test_hidden_fences_are_fences() -> None:
    (one, two) = fences("# a\n<!-- made: b -->\n<!-- toml\na = 1\n-->\n```text\nb\n```\n<!-- end -->\n")
    assert (one.language, one.text, one.is_hidden, one.line) == ("toml", "a = 1\n", True, 3)
    assert (two.language, two.text, two.is_hidden, two.section) == ("text", "b\n", False, 1)
