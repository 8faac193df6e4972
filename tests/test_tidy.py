"""The repository is tidy: rules about files, lines and modules that no linter checks in the same words.

To add a rule, add a row to LINES (a pattern no line may match) or a function to SYNTAX (what it yields is
a fault). Patterns are written so that they do not match themselves.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from semel.server.ops.self_check import OLDEST_PYTHON
from tests.size import code_lines, sizes

ROOT = Path(__file__).parent.parent
FILE_BYTES = 1_000_000
MODULE_LINES = 700
FUNCTION_LINES = 60
NAMES_THAT_SAY_NOTHING = {"manager", "managers", "helper", "helpers", "util", "utils"}

CEILINGS: Mapping[str, int] = {
    "lines of code of src": 82_500,
    "files of src": 767,
    "lines of code of tests": 127_600,
    "pages of docs": 42,
    "words of docs": 139_500,
    "words of docs that people write": 92_000,
    "lines of bench": 5_000,
    "commands": 89,
    "settings": 138,
    "metrics": 108,
    "tables": 71,
}
"""What the project may grow to, as `python -m tests.size` counts it. A change that needs more raises a number here in
the same commit, and says in its body what the reader gets for it. A change that needs less lowers it."""

SUBJECT_CHARACTERS = 72
SUBJECTS_SINCE = "7b41c1fc875add139deafb83c66f64a002235634"
"""The last commit before the rule: the subjects of later commits are checked."""

BARE = re.compile(r"\bexcept[\s\\]*:")
"""What a module with an `except` that names no exception has in its text: most need not be parsed."""


@cache
def files() -> tuple[Path, ...]:
    """Every file that git tracks: what a run of the program leaves in the folder is no part of the repository."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout
    paths = [Path(name) for name in sorted(set(listed.split("\0"))) if name]
    return tuple(path for path in paths if (ROOT / path).is_file())


@cache
def text_of(path: Path) -> str:
    """The text of a file; empty for one that is not text."""
    content = (ROOT / path).read_bytes()
    return "" if b"\0" in content else content.decode()


@dataclass(frozen=True)
class Shape:
    """What rules ask of a module's syntax. The tree is not kept: those of all modules take hundreds of megabytes."""

    has_docstring: bool
    functions: tuple[tuple[int, str, int], ...]
    """Line, name and number of lines of each function."""
    classes: tuple[tuple[int, str], ...]
    prints: tuple[int, ...]
    bare_excepts: tuple[int, ...]


