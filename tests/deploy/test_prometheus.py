"""Alert rules and dashboard: valid, tested, and about metrics and labels that a server really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from docs.metrics import exposed, full_name, labels_of
from tests.harness.promtool import run
from tests.harness.server import RunningServer

FOLDER = Path(__file__).parent.parent.parent / "deploy/prometheus"
RULES = FOLDER / "alerts.yaml"
TESTS = sorted(FOLDER.glob("*.test.yaml"))
DASHBOARD = FOLDER / "dashboard.json"
OF_PROMETHEUS = frozenset({"up", "ALERTS"})
TARGET_LABELS = frozenset({"instance", "job"})
"""Labels that Prometheus adds to what it scrapes."""
_SELECTOR = re.compile(r"\b((?:semel|process)_[a-z_]+|up)\b(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on|without|unless on|ignoring) \(([^)]*)\)")
PANELS = frozenset(
    {
        *("Requests", "Latency, median", "Latency, 99th percentile", "Answers of 500 and above"),
        *("Doubles prevented", "Doubles prevented by surface", "Time of a COMMIT", "Age of the oldest waiting write"),
        *("Free disk", "Database and log", "Receipts", "Live readers", "Lag of replicas", "Age of the last backup"),
        "Quota refusals",
    }
)


def rules() -> list[Any]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[Any]:
    return [one for one in json.loads(DASHBOARD.read_text())["panels"] if one["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, by the name of its alert or panel."""
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])


class Used(NamedTuple):
    """A metric in an expression, and the labels that its selector names."""

    metric: str
    labels: frozenset[str]


def used_in(expression: str) -> list[Used]:
    return [
        Used(name, frozenset(re.findall(r"(\w+) ?(?:=~|!~|!=|=)", matchers)))
        for name, matchers in _SELECTOR.findall(expression)
    ]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The metrics of a real server that has answered a request."""
    with RunningServer(tmp_path_factory.mktemp("prometheus") / "data") as server:
        httpx.put(server.url + "/v1/stream/s", headers={"Content-Type": "application/json"})
        httpx.post(server.url + "/v1/stream/s", json=1, headers={"Idempotency-Key": "k"})
        return httpx.get(server.url + "/metrics", headers={"Accept": "text/plain"}).text


@pytest.fixture(scope="module")
def series(told: str) -> set[str]:
    """The names of all series that the server can have, also of families without a sample."""
    kinds: list[tuple[str, str]] = re.findall(r"^# TYPE (\w+) (\w+)$", told, re.MULTILINE)
    parts = [f"{name}{end}" for name, kind in kinds if kind == "histogram" for end in ("_bucket", "_sum", "_count")]
    return {*parts, *(name for name, kind in kinds if kind != "histogram")}


def test_the_metrics_of_a_server_pass_the_linter(told: str) -> None:
    checked = run("check", "metrics", text=told)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_linter_finds_a_flaw() -> None:
    assert run("check", "metrics", text="# TYPE a_total gauge\na_total 1\n").returncode != 0


def test_the_rules_are_valid_and_their_tests_pass() -> None:
    checked = run("check", "rules", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run("test", "rules", *TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    found = {
        (re.findall(r'alertname="(\w+)"', one["expr"])[0], bool(one["exp_samples"]))
        for path in TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for one in test["promql_expr_test"]
    }
    assert found == {(rule["alert"], fires) for rule in rules() for fires in (True, False)}


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]


def test_every_metric_of_an_expression_is_that_of_a_server(series: set[str]) -> None:
    named = {(where, one.metric) for where, expression in expressions() for one in used_in(expression)}
    assert len(named) > 40
    assert {(where, name) for where, name in named if name not in series | OF_PROMETHEUS} == set()


def test_every_label_of_an_expression_is_one_of_its_metric() -> None:
    labels = {full_name(family): {*labels_of(family), *TARGET_LABELS} for family in exposed()}
    for where, expression in expressions():
        known: set[str] = set()
        for metric, named in used_in(expression):
            own = labels.get(re.sub(r"_(bucket|sum|count)$", "", metric)) or labels.get(metric, set(TARGET_LABELS))
            assert named <= own, (where, metric)
            known |= own
        grouped = {name.strip() for names in _GROUPED.findall(expression) for name in names.split(",")}
        assert grouped - {"le"} <= known, where


def test_every_expression_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    """As a recording rule: the tool checks expressions in no other way."""
    made = [
        {"record": f"panel:{panel['id']}:{place}", "expr": _without_variables(target["expr"])}
        for panel in panels()
        for place, target in enumerate(panel["targets"])
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    checked = run("check", "rules", tmp_path / "rules.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def _without_variables(expression: str) -> str:
    return re.sub(r"\$__(rate_interval|range)", "5m", expression).replace("$instance", ".*")


def test_the_dashboard_has_its_panels_side_by_side() -> None:
    everything = json.loads(DASHBOARD.read_text())["panels"]
    assert len({one["id"] for one in everything}) == len(everything)
    assert {one["title"] for one in panels()} >= PANELS
    taken: set[tuple[int, int]] = set()
    for one in everything:
        at = one["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, one["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    for one in panels():
        assert one["datasource"]["uid"] == "${datasource}"
        assert one["description"].endswith("."), one["title"]
