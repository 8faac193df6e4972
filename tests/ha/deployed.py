"""The files of `deploy/` with other values: what a run starts is what an operator would install.

A value can be replaced only where the file has one, so that the run cannot have a setting that `deploy/` lacks.
"""

from __future__ import annotations

import configparser
import copy
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
PATRONI = DEPLOY / "patroni" / "patroni.yml"
ETCD = DEPLOY / "patroni" / "etcd.env"
PGBOUNCER = DEPLOY / "pgbouncer" / "pgbouncer.ini"
LEADER = DEPLOY / "pgbouncer" / "leader.ini"
FOLLOWER = DEPLOY / "pgbouncer" / "follow_leader.py"
INCLUDE = "%include"


def patroni(values: Mapping[str, Any]) -> str:
    """The configuration of Patroni; a value is named by its path, such as `bootstrap.dcs.ttl`."""
    told = copy.deepcopy(yaml.safe_load(PATRONI.read_text()))
    for path, value in values.items():
        *above, last = path.split(".")
        place = told
        for name in above:
            place = place[name]
        if last not in place:
            raise KeyError(f"deploy/patroni/patroni.yml has no {path}")
        place[last] = value
    return yaml.safe_dump(told, sort_keys=False)


def etcd(values: Mapping[str, str]) -> dict[str, str]:
    """The environment of an etcd member."""
    lines = [line for line in ETCD.read_text().splitlines() if line and not line.startswith("#")]
    told = dict(line.split("=", 1) for line in lines)
    if not values.keys() <= told.keys():
        raise KeyError(f"deploy/patroni/etcd.env has no {', '.join(values.keys() - told.keys())}")
    return told | dict(values)


def ini(path: Path) -> configparser.ConfigParser:
    """A file of PgBouncer; an `%include` is a name without a value."""
    parser = configparser.ConfigParser(
        allow_no_value=True, interpolation=None, delimiters=("=",), comment_prefixes=(";", "#"), strict=True
    )
    parser.read_string(path.read_text())
    return parser


def pgbouncer(values: Mapping[str, str], leader: Path) -> str:
    """The configuration of PgBouncer, which includes this file for the address of the leader."""
    parser = ini(PGBOUNCER)
    section = parser["pgbouncer"]
    for name, value in values.items():
        if name not in section:
            raise KeyError(f"deploy/pgbouncer/pgbouncer.ini has no {name}")
        section[name] = value
    [included] = [name for name in section if name.startswith(INCLUDE)]
    del section[included]
    out = io.StringIO()
    parser.write(out)
    return f"{out.getvalue()}\n{INCLUDE} {leader}\n"
