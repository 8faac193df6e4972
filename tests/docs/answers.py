"""What a page shows, held against what came out.

What differs from run to run is recognised by its shape, in text and in JSON alike. An id that the page shows twice must
come twice, and two ids must not be one. A line `...` stands for any lines, `...` in a line for any characters, and in
JSON for any members or any value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

LEFT_OUT = "..."


class Shape(NamedTuple):
    """One kind of value that differs from run to run."""

    name: str
    shown: str
    """Its pattern in a page."""
    real: str = ""
    """The pattern of what may stand for it, if it is another one; `{n}` is as long as what is shown."""
    is_remembered: bool = False
    """Whether the same shown value is always the same real one."""
    is_own: bool = False
    """Whether different shown values are different real ones."""


_ENDS = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?"
_ZONE = r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?"
_HTTP_DATE = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_BASE64 = r"(?:[A-Za-z0-9+/]{4}){2,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)(?!=)"
_TOKEN = r"(?=[\w-]*?\d)(?=[\w-]*?[a-z])(?=[\w-]*?[A-Z])[A-Za-z0-9_-]{20,}"
_HEX = "(?=[0-9a-f]*?[0-9])(?=[0-9a-f]*?[a-f])[0-9a-f]{8,}"
_NUMBER = r"\d+(?:[.,]\d+)*"
_UNITS = r"(?= ?(?:ns|µs|us|ms|s|min|h|seconds?|minutes?|hours?|days?)\b)"
_SIZES = r"(?= ?(?:bytes?|[kKMG]i?B|B)\b)"

SHAPES = (
    Shape("instant to the millisecond", rf"{_DATE}[T ]\d\d:\d\d:\d\d[.,]\d+{_ZONE}", is_remembered=True),
    Shape("instant", rf"{_DATE}[T ]{_TIME}{_ZONE}|{_HTTP_DATE}"),
    Shape("instant in a name", _ENDS.format(r"\d{8}T\d{6}Z"), r"\d{8}T\d{6}Z", is_remembered=True),
    Shape("day", _ENDS.format(_DATE)),
    Shape("time", _ENDS.format(r"\d\d:\d\d:\d\d(?:[.,]\d+)?")),
    Shape("UUID", _ENDS.format(_UUID), _UUID, is_remembered=True, is_own=True),
    Shape("base64", rf"(?<![A-Za-z0-9+/]){_BASE64}", r"[A-Za-z0-9+/]{4,}={0,2}", is_remembered=True),
    Shape("hash", _ENDS.format(_HEX), "[0-9a-f]{n}", is_remembered=True, is_own=True),
    Shape("token", rf"(?<![\w-]){_TOKEN}(?![\w-])", r"[A-Za-z0-9_-]{16,}", is_remembered=True, is_own=True),
    Shape("long number", r"(?<!\d{16}_)(?<![A-Za-z0-9])\d{13,}(?![A-Za-z0-9]|_\d{16})", r"\d{10,}", is_remembered=True),
    Shape("seconds since 1970", _ENDS.format(r"\d{10}(?:\.\d+)?"), r"\d{10}(?:\.\d+)?"),
    Shape("address", _ENDS.format(r"\d{1,3}(?:\.\d{1,3}){3}")),
    Shape("port", r"(?<=:)\d{4,5}\b", r"\d{2,5}"),
    Shape("process", r"(?<=process )\d+\b", r"\d+"),
    Shape("size", _ENDS.format(_NUMBER) + _SIZES, _NUMBER),
    Shape("duration", r"(?<![A-Za-z0-9])" + _NUMBER + _UNITS, _NUMBER),
    Shape("measure", _ENDS.format(r"\d+\.\d{3,}"), r"\d+(?:\.\d+)?(?:e-\d+)?"),
)
_ANY = re.compile("|".join(f"({shape.shown})" for shape in SHAPES))
_MEASURED = {
    *("age", "bytes", "cpu", "disk", "duration", "elapsed", "free", "lag", "latency", "memory", "pid", "port", "rss"),
    *("size", "took", "uptime"),
}
"""Words in the names of JSON members whose numbers are measured."""
Known = Mapping[str, str]
"""What came out, by what the page shows for it."""


class _Value(NamedTuple):
    """A piece of a shown text that may differ."""

    shape: Shape
    shown: str

    @property
    def pattern(self) -> str:
        """What may stand for it."""
        return (self.shape.real or self.shape.shown).replace("{n}", f"{{{len(self.shown)}}}")


def values(text: str) -> Iterator[tuple[Shape, str]]:
    """The values in a text that may differ, each with its shape."""
    for found in _ANY.finditer(text):
        assert found.lastindex is not None
        yield SHAPES[found.lastindex - 1], found[0]


def put_in(text: str, known: Known) -> str:
    """A text with the real values instead of those that the page shows."""
    changed = {shown: real for shown, real in known.items() if shown != real}
    if not changed:
        return text
    longest_first = sorted(changed, key=len, reverse=True)
    pattern = rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])"
    return re.sub(pattern, lambda found: changed[found[0]], text)


def compared(shown: str, said: str, known: Known, *, is_open: bool = False) -> dict[str, str] | None:
    """What is known after an answer that is as it is shown; None for another one.

    An open answer may have more lines before and after those that are shown.
    """
    before, after = _elements(shown), _elements(said)
    if before and isinstance(before[0], str) and before[0].startswith("HTTP/"):
        found = _head(before, after, known)
        if found is None:
            return None
        known, before, after = found
    return _sequence([LEFT_OUT, *before, LEFT_OUT] if is_open else before, after, dict(known))


def _head(shown: list[Any], said: list[Any], known: Known) -> tuple[dict[str, str], list[Any], list[Any]] | None:
    """Compare the heads of an answer, where headers may be left out; what is known then, and both bodies."""
    ours, rest = _cut(shown)
    theirs, body = _cut(said)
    learnt: dict[str, str] | None = dict(known)
    for line in ours:
        if line != LEFT_OUT:
            pairs = (_text(str(line), str(one), learnt or {}) for one in theirs)
            learnt = next((pair for pair in pairs if pair is not None), None)
        if learnt is None:
            return None
    return learnt or {}, rest, body


def _cut(elements: list[Any]) -> tuple[list[Any], list[Any]]:
    """The lines before the first empty one, and those after it."""
    place = elements.index("") if "" in elements else len(elements)
    return elements[:place], elements[place + 1 :]


def _elements(text: str) -> list[Any]:
    """The lines of a text; lines that together are JSON are one element, a list or a dictionary."""
    lines = [line.rstrip() for line in text.replace("\r", "").strip("\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    found: list[Any] = []
    place = 0
    while place < len(lines):
        end = _json_end(lines, place)
        line = LEFT_OUT if lines[place].strip() == LEFT_OUT else lines[place]
        found.append(line if end is None else parsed("\n".join(lines[place:end])))
        place = place + 1 if end is None else end
    return found


def _json_end(lines: list[str], place: int) -> int | None:
    """Behind the line where JSON that begins at a line ends; None if none does."""
    opening = lines[place].lstrip()[:1]
    if opening not in ("{", "["):
        return None
    closing = "}" if opening == "{" else "]"
    for end in range(place + 1, len(lines) + 1):
        if lines[end - 1].endswith(closing) and (end == place + 1 or lines[end - 1][:-1].strip() == ""):
            try:
                parsed("\n".join(lines[place:end]))
            except ValueError:
                continue
            return end
    return None


def parsed(text: str) -> Any:
    """JSON in which `...` stands for what is not shown."""
    strings: list[str] = []

    def kept(found: re.Match[str]) -> str:
        strings.append(found[0])
        return f'"{len(strings) - 1}"'

    bare = re.sub(r'"(?:[^"\\]|\\.)*"', kept, text)
    bare = re.sub(r"([{,]\s*)\.\.\.(?=\s*[,}])", r'\1"...":0', _list_members(bare))
    bare = re.sub(r"(:\s*)\.\.\.(?=\s*[,}\]])", r'\1"..."', bare)
    return json.loads(re.sub(r'"(\d+)"', lambda found: strings[int(found[1])], bare))


def _list_members(bare: str) -> str:
    """Write each `...` that stands in a list, and not in an object, as a string."""
    out, open_ones = [], []
    for part in re.split(r"([{}\[\]]|\.\.\.)", bare):
        if part in ("{", "["):
            open_ones.append(part)
        elif part in ("}", "]") and open_ones:
            open_ones.pop()
        is_in_list = part == LEFT_OUT and bool(open_ones) and open_ones[-1] == "["
        out.append(f'"{LEFT_OUT}"' if is_in_list else part)
    return "".join(out)


def _sequence(shown: list[Any], said: list[Any], known: dict[str, str]) -> dict[str, str] | None:
    """Compare elements or members in their order; `...` stands for any number of them."""
    for place, one in enumerate(shown):
        if one == LEFT_OUT:
            rests = (_sequence(shown[place + 1 :], said[after:], known) for after in range(place, len(said) + 1))
            return next((rest for rest in rests if rest is not None), None)
        learnt = _value(one, said[place], known) if place < len(said) else None
        if learnt is None:
            return None
        known = learnt
    return known if len(shown) == len(said) else None


def _value(shown: Any, said: Any, known: dict[str, str], name: str = "") -> dict[str, str] | None:
    """Compare two values of JSON, or two lines."""
    if shown == LEFT_OUT:
        return known
    if isinstance(shown, dict) and isinstance(said, dict):
        return _members(shown, said, known)
    if isinstance(shown, list) and isinstance(said, list):
        return _sequence(shown, said, known)
    if isinstance(shown, str) and isinstance(said, str):
        return _text(shown, said, known)
    are_numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (shown, said))
    if are_numbers:
        if shown == said or _MEASURED & set(re.findall("[a-z]+", re.sub("(?=[A-Z])", " ", name).lower())):
            return known
        return _text(str(shown), str(said), known)
    return known if type(shown) is type(said) and shown == said else None


def _members(shown: dict[str, Any], said: dict[str, Any], known: dict[str, str]) -> dict[str, str] | None:
    names = {put_in(name, known): name for name in shown.keys() - {LEFT_OUT}}
    are_all = names.keys() <= said.keys() if LEFT_OUT in shown else names.keys() == said.keys()
    learnt: dict[str, str] | None = known if are_all else None
    for real, name in names.items():
        if learnt is None:
            return None
        learnt = _value(shown[name], said[real], learnt, name)
    return learnt


def _text(shown: str, said: str, known: dict[str, str]) -> dict[str, str] | None:
    """Compare two texts of one line; runs of spaces are one space, but for the indent."""
    shown, said = _spaced(shown), _spaced(said)
    if shown == said:
        return _learnt([(shape, value, value) for shape, value in values(shown)], known)
    with_json = _line_with_json(shown, said)
    if with_json is not None:
        learnt = _text(with_json[0], with_json[1], known)
        return None if learnt is None else _value(with_json[2], with_json[3], learnt)
    pieces = list(_pieces(shown))
    pattern = "".join(f"({one.pattern})" if isinstance(one, _Value) else _literal(one) for one in pieces)
    found = re.fullmatch(pattern, said, re.DOTALL)
    if not found:
        return None
    differing = [one for one in pieces if isinstance(one, _Value)]
    triples = ((one.shape, one.shown, real) for one, real in zip(differing, found.groups(), strict=True))
    return _learnt(triples, known)


def _learnt(triples: Iterable[tuple[Shape, str, str]], known: Known) -> dict[str, str] | None:
    """What is known with further values; None if one were two, or two were one."""
    found = dict(known)
    for shape, shown, real in triples:
        if shape.is_remembered and found.setdefault(shown, real) != real:
            return None
        if shape.is_own and any(other != shown and value == real for other, value in found.items()):
            return None
    return found


def _spaced(text: str) -> str:
    indent = len(text) - len(text.lstrip(" "))
    return text[:indent] + re.sub(" {2,}", " ", text[indent:]).rstrip()


def _line_with_json(shown: str, said: str) -> tuple[str, str, Any, Any] | None:
    """The words before JSON at the end of both lines, and the JSON of both; None if there is none."""
    place = re.search(r"[{\[]", shown)
    if place is None or place.start() == 0 or shown[-1] not in "}]":
        return None
    other = said.find(place[0])
    try:
        ours, theirs = parsed(shown[place.start() :]), json.loads(said[other:]) if other > 0 else None
    except ValueError:
        return None
    return None if theirs is None else (shown[: place.start()], said[:other], ours, theirs)


def _pieces(text: str) -> Iterator[str | _Value]:
    """A text, cut into words and values."""
    end = 0
    for found in _ANY.finditer(text):
        assert found.lastindex is not None
        yield text[end : found.start()]
        yield _Value(SHAPES[found.lastindex - 1], found[0])
        end = found.end()
    yield text[end:]


def _literal(text: str) -> str:
    return ".*?".join(re.escape(part) for part in text.split(LEFT_OUT))
