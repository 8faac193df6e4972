"""Compare the digest of events with independent implementations on many random documents; exit 1 on any difference.

    python -m tests.events.rules.digest_check --documents 100000 --seed 1

One judge is rfc8785 with hashlib; the other is a JavaScript engine, whose numbers and whose order of names RFC 8785 is
defined by. Documents go through the same steps as those of a client: a message is parsed, its partitions normalized,
its event printed. Half of the documents are ordinary, so that the quick path is exercised as much as the slow one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import rfc8785

from semel.kernel.json.canonical import Json
from semel.kernel.json.number import print_double
from semel.kernel.json.parse import parse_marked
from semel.surfaces.events.limits import FRAME_LEVELS
from semel.surfaces.events.rules.event_log import digest, digest_of
from semel.surfaces.events.rules.partitions import checked
from tests.kernel.canonical_check import Author
from tests.official.test_official import find_node

NODE_SECONDS = 600
SCRIPT = """
const { createHash } = require("node:crypto");
const print = (value) => {
  if (Array.isArray(value)) return "[" + value.map(print).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return "{" + Object.keys(value).sort().map((name) => JSON.stringify(name) + ":" + print(value[name])).join(",") + "}";
};
const answer = (line) => {
  if (line.startsWith("#")) return JSON.stringify(Buffer.from(line.slice(1), "hex").readDoubleBE());
  return createHash("sha256").update(print(JSON.parse(line)), "utf8").digest("hex");
};
const lines = require("node:fs").readFileSync(0, "utf8").split("\\n").slice(0, -1);
process.stdout.write(lines.map((line) => answer(line) + "\\n").join(""));
"""


class Sample(NamedTuple):
    """An item as a client may write it, and the object that equality is about."""

    raw: bytes
    event: dict[str, Json]
    partitions: list[str]

    @property
    def line(self) -> str:
        """The object on one line, for the JavaScript engine."""
        return json.dumps({"event": self.event, "partitions": self.partitions}, separators=(",", ":"))


def sample(author: Author, odd: bool) -> Sample:
    """A random item: names in any order and any composition, an event of any content."""
    document = author.document(odd)
    event = {"type": "t", "payload": document, author.text(odd): author.leaf(odd)}
    names = [author.text(True) + letter for letter in author.random.choices(("a", "é", "e\u0301", "\ufb33"), k=3)]
    normalized = {unicodedata.normalize("NFC", name) for name in names}
    raw = author.write({"partitions": [*names], "event": event})
    return Sample(raw, event, sorted(normalized, key=str.encode))


def is_right(item: Sample, counts: Counter[str]) -> bool:
    """Whether both ways to the digest give what the independent library gives."""
    expected = hashlib.sha256(rfc8785.dumps({"event": item.event, "partitions": item.partitions})).digest()
    message, is_proved = parse_marked(item.raw, FRAME_LEVELS)
    assert isinstance(message, dict)
    names, event = message["partitions"], message["event"]
    assert isinstance(names, list)
    found = checked(tuple(str(name) for name in names))
    counts["quick" if is_proved else "slow"] += 1
    ways = {digest_of(found.text, event, is_proved=is_proved), digest(found.names, event)}
    return ways == {expected} and list(found.names) == item.partitions


def javascript(lines: Sequence[str]) -> list[str]:
    """What the JavaScript engine makes of each line: the digest of a document, or the text of a number."""
    node = find_node()
    given = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run(
        [node.node, "-e", SCRIPT], input=given, env=node.env, capture_output=True, timeout=NODE_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    answers = done.stdout.decode().split("\n")[:-1]
    assert len(answers) == len(lines)
    return answers


def check_library(documents: int, seed: int) -> Counter[str]:
    """Against the library."""
    author, counts = Author(seed), Counter[str]()
    for number in range(documents):
        if not is_right(sample(author, number % 2 == 0), counts):
            counts["different"] += 1
            print(f"different: document {number} of seed {seed}")
    return counts


def check_javascript(documents: int, numbers: int, seed: int) -> Counter[str]:
    """Against the JavaScript engine."""
    author, counts = Author(seed), Counter[str]()
    items = [sample(author, number % 2 == 0) for number in range(documents)]
    doubles = [author.any_double() for _ in range(numbers)]
    answers = javascript([item.line for item in items] + ["#" + struct.pack(">d", value).hex() for value in doubles])
    ours = [digest(item.partitions, item.event).hex() for item in items] + [print_double(value) for value in doubles]
    counts["documents in JavaScript"], counts["numbers in JavaScript"] = documents, numbers
    for number, (answer, own) in enumerate(zip(answers, ours, strict=True)):
        if answer != own:
            counts["different"] += 1
            print(f"different in JavaScript: {number} of seed {seed}: {answer}, not {own}")
    return counts


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    counts = check_library(asked.documents, asked.seed)
    counts += check_javascript(asked.documents, asked.documents, asked.seed + 1)
    for name in ("quick", "slow", "documents in JavaScript", "numbers in JavaScript", "different"):
        print(f"{name:24} {counts[name]:9,}")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
