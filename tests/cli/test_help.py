"""`--help` of every command: grouped, wrapped, and never cut."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from semel.cli.main import main
from semel.server.setting_values import is_secret
from semel.server.settings_loader import PREFIX, setting_fields, setting_sections
from semel.surfaces.registry import SURFACES

WIDTH = 80


def words(text: str) -> str:
    return " ".join(text.split())


def help_of(*path: str) -> str:
    done = CliRunner().invoke(main, [*path, "--help"], terminal_width=WIDTH)
    assert done.exit_code == 0, done.output
    return done.output


def groups(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    """A group and all below it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(command, *path, name)


@pytest.mark.parametrize(("path", "group"), [pytest.param(*one, id=" ".join(one[0])) for one in groups(main)])
def test_a_group_lists_each_command_with_its_whole_sentence(path: tuple[str, ...], group: click.Group) -> None:
    shown = help_of(*path)
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.help
        sentence = words(command.help).partition(". ")[0].removesuffix(".")
        assert re.search(rf"^  {name} ", shown, re.MULTILINE)
        assert sentence in words(shown)
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_the_commands_stand_under_headings() -> None:
    headings = re.findall(r"^(\S.*):$", help_of(), re.MULTILINE)
    assert headings == [
        "Options",
        "Run a server",
        "Use the surfaces of a server",
        "Idempotency in your own code",
        "Operate",
    ]
    listed = re.findall(r"^  ([a-z]+) ", help_of(), re.MULTILINE)
    assert sorted(listed) == main.list_commands(click.Context(main))


def test_every_surface_has_a_command() -> None:
    assert {surface.name for surface in SURFACES} <= set(main.list_commands(click.Context(main)))


def test_serve_explains_each_setting_under_its_heading() -> None:
    _, *sections = re.split(r"^(?=\S.*:$)", help_of("serve"), flags=re.MULTILINE)
    options, *shown = sections
    assert re.findall(r"^  (-\S+)", options, re.MULTILINE) == ["--config", "-h,"]
    assert [one.partition(":")[0] for one in shown] == list(setting_sections())
    for section, (_, fields) in zip(shown, setting_sections().items(), strict=True):
        flags = [one for one in fields if not is_secret(one)]
        assert re.findall(r"^  (--\S+)", section, re.MULTILINE) == [f"--{one.name.replace('_', '-')}" for one in flags]
        assert re.findall(r"\[SEMEL_(\w+), default [^]]+\]$", section, re.MULTILINE) == [
            one.name.upper() for one in flags
        ]
        for one in fields:
            assert PREFIX + one.name.upper() in section
            about = one.metadata["about"]
            assert about[1:] + "." in words(section)


def test_every_setting_stands_under_one_heading_in_its_order() -> None:
    grouped = [one.name for fields in setting_sections().values() for one in fields]
    assert grouped == [one.name for one in setting_fields()]


def test_serve_keeps_the_width_of_the_terminal() -> None:
    assert max(map(len, help_of("serve").splitlines())) <= WIDTH


@pytest.mark.parametrize(("line", "found"), [("semel strea", "streams"), ("semel streams ap", "append")])
def test_a_shell_completes_commands(line: str, found: str) -> None:
    words = line.split()
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_SEMEL_COMPLETE": "bash_complete"}
    done = CliRunner(env=env).invoke(main, [], prog_name="semel")
    assert done.output == f"plain,{found}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    done = CliRunner(env={"_SEMEL_COMPLETE": f"{shell}_source"}).invoke(main, [], prog_name="semel")
    assert (done.exit_code, "_semel_completion" in done.output) == (0, True)