@cache
def shape_of(path: Path) -> Shape:
    tree = ast.parse(text_of(path), filename=str(path))
    functions, classes, prints, bare = [], [], [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
        elif isinstance(node, ast.ClassDef):
            classes.append((node.lineno, node.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            prints.append(node.lineno)
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            bare.append(node.lineno)
    return Shape(bool(ast.get_docstring(tree)), tuple(functions), tuple(classes), tuple(prints), tuple(bare))


def within(folder: str, suffix: str = "") -> list[Path]:
    return [path for path in files() if path.is_relative_to(folder) and path.name.endswith(suffix)]


def test_git_lists_the_repository() -> None:
    assert Path("pyproject.toml") in files()
    assert within("src", ".py")


@dataclass(frozen=True)
class Lines:
    """A pattern that no line of the named files may match, and the files it leaves alone."""

    name: str
    pattern: str
    suffix: str = ""
    folder: str = ""
    but: tuple[str, ...] = ()


LOCKS = ("package-lock.json", "requirements.lock", "requirements-dev.lock")
LINES = (
    Lines("no work left undone", r"\b(?:TO[D]O|FIX[M]E|XX[X])\b", but=LOCKS),
    Lines("no trailing whitespace", r"[ \t]+$"),
    Lines("no merge left undone", r"^(?:<{7} |={7}$|>{7} )"),
    Lines("no tabs", r"\t", but=("Makefile",)),
    Lines("no carriage returns", r"\r"),
    Lines("no paths of one machine", r"(?<![\w.}/-])/(?:wor[k]|roo[t])(?![\w-])", but=LOCKS),
    Lines("no debugger, not even commented out", r"\b(?:pd[b]|breakpoin[t]\()", suffix=".py"),
    Lines("a type ignore names its error", r"type:\s*ignor[e](?!\[)", suffix=".py"),
    Lines("a noqa names its rule", r"#\s*noq[a](?!:)", suffix=".py"),
    Lines(
        "no test is skipped",
        r"mark\.ski[p]|mark\.xfai[l]|pytest\.(?:ski[p]|xfai[l]|importorski[p])\b",
        folder="tests",
    ),
    Lines("lock files name no index", r"://|--(?:extra-)?index|--find-links", suffix=".lock"),
    Lines("package locks name no registry", r'"resolve[d]"', suffix="package-lock.json"),
)


@pytest.mark.parametrize("rule", LINES, ids=lambda rule: rule.name)
def test_lines(rule: Lines) -> None:
    pattern = re.compile(rule.pattern)
    faults = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path in within(rule.folder, rule.suffix)
        if path.name not in rule.but
        for number, line in enumerate(text_of(path).split("\n"), start=1)
        if pattern.search(line)
    ]
    assert not faults, "\n".join(faults)


def lacks_docstring(path: Path) -> Iterator[str]:
    if path.is_relative_to("src") and not shape_of(path).has_docstring:
        yield f"{path}: the module has no docstring"


def long_module(path: Path) -> Iterator[str]:
    lines = text_of(path).count("\n")
    if path.is_relative_to("src") and lines > MODULE_LINES:
        yield f"{path}: {lines} lines"


def long_function(path: Path) -> Iterator[str]:
    if path.is_relative_to("src"):
        for line, name, lines in shape_of(path).functions:
            if lines > FUNCTION_LINES:
                yield f"{path}:{line}: {name} has {lines} lines"


def prints(path: Path) -> Iterator[str]:
    if path.is_relative_to("src") and not path.is_relative_to("src/semel/cli"):
        yield from (f"{path}:{line}: print outside the command" for line in shape_of(path).prints)


def bare_except(path: Path) -> Iterator[str]:
    if BARE.search(text_of(path)):
        yield from (f"{path}:{line}: an except that names no exception" for line in shape_of(path).bare_excepts)


def name_that_says_nothing(path: Path) -> Iterator[str]:
    words = {word for part in path.with_suffix("").parts for word in part.lower().split("_")}
    for word in sorted(words & NAMES_THAT_SAY_NOTHING):
        yield f"{path}: {word} does not say what the module is"


SYNTAX: tuple[Callable[[Path], Iterator[str]], ...] = (
    lacks_docstring,
    long_module,
    long_function,
    prints,
    bare_except,
    name_that_says_nothing,
)


@pytest.mark.parametrize("rule", SYNTAX, ids=lambda rule: rule.__name__)
def test_syntax(rule: Callable[[Path], Iterator[str]]) -> None:
    faults = [fault for path in within("", ".py") for fault in rule(path)]
    assert not faults, "\n".join(faults)


def sources() -> list[Path]:
    """The modules of `src` that people write: generated code is left out."""
    return [path for path in within("src", ".py") if not path.stem.endswith("_pb2")]


SAME_IN_BOTH_LIBRARIES = {"OutcomeUnknown"}
"""`semel.once` and `semel.client` tell the same of a key and of a write; a program imports it from the one it uses."""


def test_class_names_are_unique_in_src() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources():
        for line, name in shape_of(path).classes:
            places[name].append(f"{path}:{line}")
    faults = [
        f"{name}: {', '.join(found)}"
        for name, found in sorted(places.items())
        if len(found) > 1 and name not in SAME_IN_BOTH_LIBRARIES
    ]
    assert not faults, f"{len(faults)} class names are used more than once:\n" + "\n".join(faults)


def bad_subjects(log: str) -> Iterator[str]:
    """Of lines `hash subject`, those whose subject is too long or ends in a full stop."""
    for line in log.splitlines():
        subject = line.partition(" ")[2]
        if len(subject) > SUBJECT_CHARACTERS:
            yield f"{line} ({len(subject)} characters, at most {SUBJECT_CHARACTERS})"
        if subject.endswith("."):
            yield f"{line} (ends in a full stop)"


def test_commit_subjects_are_short() -> None:
    if not (ROOT / ".git").exists():  # an export of the source has no history, and CI always has one
        needs_history = os.environ.get("CI") or os.environ.get("NEEDS_HISTORY")
        assert not needs_history, "CI has to run in a clone, so that the commit subjects can be checked"
        return
    command = ["git", "log", "--format=%h %s", f"{SUBJECTS_SINCE}..HEAD"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"the history does not reach back to {SUBJECTS_SINCE[:7]}: {done.stderr}"
    faults = [*bad_subjects(done.stdout)]
    assert not faults, "\n".join(faults)


def test_a_long_subject_and_one_with_a_full_stop_are_found() -> None:
    assert not [*bad_subjects(f"abc1234 {'x' * SUBJECT_CHARACTERS}")]
    assert len([*bad_subjects(f"abc1234 {'x' * SUBJECT_CHARACTERS}y\nabc1234 Mend it.")]) == 2


def test_files_end_with_one_newline() -> None:
    texts = {path: text_of(path) for path in files()}
    assert not [str(path) for path, text in texts.items() if text and not re.search(r"[^\n]\n\Z", text)]


def test_files_are_small() -> None:
    assert not [str(path) for path in files() if (ROOT / path).stat().st_size > FILE_BYTES]


def test_every_dependency_is_explained() -> None:
    """A name has its reason beside it, where the package is named first."""
    lines = re.findall(r'^  "([\w.-]+)[^"]*",(?:  # (\S.*))?$', text_of(Path("pyproject.toml")), re.MULTILINE)
    reasons = dict(reversed(lines))
    names = {re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in requirements()} - {"semel"}
    assert sorted(name for name in names if not reasons.get(name)) == []


def requirements() -> list[str]:
    """Every requirement of `pyproject.toml`, in all extras and for the build."""
    project = tomllib.loads(text_of(Path("pyproject.toml")))
    extras = project["project"]["optional-dependencies"].values()
    return [*project["build-system"]["requires"], *(one for extra in extras for one in extra)]


def test_a_package_has_the_same_bounds_wherever_it_is_named() -> None:
    bounds = defaultdict(set)
    for requirement in requirements():
        name, bound = re.split(r"(?=[^\w.-])", requirement, maxsplit=1)
        bounds[name].add(bound)
    assert not {name: found for name, found in bounds.items() if len(found) > 1}


def test_no_requirement_has_an_upper_bound() -> None:
    assert [one for one in requirements() if "<" in one.partition(";")[0]] == []


def test_the_oldest_python_is_the_same_everywhere() -> None:
    project = tomllib.loads(text_of(Path("pyproject.toml")))
    oldest = project["project"]["requires-python"].removeprefix(">=")
    versions = re.findall(r"Python :: (\d+\.\d+)", " ".join(project["project"]["classifiers"]))
    assert versions[0] == oldest
    assert project["tool"]["mypy"]["python_version"] == oldest
    assert "target-version" not in project["tool"]["ruff"]  # ruff reads requires-python
    assert tuple(map(int, oldest.split("."))) == OLDEST_PYTHON
    for page in ("README.md", "CONTRIBUTING.md", "docs/tutorial/library.md", "docs/tutorial/server.md"):
        named = set(re.findall(r"Python (\d+\.\d+) (?:or|and) later", text_of(Path(page))))
        assert named <= {oldest}, page
    assert oldest not in text_of(Path("Makefile"))


def test_every_make_target_has_a_help_text() -> None:
    makefile = text_of(Path("Makefile"))
    [targets] = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    rules = re.findall(r"^([a-z][\w-]*):(?!=)(.*)$", makefile, re.MULTILINE)
    assert targets.split() == [name for name, _ in rules]
    assert not [name for name, rest in rules if not re.search(r"## \S", rest)]


def test_the_project_is_not_larger_than_its_ceilings() -> None:
    found = sizes()
    over = [f"{name}: {found[name]:,}, at most {most:,}" for name, most in CEILINGS.items() if found[name] > most]
    assert not over, "\n".join(over)


def test_a_line_of_code_is_neither_blank_nor_a_comment_nor_a_docstring() -> None:
    text = '''"""A module.

Two lines.
"""

# why
LIMIT = 1  # counted
"""An attribute."""


def double(number):
    """A function."""
    return """
    text
    """ * number
'''
    assert code_lines(text) == 5
