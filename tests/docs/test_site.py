"""The site is built without a warning, its links lead somewhere, and its pages ask no other host for anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.site.__main__ import own_version, write_versions
from docs.site.navigation import ABOVE, all_pages
from docs.site.words import WORDS
from tests.docs.site import built, page
from tests.docs.site_browser import OLDER, SitePage, build_older_version, served, site_page
from tests.harness.chromium import running_browser
from tests.server.console.accessibility import check_accessibility
from tests.server.console.browser import PHONE, WIDE

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
    assert len(list(site.rglob("*.html"))) > 50
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
    assert [word for word in ("outbox", "leas", "replay", "once/transaction") if word not in index] == []


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


@pytest.fixture(scope="module")
def page_of(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SitePage]:
    """A tab with the site and an older version of it beside, served on loopback."""
    build_older_version(site.parent, tmp_path_factory.mktemp("older"))
    with served(site.parent) as base, running_browser() as browser, site_page(browser, base) as tab:
        yield tab


@pytest.fixture
def tab(page_of: SitePage) -> Iterator[SitePage]:
    page_of.size(*WIDE)
    page_of.colours("light")
    yield page_of
    assert page_of.faults() == []


UNREADABLE = """[...document.querySelectorAll('svg.drawing')].flatMap(drawing => {
  const paper = drawing.getBoundingClientRect();
  const boxes = [...drawing.querySelectorAll('text')].map(one => [one.textContent, one.getBoundingClientRect()]);
  const cut = boxes.filter(([, box]) => box.left < paper.left || box.right > paper.right || box.top < paper.top
    || box.bottom > paper.bottom).map(([words]) => 'cut: ' + words);
  const overlaid = boxes.flatMap(([words, box], place) => boxes.slice(place + 1).filter(([, other]) =>
    Math.min(box.right, other.right) - Math.max(box.left, other.left) > 1
    && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 4).map(([more]) => words + ' on ' + more));
  return [...cut, ...overlaid];
})"""
"""The words of drawings that lie on one another or beyond the edge; letters leave some room above and below them."""


def test_every_page_of_the_navigation_opens_without_a_fault_and_fits_a_phone(tab: SitePage) -> None:
    tab.open(f"{own_version()}/index.html")
    paths = tab.run("[...document.querySelectorAll('.sidebar-tree a')].map(one => new URL(one.href).pathname.slice(1))")
    assert len(set(paths)) == len(list(all_pages()))
    tab.size(*PHONE)
    for path in [f"{own_version()}/index.html", *paths]:
        tab.open(path)
        assert not tab.is_too_wide(), path
        assert tab.run(UNREADABLE) == [], path


KINDS = ("index", "tutorial/server", "guide/streams", "concepts", "reference/errors", "comparison", "search")
"""One page of each kind: with a drawing, with commands, a guide, a concept, tables, pictures, the search."""


@pytest.mark.parametrize("name", KINDS)
def test_a_page_can_be_used_by_everyone(tab: SitePage, name: str) -> None:
    tab.open(f"{own_version()}/{name}.html")
    for scheme, size in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        tab.colours(scheme)
        tab.size(*size)
        check_accessibility(tab)
        assert not tab.is_too_wide()
        tab.shot(f"site-{Path(name).name}-{scheme}-{size[0]}")


FIRST = {
    "connection pool": "operating/postgres",
    "rate limit": "operating/running",
    "last writer wins": "guide/deltas",
    "leader election": "operating/postgres",
    "exactly once": "concepts",
    "idempotency key": "concepts",
}
"""What a newcomer searches for, and the page that says it."""


@pytest.mark.parametrize(("words", "path"), FIRST.items(), ids=list(FIRST))
def test_a_search_finds_the_page_first(tab: SitePage, words: str, path: str) -> None:
    tab.open(f"{own_version()}/tutorial/server.html")
    assert tab.search(words) == f"/{own_version()}/{path}.html"


def test_every_word_of_the_index_leads_first_to_its_page(tab: SitePage) -> None:
    assert set(WORDS) <= {entry.path for entry in all_pages()}
    tab.open(f"{own_version()}/search.html", "Search._index")
    found = "Search._performSearch(...Search._parseQuery({})).at(-1)[0]"
    led = {word: tab.run(found.format(json.dumps(word))) for words in WORDS.values() for word in words}
    assert led == {word: path for path, words in WORDS.items() for word in words}


def test_the_switch_of_colours_makes_pages_and_drawings_dark(tab: SitePage) -> None:
    tab.open(f"{own_version()}/index.html")
    paper = "getComputedStyle(document.querySelector('.drawing')).getPropertyValue('--paper')"
    colours = f"[getComputedStyle(document.body).backgroundColor, {paper}]"
    light, dark = ["rgb(255, 255, 255)", "#ffffff"], ["rgb(19, 20, 22)", "#131416"]
    assert tab.run(colours) == light
    tab.press_mouse(".content-icon-container .theme-toggle")
    shown = [tab.run(colours)]
    tab.press_mouse(".content-icon-container .theme-toggle")
    shown.append(tab.run(colours))
    assert dark in shown
    tab.run("localStorage.clear()")
    tab.colours("dark")
    tab.open(f"{own_version()}/tutorial/server.html")
    tab.open(f"{own_version()}/index.html")
    assert tab.run(colours) == dark


@pytest.mark.parametrize(
    ("start", "page_there"),
    [
        ("tutorial/server.html#kill-the-server", "tutorial/server.html#kill-the-server"),
        ("comparison.html", ""),
        ("guide/jobs.html", ""),
    ],
)
def test_the_switch_of_versions_leads_to_the_same_page_or_to_the_first(
    tab: SitePage, start: str, page_there: str
) -> None:
    tab.open(f"{own_version()}/{start}", "document.querySelector('.versions summary')")
    assert tab.run("document.querySelector('.versions summary').innerText") == f"Version {own_version()}"
    tab.press_mouse(".versions summary")
    tab.wait("document.querySelector('.versions details').open")
    assert tab.run("document.querySelector('.versions ul').innerText.split('\\n')") == [own_version(), OLDER]
    tab.press_mouse(".versions li:last-child a")
    tab.wait(f"location.href === '{tab.base}/{OLDER}/{page_there}' && document.querySelector('.versions summary')")
    assert tab.run("document.querySelector('.versions').dataset.version") == OLDER
    tab.press_mouse(".versions summary")
    tab.press_mouse(".versions li:first-child a")
    tab.wait(f"location.href === '{tab.base}/{own_version()}/{page_there}'")


def test_the_address_of_the_site_leads_to_the_newest_version(tab: SitePage) -> None:
    tab.run(f"location.href = '{tab.base}/'")
    tab.wait(f"location.href === '{tab.base}/{own_version()}/' && document.querySelector('.sidebar-tree')")
