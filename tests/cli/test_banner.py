"""The start banner of `semel serve`: where the server is, who may call it, where the data is, what it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semel.cli.serve import banner
from semel.server.settings_loader import make_settings
from semel.surfaces.registry import SURFACES


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"data": "/srv/x"}, "http://127.0.0.1:8788 (development mode, no credentials; data in /srv/x)"),
        ({"data": "."}, f"http://127.0.0.1:8788 (development mode, no credentials; data in {Path.cwd()})"),
        ({"host": "::", "tokens": "t", "data": "/d"}, "http://[::1]:8788 (tokens required; data in /d)"),
        (
            {"tls_certificate": "c", "token_active": "t", "data": "/d"},
            "https://127.0.0.1:8788 (tokens required; data in /d)",
        ),
        (
            {"store": "memory:"},
            "http://127.0.0.1:8788 (development mode, no credentials; data in memory, lost when the server stops)",
        ),
        (
            {"data": "/d", "deltas_jwt_secret": "s", "control_port": 9},
            "http://127.0.0.1:8788 (development mode, no credentials but for deltas; data in /d; control on port 9)",
        ),
    ],
)
def test_the_first_line_says_where_the_server_and_its_data_are(settings: dict[str, Any], first: str) -> None:
    assert banner(make_settings(**settings), 8788).splitlines()[0] == f"Semel is listening on {first}."


def test_a_password_of_the_store_is_not_shown() -> None:
    shown = banner(make_settings(store="postgresql://semel:open-sesame@db.example/semel"), 8788)
    assert "db.example" in shown
    assert "open-sesame" not in shown


def test_every_surface_has_its_row() -> None:
    rows = [line.split(maxsplit=2) for line in banner(make_settings(), 8788).splitlines()]
    for surface in SURFACES:
        assert surface.owns(surface.path.encode())
        assert [surface.name, surface.path, surface.about] in rows


def test_commands_name_a_server_that_is_not_at_the_default_place() -> None:
    elsewhere = banner(make_settings(), 9000)
    assert "--key first --url http://127.0.0.1:9000\n" in elsewhere
    assert "--url" not in banner(make_settings(), 8788)


def test_commands_need_a_token_where_the_server_does() -> None:
    assert "SEMEL_TOKEN" in banner(make_settings(token_active="t"), 8788)
    assert "SEMEL_TOKEN" not in banner(make_settings(), 8788)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "Console: http://127.0.0.1:8788/console"),
        ({"control_port": 9}, "Console: http://127.0.0.1:9/console"),
        ({"host": "::", "control_port": 9}, "Console: http://[::1]:9/console"),
        ({"tokens": "t"}, "Console: http://127.0.0.1:8788/console (it asks for a token)"),
        ({"control_port": 9, "tokens": "t"}, "Console: http://127.0.0.1:9/console (it asks for a token)"),
    ],
)
def test_the_console_is_named_where_it_is_served(settings: dict[str, Any], line: str) -> None:
    assert line in banner(make_settings(**settings), 8788).splitlines()


def test_a_console_that_is_turned_off_is_not_named() -> None:
    assert "/console" not in banner(make_settings(console=False), 8788)


def test_the_write_of_the_first_command_can_be_found() -> None:
    assert " find first   #" in banner(make_settings(), 8788)
