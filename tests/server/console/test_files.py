"""The console over HTTP: its files, the rules of its calls, and the operations that it reads."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from semel.server.console.files import STATIC, read_files
from tests.events.insieme.packages import installed_node
from tests.harness.server import RunningServer, free_port
from tests.server.console.site import ADMIN, READER, ConsoleSite, console_site, tokens

HERE = Path(__file__).parent
POLICY_PARTS = ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    folder = tmp_path_factory.mktemp("console")
    with console_site(folder, SEMEL_TOKENS=tokens(folder), SEMEL_TOKEN_ACTIVE="a-very-secret-token") as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_every_file_has_a_strict_policy_and_no_cookie(site: ConsoleSite) -> None:
    for path in read_files():
        answer = httpx.get(site.url + path.decode(), headers={"Accept-Encoding": "identity"})
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert all(part in policy for part in POLICY_PARTS)
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-cache"
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


def test_a_file_is_sent_compressed_and_once(site: ConsoleSite) -> None:
    url = f"{site.url}/console/static/app.js"
    plain = httpx.get(url, headers={"Accept-Encoding": "identity"})
    zipped = httpx.get(url, headers={"Accept-Encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert zipped.content == plain.content == (STATIC / "app.js").read_bytes()
    assert plain.headers["etag"] != zipped.headers["etag"]
    for answer, coding in ((plain, "identity"), (zipped, "gzip")):
        again = httpx.get(url, headers={"Accept-Encoding": coding, "If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert httpx.get(url, headers={"Accept-Encoding": "gzip;q=0"}).headers.get("content-encoding") is None
    assert httpx.head(url).status_code == 200


def test_no_other_file_is_given(site: ConsoleSite) -> None:
    for path in ("/console/static/..%2ffiles.py", "/console/static/../files.py", "/console/files.py", "/console/x"):
        with httpx.Client() as client:
            answer = client.send(httpx.Request("GET", httpx.URL(site.url).copy_with(raw_path=path.encode())))
        assert answer.status_code == 404, path
    assert httpx.post(f"{site.url}/console").status_code == 405
    moved = httpx.get(f"{site.url}/console/")
    assert (moved.status_code, moved.headers["location"]) == (308, "../console")


def test_a_call_of_another_page_is_refused_and_one_of_the_console_is_not(site: ConsoleSite) -> None:
    url, own = f"{site.url}/console/api/v1/caller", site.url
    foreign: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ]
    for headers in foreign:
        answer = httpx.get(url, headers=bearer(ADMIN) | headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN_ORIGIN"), headers
        assert "access-control-allow-origin" not in answer.headers
    fine: list[dict[str, str]] = [{}, {"Origin": own}, {"Sec-Fetch-Site": "same-origin", "Origin": own}]
    for headers in fine:
        answer = httpx.get(url, headers=bearer(ADMIN) | headers)
        assert (answer.status_code, answer.json()["name"]) == (200, "ada"), headers
        assert "access-control-allow-origin" not in answer.headers
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for path in ("/console/api/v1/jobs", "/console"):
        preflight = httpx.options(site.url + path, headers=asked)
        assert not [name for name in preflight.headers if name.startswith("access-control-allow")], path


def test_a_call_needs_its_credential_and_a_change_needs_an_administrator(site: ConsoleSite) -> None:
    base = f"{site.url}/console/api"
    assert httpx.get(f"{base}/v1/jobs").status_code == 401
    assert httpx.get(f"{base}/v1/jobs", headers=bearer(READER)).status_code == 200
    for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/stream/s"), ("DELETE", "/v1/stream/s")):
        answer = httpx.request(method, base + path, headers=bearer(READER))
        assert answer.status_code == 403, path
        assert "admin" in answer.text
    job = {"kind": "k", "params": {}}
    assert httpx.post(f"{base}/v1/jobs", headers=bearer(ADMIN), json=job).status_code == 200
    assert httpx.post(f"{base}/v1/jobs/lookup", headers=bearer(READER), json={"request_id": "x"}).status_code != 403
    denials = site.client.get("/v1/audit?event=AUTH_FAILURE").json()["lines"]
    assert any(one["details"].get("reason") == "missing_role" for one in denials)


def test_settings_name_their_origin_and_show_no_secret(site: ConsoleSite) -> None:
    answer = site.client.get("/v1/settings")
    assert "a-very-secret-token" not in answer.text
    found = {one["name"]: one for one in answer.json()["settings"]}
    assert (found["port"]["origin"], found["port"]["place"]) == ("flag", "--port")
    assert (found["tokens"]["origin"], found["tokens"]["place"]) == ("environment", "SEMEL_TOKENS")
    assert (found["token_active"]["value"], found["queue_writes"]["origin"]) == ("(set, not shown)", "default")
    assert httpx.get(f"{site.url}/v1/settings", headers=bearer(READER)).status_code == 403


def test_the_audit_log_is_read_newest_first_and_bounded(site: ConsoleSite) -> None:
    for _ in range(3):
        httpx.get(f"{site.url}/v1/streams", headers=bearer("wrong"))
    lines = site.client.get("/v1/audit", params={"limit": 2, "event": "AUTH_FAILURE"}).json()["lines"]
    assert [one["event"] for one in lines] == ["AUTH_FAILURE"] * 2
    assert lines[0]["ts"] >= lines[1]["ts"]
    for limit in ("0", "501", "x", "", "-1"):
        assert site.client.get("/v1/audit", params={"limit": limit}).status_code == 400
    assert httpx.get(f"{site.url}/v1/audit", headers=bearer(READER)).status_code == 403


def test_live_counts_tell_each_verdict_at_once(site: ConsoleSite) -> None:
    def counts() -> dict[str, int]:
        return dict(site.client.get("/v1/live").json()["writes"]["streams"])

    site.client.put("/v1/stream/live", headers={"Content-Type": "text/plain"}).raise_for_status()
    before = counts()
    send = {"Content-Type": "text/plain", "Idempotency-Key": "once"}
    for body in ("a", "a", "b"):
        site.client.post("/v1/stream/live", headers=send, content=body)
    assert {name: value - before[name] for name, value in counts().items()} == {"fresh": 1, "replay": 1, "refused": 1}
    assert len(site.client.get("/v1/live").content) < 2_000


def test_the_console_can_be_turned_off(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_CONSOLE": "0"}) as server:
        for path in ("/console", "/console/static/app.js", "/console/api/livez"):
            assert httpx.get(server.url + path).status_code == 404


def test_with_two_listeners_the_console_is_on_the_control_listener(tmp_path: Path) -> None:
    control = free_port()
    with RunningServer(tmp_path / "data", env={"SEMEL_CONTROL_PORT": str(control)}) as server:
        own = f"http://127.0.0.1:{control}"
        for path in ("/console", "/console/api/livez", "/console/api/v1/jobs", "/v1/settings", "/v1/audit"):
            assert httpx.get(own + path).status_code == 200, path
            wrong = httpx.get(server.url + path)
            assert (wrong.status_code, wrong.text.upper().count("WRONG_PLANE")) == (410, 1), path
        assert httpx.get(f"{own}/v1/jobs").status_code == 410
        assert httpx.get(f"{server.url}/v1/live").status_code == httpx.get(f"{own}/v1/live").status_code == 200


def test_each_namespace_has_its_own_console(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_NAMESPACES": "shop"}) as server:
        assert httpx.get(f"{server.url}/ns/shop/console").status_code == 200
        assert httpx.get(f"{server.url}/ns/shop/console/static/app.js").status_code == 200
        assert httpx.get(f"{server.url}/ns/shop/console/api/v1/caller").json()["namespace"] == "shop"
        assert httpx.get(f"{server.url}/console/api/ns/shop/v1/caller").status_code == 404


def scripts() -> list[Path]:
    return sorted(STATIC.rglob("*.js"))


def test_scripts_take_no_markup_and_are_short() -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|document\.cookie"
    for path in scripts():
        text = path.read_text()
        assert not re.search(banned, text), path.name
        assert text.count("\n") <= 230, path.name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|style=|<style", page)


def test_scripts_pass_the_type_checker() -> None:
    node = installed_node(HERE)
    tool = HERE / "node_modules" / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [node, str(tool), "--project", str(HERE / "tsconfig.json")],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_all_files_together_are_small() -> None:
    files = read_files()
    assert all(gzip.decompress(one.zipped) == one.content for one in files.values())
    assert sum(len(one.zipped) for one in files.values()) < 150_000
