"""The shell of the console in a browser: signing in, keys, colours, live numbers, and what a foreign page can do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.harness.chromium import FOREIGN, Browser, pages, running_browser
from tests.harness.tokens import token_file
from tests.server.console.accessibility import check_accessibility
from tests.server.console.browser import PHONE, WIDE, ConsolePage, console_page
from tests.server.console.site import ADMIN, READER, ConsoleSite, console_site, tokens

MAX_FIRST_BYTES = 150_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with console_site(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, site: ConsoleSite) -> Iterator[ConsolePage]:
    with console_page(browser, site.url) as tab:
        yield tab
        assert tab.faults() == []


def test_the_first_page_is_small_and_asks_nobody_else(page: ConsolePage, site: ConsoleSite) -> None:
    page.open("", "document.querySelector('.chart')")
    assert page.received_bytes() < MAX_FIRST_BYTES
    assert all(url.startswith((site.url, "about:")) for url in page.requests())
    assert page.run("document.cookie") == ""


def test_a_verdict_is_seen_within_a_second_of_its_write(page: ConsolePage, site: ConsoleSite) -> None:
    site.client.put("/v1/stream/seen", headers={"Content-Type": "text/plain"}).raise_for_status()
    page.open("#/overview", "document.querySelector('[data-cell=\"streams fresh\"]')")
    cell = "Number(document.querySelector('[data-cell=\"streams {}\"]').innerText)"
    send = {"Content-Type": "text/plain", "Idempotency-Key": "seen"}
    for verdict in ("fresh", "replay"):
        page.wait("document.querySelector('.card .value').innerText >= '0'")
        before = page.run(cell.format(verdict))
        site.client.post("/v1/stream/seen", headers=send, content="x").raise_for_status()
        page.wait(f"{cell.format(verdict)} === {before + 1}")
    # The page asks again 500 ms after each answer, whatever the machine does meanwhile.
    times = page.run(
        "performance.getEntriesByType('resource').filter(one => one.name.endsWith('/v1/live'))"
        ".slice(1).map(one => [one.startTime, one.responseEnd])"
    )
    gaps = [later[0] - earlier[1] for earlier, later in pairwise(times)]
    assert gaps
    assert min(gaps) < 1_000


def test_keys_lead_to_the_search_box_and_to_pages(page: ConsolePage) -> None:
    page.open("#/overview")
    page.press("/")
    assert page.run("document.activeElement.id") == "find"
    page.write("some-key")
    page.press("Enter")
    page.wait("location.hash === '#/find/some-key'")
    page.press("Escape")
    page.press("g")
    page.press("t")
    page.wait("location.hash === '#/settings' && document.querySelector('main table')")
    page.press("g")
    page.press("h")
    page.wait("location.hash === '#/health' && document.querySelector('.badge[data-word=ready]')")


def test_the_first_tab_stop_skips_to_the_content(page: ConsolePage) -> None:
    page.open("#/health")
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0
    page.press("Enter")
    page.wait("document.activeElement.id === 'view'")


def test_the_theme_follows_the_system_until_one_is_chosen(page: ConsolePage) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.colours("dark")
    page.open("#/health")
    dark = page.run(ground)
    page.colours("light")
    light = page.run(ground)
    assert dark != light
    page.click("#theme")
    page.click("#theme")
    assert (page.run("document.documentElement.dataset.theme"), page.run(ground)) == ("dark", dark)
    page.open("#/health")
    assert page.run(ground) == dark
    page.click("#theme")
    assert page.run(ground) == light


@pytest.mark.parametrize("width", [1280, 1100, 900, 375])
def test_values_of_the_overview_stay_inside_their_cards(page: ConsolePage, width: int) -> None:
    page.size(width, 760)
    page.open("#/overview", "document.querySelectorAll('.card .value').length === 4")
    page.run("window.fetch = () => new Promise(() => 0); 0")  # the values stay as they are set here
    long = "document.querySelectorAll('.card .value').forEach(one => one.innerText = '128.5\u00a0ms · 128.5\u00a0ms')"
    page.run(f"{long}; 0")
    assert page.run("[...document.querySelectorAll('.card')].every(one => one.scrollWidth <= one.clientWidth)")


def test_the_link_of_the_page_is_in_sight_on_a_phone(page: ConsolePage) -> None:
    page.open("#/audit")
    page.size(*PHONE)
    box = "document.querySelector('nav [aria-current]').getBoundingClientRect()"
    page.wait(f"{box}.left >= 0 && {box}.right <= innerWidth")


def test_settings_can_be_filtered(page: ConsolePage) -> None:
    page.open("#/settings", "document.querySelector('main table')")
    rows = "document.querySelectorAll('main tbody tr').length"
    assert page.run(rows) > 50
    page.click("#changed")
    page.wait(f"{rows} < 10 && {rows} > 0")
    assert "--port" in page.text()
    page.run("document.querySelector('main input[type=search]').focus()")
    page.write("no such setting")
    page.wait("document.querySelector('.empty')")


@pytest.mark.parametrize("name", ["overview", "settings", "health"])
def test_pages_are_accessible_and_fit_every_width(page: ConsolePage, name: str) -> None:
    for scheme, size in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        page.colours(scheme)
        page.size(*size)
        page.open(f"#/{name}", "document.querySelector('main h1') && !document.querySelector('main > p')")
        check_accessibility(page)
        assert not page.is_too_wide()
        page.shot(f"{name}-{scheme}-{size[0]}")


def test_a_token_is_asked_for_kept_in_the_tab_and_forgotten(browser: Browser, tmp_path: Path) -> None:
    with console_site(tmp_path, SEMEL_TOKENS=tokens(tmp_path)) as site, console_page(browser, site.url) as page:
        page.open("#/settings", "document.querySelector('#token')")
        page.shot("sign-in-light-1280")
        check_accessibility(page)
        for wrong, reason in (
            ("a-wrong-token", "not known here"),
            ("two words", "without spaces"),
            ("tök", "one word"),
        ):
            page.write(wrong)
            page.press("Enter")
            page.wait(f"document.querySelector('.error')?.innerText.includes({reason!r})")
            assert page.run("document.activeElement.id") == "token"
            assert page.run("sessionStorage.length") == 0
        check_accessibility(page)
        page.shot("refused-light-1280")
        page.write(f"Bearer {ADMIN}")
        page.press("Enter")
        page.wait("document.querySelector('main table')")
        assert ADMIN not in page.run("location.href") + page.run("document.documentElement.outerHTML")
        page.open("#/settings", "document.querySelector('main table')")  # a reload keeps it
        assert not [url for url in page.requests() if ADMIN in url]
        page.click_button("Sign out")
        page.wait("document.querySelector('#token')")
        assert page.run("sessionStorage.length") == 0
        page.write(READER)
        page.press("Enter")
        page.wait("document.querySelector('main .empty')")
        assert "admin role" in page.text()
        assert page.faults() == []


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", WIDE), ("light", PHONE), ("dark", PHONE)])
def test_a_token_that_is_revoked_leads_back_to_the_form(
    browser: Browser, tmp_path: Path, scheme: str, size: tuple[int, int]
) -> None:
    with console_site(tmp_path, SEMEL_TOKENS=tokens(tmp_path)) as site, console_page(browser, site.url) as page:
        page.colours(scheme)
        page.size(*size)
        page.open("#/overview", "document.querySelector('#token')")
        page.write(ADMIN)
        page.press("Enter")
        page.wait("document.querySelector('.chart')")  # it asks again twice a second
        token_file(tmp_path, {"bob": (READER, ("read",), ())})
        os.kill(site.server.pid, signal.SIGHUP)
        page.wait("document.querySelector('#token') && document.querySelector('main .error')")
        assert "not known here" in page.text()
        assert page.run("document.querySelector('#caller').innerText") == ""
        assert page.run("sessionStorage.length") == 0
        assert not page.is_too_wide()
        check_accessibility(page)
        page.shot(f"revoked-{scheme}-{size[0]}")
        assert page.faults() == []


def test_in_development_mode_nothing_is_asked(page: ConsolePage) -> None:
    page.open("#/settings", "document.querySelector('main table')")
    assert page.run("document.querySelector('#caller').innerText") == "development mode"
    assert page.run("sessionStorage.length") == 0


def test_a_foreign_page_reads_and_frames_nothing(browser: Browser, site: ConsoleSite) -> None:
    with pages() as port, browser.page(f"http://{FOREIGN}:{port}/") as stranger:
        for path in ("/console/api/v1/caller", "/console/api/v1/jobs", "/console/static/app.js"):
            seen = stranger.run(f"fetch('{site.url}{path}').then(one => one.text()).catch(() => 'blocked')")
            assert seen == "blocked", path
        framed = stranger.run(
            "new Promise(tell => { const frame = document.createElement('iframe');"
            f"frame.src = '{site.url}/console'; frame.onload = () => {{ try {{ tell(frame.contentDocument === null ?"
            " 'another origin' : 'blank') } catch { tell('another origin') } }; document.body.append(frame); })"
        )
        assert framed == "another origin"
        time.sleep(0.2)
        given = "{method: 'POST', mode: 'no-cors', body: JSON.stringify({kind: 'k', params: {}})}"
        stranger.run(f"fetch('{site.url}/console/api/v1/jobs', {given}).catch(() => 0)")
    assert site.client.get("/v1/jobs").json()["jobs"] == []
