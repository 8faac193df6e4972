"""The site is built without a warning, its links lead somewhere, and its pages ask no other host for anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.site.__main__ import own_version, write_versions
from docs.site.navigation import ABOVE, all_pages
from tests.docs.site import built, page
from tests.harness.chromium import running_browser

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the present version; it takes 12 s of CPU, so one build serves all tests."""
    return built(tmp_path_factory.mktemp("site"))


def test_every_page_has_one_place_in_the_navigation() -> None:
    named = [entry.path for entry in all_pages()]
    written = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")} - {"index"}
    assert sorted(named) == sorted(written | set(ABOVE))


def broken_links(root: Path) -> list[str]:
    """The links of a built site that lead to no page or to no anchor of one."""
    found = []
    for path in sorted(root.rglob("*.html")):
        for link in page(path).links:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.is_file() or (anchor and target.suffix == ".html" and anchor not in page(target).ids):
                found.append(f"{path.relative_to(root)}: {link}")
    return found


def outside_requests(root: Path) -> list[str]:
    """What the pages would load from another host."""
    found = []
    for path in sorted(root.rglob("*.html")):
        found += [f"{path.name}: {one}" for one in page(path).loads if re.match(r"(?:[a-z]+:)?//", one)]
    for path in sorted(root.rglob("*.css")):
        asked = re.findall(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", path.read_text("utf-8"))
        found += [f"{path.name}: {one}" for one in asked]
    for path in sorted(root.rglob("*.js")):
        asked = re.findall(
            r"(?:fetch|import|src\s*=|open)\s*\(?\s*[\"'`]((?:https?:)?//[^\"'`]+)", path.read_text("utf-8")
        )
        found += [f"{path.name}: {one}" for one in asked]
    return found


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 60
    assert broken_links(site) == []


def test_a_broken_link_and_a_broken_anchor_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there">1</a><a href="b.html#not">2</a><a href="c.html">3</a>')
    (tmp_path / "b.html").write_text('<p id="there">')
    assert broken_links(tmp_path) == ["a.html: b.html#not", "a.html: c.html"]


def test_pages_ask_no_other_host_for_anything(site: Path) -> None:
    assert outside_requests(site) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://unpkg.com/mermaid"></script>'),
        ("a.html", '<link rel="stylesheet" href="//fonts.googleapis.com/css">'),
        ("a.css", "@font-face { src: url(https://fonts.gstatic.com/x.woff2) }"),
        ("a.css", '@import "https://cdn.example/x.css";'),
        ("a.js", 'fetch("https://api.github.com/repos")'),
    ],
)
def test_a_request_to_another_host_is_noticed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert len(outside_requests(tmp_path)) == 1


def test_every_drawing_has_words_for_those_who_cannot_see_it(site: Path) -> None:
    assert [one for path in site.rglob("*.html") for one in page(path).images_without_words] == []


def test_the_site_can_be_searched(site: Path) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    assert [word for word in ("outbox", "leas", "replay", "once/tutorial") if word not in index] == []


def test_versions_lie_side_by_side_the_newest_first(tmp_path: Path) -> None:
    for version in ("0.1.0", "0.10.0", "0.9.1", "0.10.0rc1", "assets"):
        (tmp_path / version).mkdir()
    write_versions(tmp_path)
    assert json.loads((tmp_path / "versions.json").read_text()) == ["0.10.0", "0.10.0rc1", "0.9.1", "0.1.0"]
    assert 'url=0.10.0/"' in (tmp_path / "index.html").read_text()


def test_a_page_shows_its_version(site: Path) -> None:
    assert site.name == own_version()
    assert f'data-version="{own_version()}"' in (site / "guide/jobs.html").read_text("utf-8")
    assert json.loads((site.parent / "versions.json").read_text()) == [own_version()]


WRONG = re.compile(
    r"\b(?:SEMEL server|Semels|Postgres|Postgresql|Sqlite|Fastapi|Javascript|Github|Websocket|Kubernets)\b"
)
"""Product names as their makers do not write them."""


def test_products_are_spelled_as_their_makers_do() -> None:
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        words = re.sub(r"(?ms)^ *```.*?^ *```$|`[^`]*`|\]\([^)]*\)", "", path.read_text("utf-8"))
        found += [f"{path.relative_to(DOCS)}: {one}" for one in WRONG.findall(words)]
    assert found == []


def test_a_phone_shows_the_pages_without_scrolling_sideways_and_dark_is_dark(site: Path) -> None:
    with running_browser() as browser, browser.page((site / "index.html").as_uri()) as tab:
        tab.ask("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=1, mobile=True)
        for name in ("index", "tutorial", "reference/settings", "benchmarks"):
            tab.open((site / f"{name}.html").as_uri())
            assert tab.run("document.documentElement.scrollWidth") <= 375, name
        colours = []
        for scheme in ("light", "dark"):
            tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            drawing = "getComputedStyle(document.querySelector('.drawing')).getPropertyValue('--paper')"
            colours.append((tab.run("getComputedStyle(document.body).backgroundColor"), tab.run(drawing)))
        assert colours == [("rgb(255, 255, 255)", "#ffffff"), ("rgb(19, 20, 22)", "#131416")]
