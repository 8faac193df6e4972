"""Finding the application's validator: by its path, by the name of an entry point, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.server.settings_loader import SettingsError
from semel.surfaces.events.service import VALIDATOR_GROUP, load_validator
from tests.cli.command import Semel

CODE = """
def validate(candidate, earlier):
    return [("event", "no")] if candidate.event["type"] == "bad" else None

not_callable = 7
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that nobody else has, with an entry point to its validator as an installed package has it."""
    name = f"rules_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(CODE)
    package = tmp_path / f"{name}-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{VALIDATOR_GROUP}]\nshop = {name}:validate\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_no_name_is_no_validator() -> None:
    assert load_validator("") is None


def test_by_its_path_and_by_its_entry_point(rules: str) -> None:
    by_path, by_name = load_validator(f"{rules}:validate"), load_validator("shop")
    assert by_path is not None
    assert by_path is by_name


@pytest.mark.parametrize("name", ["{}:missing", "{}:not_callable", "no_such_module:validate", "no-such-entry"])
def test_one_that_is_not_there_is_one_sentence(rules: str, name: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_validator(name.format(rules))
    assert str(refused.value).startswith(f"The validator {name.format(rules)} ")


def test_a_server_with_a_wrong_one_does_not_start(tmp_path: Path) -> None:
    run = Semel("http://127.0.0.1:1")(
        "serve", "--port", "0", "--data", str(tmp_path / "data"), "--events-validator", "no_such_module:validate"
    )
    assert run.code == 1
    assert run.err.startswith("Error: The validator no_such_module:validate cannot be loaded")
    assert not (tmp_path / "data").exists()
