"""Links of `semel console` in a browser: signed in without typing, once, as the caller, until the end of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Semel
from tests.harness.chromium import FOREIGN, Browser, pages, running_browser
from tests.harness.tokens import token_file
from tests.server.console.accessibility import check_accessibility
from tests.server.console.browser import PHONE, WIDE, ConsolePage, console_page
from tests.server.console.links import age_links, audit_lines, bearer, caller, make_link
from tests.server.console.site import ADMIN, READER, ConsoleSite, console_site, tokens

KEPT = "sessionStorage.getItem('semel.token')"
SIGNED_IN = "document.querySelector('#caller').innerText.includes({})"
SIGN_IN_PAGE = "document.querySelector('#token')"
REFUSED = f"{SIGN_IN_PAGE} && document.querySelector('main .error')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    folder = tmp_path_factory.mktemp("links")
    with console_site(folder, SEMEL_TOKENS=tokens(folder), SEMEL_ACCESS_LOG="1") as running:
        yield running


@pytest.fixture
def page(browser: Browser, site: ConsoleSite) -> Iterator[ConsolePage]:
    with console_page(browser, site.url) as tab:
        yield tab
        assert tab.faults() == []


def printed_link(url: str, token: str) -> str:
    """The link that the command prints."""
    done = Semel(url, {"SEMEL_TOKEN": token})("console", "--no-open")
    assert done.code == 0, done.err
    return done.out.strip()


def open_link(page: ConsolePage, link: str, shown: str) -> str:
    """Open a link as a person does; returns its code."""
    address, code = link.split("#code=")
    assert address == f"{page.base}/console"
    page.open(f"#code={code}", shown)
    return code


def test_the_printed_link_signs_in_and_leaves_the_address_bar_clean(page: ConsolePage, site: ConsoleSite) -> None:
    code = open_link(page, printed_link(site.url, ADMIN), SIGNED_IN.format("'ada'"))
    page.wait("document.querySelector('.chart')")
    page.shot("link-signed-in-light-1280")
    assert page.run("location.href") == f"{site.url}/console"
    assert code not in page.run("JSON.stringify(history.state) + document.documentElement.outerHTML")
    assert not [url for url in page.requests() if code in url.partition("#")[0]]
    assert page.run("document.cookie") == ""
    session = page.run(KEPT)
    assert session.startswith("semel_console_")
    assert not [url for url in page.requests() if session in url]
    page.go("#/settings", "document.querySelector('main table')")
    page.run("history.back()")
    page.wait("document.querySelector('.chart')")
    assert code not in page.run("location.href")
    log = site.server.output.read_text() + "".join(one.read_text() for one in (site.server.data / "logs").iterdir())
    assert code not in log
    assert session not in log


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", WIDE), ("light", PHONE)])
def test_a_second_use_is_refused_with_advice(
    page: ConsolePage, site: ConsoleSite, scheme: str, size: tuple[int, int]
) -> None:
    page.colours(scheme)
    page.size(*size)
    link = printed_link(site.url, READER)
    open_link(page, link, SIGNED_IN.format("'bob'"))
    page.run("sessionStorage.clear()")
    code = open_link(page, link, REFUSED)
    assert "was used before" in page.text()
    assert "run semel console for a new one" in page.text()
    assert page.run("location.href") == f"{site.url}/console"
    assert page.run("document.activeElement.id") == "token"
    assert code not in page.run("document.documentElement.outerHTML")
    check_accessibility(page)
    assert not page.is_too_wide()
    page.shot(f"link-used-{scheme}-{size[0]}")


def test_a_reader_stays_a_reader(page: ConsolePage, site: ConsoleSite) -> None:
    open_link(page, printed_link(site.url, READER), SIGNED_IN.format("'bob'"))
    page.go("#/settings", "document.querySelector('main .empty')")
    assert "admin role" in page.text()
    answer = page.run(
        f"fetch('console/api/v1/jobs', {{method: 'POST', headers: {{Authorization: 'Bearer ' + {KEPT}}},"
        " body: JSON.stringify({kind: 'k', params: {}})}).then(one => one.status)"
    )
    assert answer == 403


def test_a_link_that_is_pasted_into_an_open_tab_takes_its_place(page: ConsolePage, site: ConsoleSite) -> None:
    open_link(page, printed_link(site.url, READER), SIGNED_IN.format("'bob'"))
    before = page.run(KEPT)
    page.go(f"#code={make_link(site.url, ADMIN)}", SIGNED_IN.format("'ada'"))
    assert "code" not in page.run("location.href")
    page.wait("document.querySelector('.chart')")
    deadline = time.monotonic() + 20
    while caller(site.url, before):  # the session that it replaces is ended, not forgotten
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_signing_out_ends_the_session_on_the_server(page: ConsolePage, site: ConsoleSite) -> None:
    open_link(page, printed_link(site.url, ADMIN), SIGNED_IN.format("'ada'"))
    session = page.run(KEPT)
    assert caller(site.url, session)
    ended = len(audit_lines(site.server.data, "CONSOLE_SIGNED_OUT"))
    page.click_button("Sign out")
    page.wait(SIGN_IN_PAGE)
    assert page.run("sessionStorage.length") == 0
    deadline = time.monotonic() + 20
    while len(audit_lines(site.server.data, "CONSOLE_SIGNED_OUT")) == ended:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not caller(site.url, session)
    check_accessibility(page)
    page.shot("link-signed-out-light-1280")


def test_a_reload_and_a_restart_keep_the_session(browser: Browser, tmp_path: Path) -> None:
    with console_site(tmp_path, SEMEL_TOKENS=tokens(tmp_path)) as site, console_page(browser, site.url) as page:
        link = printed_link(site.url, ADMIN)
        site.server.restart()
        open_link(page, link, SIGNED_IN.format("'ada'"))
        site.server.restart()
        page.open("#/settings", "document.querySelector('main table')")


def test_a_link_of_yesterday_is_refused(browser: Browser, tmp_path: Path) -> None:
    with console_site(tmp_path, SEMEL_TOKENS=tokens(tmp_path)) as site, console_page(browser, site.url) as page:
        link = printed_link(site.url, ADMIN)
        site.server.stop()
        age_links(site.server.data)
        site.server.start()
        open_link(page, link, REFUSED)
        assert "60 seconds are over" in page.text()
        assert page.run("sessionStorage.length") == 0


def test_a_credential_that_is_revoked_ends_the_session_on_the_screen(browser: Browser, tmp_path: Path) -> None:
    with console_site(tmp_path, SEMEL_TOKENS=tokens(tmp_path)) as site, console_page(browser, site.url) as page:
        open_link(page, printed_link(site.url, ADMIN), SIGNED_IN.format("'ada'"))
        page.wait("document.querySelector('.chart')")  # it asks again twice a second
        token_file(tmp_path, {"bob": (READER, ("read",), ())})
        os.kill(site.server.pid, signal.SIGHUP)
        page.wait(REFUSED)
        assert "console session" in page.text()
        assert page.run("document.querySelector('#caller').innerText") == ""
        assert page.run("sessionStorage.length") == 0
        page.shot("link-ended-light-1280")


def test_a_file_leads_the_browser_to_the_link(browser: Browser, site: ConsoleSite, tmp_path: Path) -> None:
    opener = tmp_path / "browser"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/asked\n')
    opener.chmod(0o700)
    env = {"SEMEL_TOKEN": ADMIN, "BROWSER": f"{opener} %s", "XDG_RUNTIME_DIR": str(tmp_path)}
    done = Semel(site.url, env)("console")
    assert (done.code, "code" in done.out) == (0, False), done.err
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("file:///")
    assert "code" not in asked
    with console_page(browser, site.url) as page:
        page.run(f"location.href = {json.dumps('about:blank')}")
        page._page.ask("Page.navigate", url=asked)
        page.wait(f"location.pathname === '/console' && {SIGNED_IN.format(repr('ada'))}")
        assert page.run("location.href") == f"{site.url}/console"
        assert page.run("document.referrer") == ""


def test_a_foreign_page_makes_and_exchanges_nothing(browser: Browser, site: ConsoleSite) -> None:
    code, made = make_link(site.url, ADMIN), len(audit_lines(site.server.data, "CONSOLE_LINK_CREATED"))
    with pages() as port, browser.page(f"http://{FOREIGN}:{port}/") as stranger:
        headers = json.dumps(bearer(ADMIN))
        body = json.dumps(json.dumps({"code": code}))
        for given in (f"{{method: 'POST', body: {body}}}", f"{{method: 'POST', headers: {headers}, body: {body}}}"):
            for path in ("links", "sessions"):
                seen = stranger.run(
                    f"fetch('{site.url}/console/{path}', {given}).then(one => 'read').catch(() => 'no')"
                )
                assert seen == "no", path
        blind = f"{{method: 'POST', mode: 'no-cors', body: {body}}}"
        stranger.run(f"fetch('{site.url}/console/sessions', {blind}).catch(() => 0)")
        shown = stranger.run(
            f"new Promise(tell => {{ const form = document.createElement('form'); form.method = 'POST';"
            f"form.action = '{site.url}/console/sessions'; form.enctype = 'text/plain';"
            "const field = document.createElement('input');"
            f"field.name = {json.dumps(json.dumps({'code': code})[:-1] + ', ')};"
            "form.append(field); document.body.append(form); form.target = '_blank'; form.submit();"
            "setTimeout(tell, 300, 1); })"
        )
        assert shown == 1
    assert len(audit_lines(site.server.data, "CONSOLE_LINK_CREATED")) == made
    answer = httpx.post(f"{site.url}/console/sessions", headers={"Sec-Fetch-Site": "same-origin"}, json={"code": code})
    assert answer.status_code == 201, "a foreign page has used the code"
