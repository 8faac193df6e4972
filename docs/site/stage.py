"""Turns the Markdown of the repository into the Markdown that the site is built from.

The pages of `docs` are plain Markdown for a forge. For the site, links to files beside `docs` lead to pages that show
these files, and SVG drawings are put into the page so that they follow its light or dark colours.
Pictures (WebP) are copied.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docs.site.inline import inline
from docs.site.navigation import ABOVE, toctrees
from docs.site.words import with_words

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
LARGEST_SHOWN = 65_536
"""Bytes of a file that is shown; a larger one is named."""
LANGUAGES = {
    ".ini": "ini", ".json": "json", ".md": "markdown", ".proto": "protobuf", ".py": "python", ".service": "ini",
    ".sh": "bash", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip

_FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2$\n?", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^ *<!--.*?-->$\n?", re.MULTILINE | re.DOTALL)
"""Marks, and what the tests of a page run and its reader does not see."""
_LINK = re.compile(r"(?<!!)(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_PICTURE = re.compile(r"^!\[[^\]]*\]\(([^)\s]+\.webp)\)$", re.MULTILINE)
_DRAWING = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.svg)\)$", re.MULTILINE)


class Stage:
    """Collects the pages of the site; what they link to outside `docs` is added."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        """Text by path below the source folder."""
        self.pictures: dict[str, Path] = {}
        """Files of pictures, which Sphinx copies, by path below the source folder."""

    def collect(self) -> None:
        """Every page, and every file that a page links to."""
        for path in sorted(DOCS.rglob("*.md")):
            self._add(str(path.relative_to(DOCS)), path)
        for name, file in ABOVE.items():
            self._add(f"{name}.md", ROOT / file)
        self.pages["index.md"] += f"\n{toctrees()}"

    def write(self, folder: Path) -> None:
        """Write the pages; one that did not change keeps its time, so that Sphinx need not read it again."""
        for name, text in self.pages.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text("utf-8") != text:
                path.write_text(text, "utf-8")
        for name, picture in self.pictures.items():
            shutil.copyfile(picture, folder / name)
        for path in folder.rglob("*.md"):
            if str(path.relative_to(folder)) not in self.pages:
                path.unlink()

    def _add(self, name: str, path: Path) -> None:
        self.pages[name] = ""  # so that a page that leads to itself ends
        self.pages[name] = with_words("".join(self._pieces(path, name)), name.removesuffix(".md"))

    def _pieces(self, path: Path, name: str) -> Iterator[str]:
        """A page in pieces: its prose with links changed, and its code blocks."""
        text, end = path.read_text("utf-8"), 0
        for found in _FENCE.finditer(text):
            yield self._prose(text[end : found.start()], path, name)
            yield self._block(found)
            end = found.end()
        yield self._prose(text[end:], path, name)

    def _block(self, found: re.Match[str]) -> str:
        indent, fence, language, body = found.groups()
        if language == "json" and not _is_json(body):
            language = "text"
        return f"{indent}{fence}{language or 'text'}\n{body}{indent}{fence}\n"

    def _prose(self, text: str, path: Path, name: str) -> str:
        for found in _PICTURE.finditer(text):
            self.pictures[os.path.normpath(Path(name).parent / found[1])] = path.parent / found[1]
        shown = _COMMENT.sub("", text)
        shown = _DRAWING.sub(lambda found: inline((path.parent / found[2]).read_text("utf-8"), found[1]), shown)
        return _LINK.sub(lambda found: f"{found[1]}({self._target(found[2], path, name)})", shown)

    def _target(self, link: str, path: Path, name: str) -> str:
        """Where a link of a page leads on the site."""
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            return link
        file, _, anchor = link.partition("#")
        target = Path(os.path.normpath(path.parent / file))
        page = self._page_of(target)
        here = os.path.relpath(page, Path(name).parent)
        return f"{here}#{anchor}" if anchor else here

    def _page_of(self, target: Path) -> str:
        """The page of the site for a file of the repository."""
        if target.is_relative_to(DOCS) and target.suffix == ".md":
            return str(target.relative_to(DOCS))
        own = str(target.relative_to(ROOT))
        if own == "README.md":
            return "index.md"
        for name, file in ABOVE.items():
            if own == file:
                return f"{name}.md"
        page = f"files/{own}.md"
        if page not in self.pages:
            self.pages[page] = file_page(target)
        return page


def file_page(target: Path) -> str:
    """A page that shows a file of the repository, or all files of a folder."""
    files = sorted(path for path in target.rglob("*") if path.is_file()) if target.is_dir() else [target]
    parts = [f"---\norphan: true\nno-search: true\n---\n\n# {target.relative_to(ROOT)}\n"]
    for path in files:
        if "__pycache__" not in path.parts:
            heading = f"## {path.relative_to(target)}\n\n" if target.is_dir() else ""
            parts.append(heading + _shown_file(path))
    return "\n".join(parts)


def _shown_file(path: Path) -> str:
    if path.stat().st_size > LARGEST_SHOWN:
        return f"{path.stat().st_size // 1024} KiB; see the file in the repository.\n"
    language = "docker" if path.name == "Dockerfile" else LANGUAGES.get(path.suffix, "text")
    text = path.read_text("utf-8")
    if language == "json" and not _is_json(text):
        language = "text"
    return f"``````{language}\n{text.rstrip()}\n``````\n"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
