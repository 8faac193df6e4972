"""The page of the proxy is true: its options, codes and example are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import click

from semel.cli.proxy import proxy
from semel.once import Once
from semel.once.exchange import HOP_BY_HOP, PASSING
from semel.once.table import Statement
from semel.proxy.settings import VARIABLES
from tests.proxy.running import CLIENT, proxied
from tests.proxy.upstream import serving

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs/once/proxy.md").read_text("utf-8")
REFERENCE = (ROOT / "docs/reference/cli.md").read_text("utf-8")
SOURCE = "".join(path.read_text("utf-8") for path in (ROOT / "src/semel").glob("[op][nr]*/*.py"))


def test_every_option_has_its_row_with_its_default() -> None:
    section = REFERENCE.partition("## semel proxy\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `--")]
    rows = {flag: line for line in lines for flag in re.findall(r"`(--[\w-]+)", line.split("|")[1])}
    options = [one for one in proxy.params if isinstance(one, click.Option)]
    assert set(rows) == {flag for one in options for flag in one.opts}
    for one in options:
        if isinstance(one.default, str | int) and not isinstance(one.default, bool) and one.name != "scope":
            assert str(one.default) in rows[one.opts[0]], one.opts[0]
    assert set(re.findall(r"`(--[\w-]+)", GUIDE)) <= {flag for one in options for flag in one.opts}
    named = set(re.findall(r"SEMEL_PROXY_(\w+)", GUIDE))
    assert named == {"UPSTREAM", "STORE", "ROUTES", "ON_CRASH", *VARIABLES}


def test_codes_headers_and_statuses_are_those_of_the_code() -> None:
    for code in re.findall(r"[45]\d\d `(\w+)`", GUIDE):
        assert f'"{code}"' in SOURCE, code
    [removed] = [line for line in GUIDE.splitlines() if line.startswith("| `Connection`")]
    assert {name.lower().encode() for name in re.findall(r"`([\w-]+)`", removed.split("|")[1])} == HOP_BY_HOP
    [row] = [line for line in GUIDE.splitlines() if line.startswith("| 2xx, 3xx")]
    assert {int(status) for status in re.findall(r"\d{3}", row.split("|")[3])} == PASSING


def test_the_example_frees_a_key_whose_outcome_is_unknown(tmp_path: Path) -> None:
    place = tmp_path / "proxy.db"
    store = Once(str(place))
    with serving() as upstream, proxied(upstream.url, store, scope_headers=("authorization",)) as url:

        def ask(path: str) -> int:
            headers = {"Idempotency-Key": '"order-7"', "Authorization": "a"}
            return CLIENT.post(f"{url}{path}", content=b"5", headers=headers).status_code

        assert [ask("/lost"), ask("/lost")] == [409, 409]
        [(scope,)] = store.store.database.run(Statement("SELECT scope FROM semel_once"))
        assert scope.startswith("request:sha256:")
        [block] = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
        code = block.replace('"proxy.db"', repr(str(place))).replace("request:sha256:9f86...", scope)
        names: dict[str, Once] = {}
        exec(compile(code, "proxy.md", "exec"), names)
        assert ask("/charges") == 201
    store.close()
