"""What the page of deployment tells to type on a cluster or a machine fits the files of `deploy/`."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from semel.server.settings_loader import load_settings
from tests.docs.fences import fences
from tests.docs.markdown import DOCS, ROOT
from tests.docs.shell import commands
from tests.harness.server import RunningServer

PAGE = DOCS / "operating/deploy.md"
TYPED = [
    one.text.replace("\\\n", " ")
    for fence in fences(PAGE.read_text("utf-8"))
    if fence.language == "console"
    for one in commands(fence.text, fence.line)
]
POD_SECURITY = "pod-security.kubernetes.io/enforce"


def objects(kind: str, file: str = "sqlite.yaml") -> list[dict[str, Any]]:
    """Objects of a kind in the namespace's file and another one that the page applies."""
    files = [name for line in TYPED for name in re.findall(r"apply -f (\S+)", line)]
    assert f"deploy/kubernetes/{file}" in files
    wanted = [name for name in files if Path(name).name in (file, "namespace.yaml")]
    found = [one for name in wanted for one in yaml.safe_load_all((ROOT / name).read_text("utf-8"))]
    return [one for one in found if one["kind"] == kind]


def line_of(part: str) -> str:
    [line] = [one for one in TYPED if part in one]
    return line


def shell(line: str, folder: Path) -> str:
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def test_the_token_that_is_made_may_do_what_the_page_does_next(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    shell(line_of("printf"), tmp_path)
    inside = line_of("kubectl run").partition(" -- ")[2]
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(tmp_path / "tokens.toml")}) as server:
        said = shell(inside.replace("http://semel.semel:8788", server.url), tmp_path)
    assert said.startswith("HTTP/1.1 201 ")


def test_secrets_are_where_the_pods_look_for_them() -> None:
    words = shlex.split(line_of("generic semel-tokens"))
    name, file = words[words.index("generic") + 1], words[-1].removeprefix("--from-file=")
    [single] = objects("StatefulSet")
    pod = single["spec"]["template"]["spec"]
    [volume] = [one for one in pod["volumes"] if one.get("secret", {}).get("secretName") == name]
    [container] = pod["containers"]
    [mount] = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume["name"]]
    assert {"name": "SEMEL_TOKENS", "value": f"{mount}/{file}"} in container["env"]

    words = shlex.split(line_of("generic semel-database"))
    given = dict(word.removeprefix("--from-literal=").split("=", 1) for word in words if word.startswith("--from-l"))
    [nodes] = objects("Deployment", "postgres.yaml")
    [container] = nodes["spec"]["template"]["spec"]["containers"]
    refs = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one]
    assert {one["name"] for one in refs} == {words[words.index("generic") + 1]}
    assert {one["key"] for one in refs} == given.keys()
    assert load_settings({"store": given["url"]}, {}, None).store_url == given["url"]


def test_what_is_waited_for_and_called_is_in_the_manifests() -> None:
    [namespace], [single], [service] = objects("Namespace"), objects("StatefulSet"), objects("Service")
    place = namespace["metadata"]["name"]
    words = shlex.split(line_of("rollout status"))
    assert (words[2], words[-1]) == (place, f"statefulset/{single['metadata']['name']}")
    [(host, port)] = re.findall(r"http://([\w.]+):(\d+)/", line_of("kubectl run"))
    assert host == f"{service['metadata']['name']}.{place}"
    assert int(port) in [one["port"] for one in service["spec"]["ports"]]
    # The pod that only tries has no security context: a namespace that enforces `restricted` does not admit it.
    assert namespace["metadata"]["labels"][POD_SECURITY] == "restricted"
    assert not re.search(rf" (?:-n|--namespace)[ =]{place}\b", line_of("kubectl run"))


def test_the_namespace_is_made_before_what_is_in_it() -> None:
    """On the page, and in the comments of the manifests."""
    texts = ["\n".join(TYPED), *(path.read_text("utf-8") for path in ROOT.glob("deploy/kubernetes/*.yaml"))]
    for text in texts:
        made, used = text.find("namespace.yaml"), text.find("create secret")
        assert used == -1 or 0 <= made < used, text[:200]


@pytest.mark.parametrize("line", TYPED)
def test_files_of_the_repository_are_there(line: str) -> None:
    assert [name for name in re.findall(r"(?<!\S)deploy/\S+", line) if not (ROOT / name).exists()] == []


def test_files_are_installed_where_the_unit_looks_for_them(tmp_path: Path) -> None:
    """Into a folder in place of the root, for the group of this process."""
    (tmp_path / "tokens.toml").write_text("")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    lines = [line for line in TYPED if line.startswith("sudo install ")]
    assert len(lines) == 2
    for line in lines:
        shell(line.removeprefix("sudo ").replace("--group semel ", "").replace(" /etc/", f" {tmp_path}/etc/"), tmp_path)
    unit = (tmp_path / "etc/systemd/system/semel.service").read_text("utf-8")
    [config] = re.findall(r"--config (\S+)", unit)
    settings = tmp_path / config.removeprefix("/")
    [tokens] = re.findall(r'^tokens = "/(.*)"$', settings.read_text("utf-8"), re.M)
    assert [path.stat().st_mode & 0o777 for path in (settings, tmp_path / tokens)] == [0o640, 0o640]
