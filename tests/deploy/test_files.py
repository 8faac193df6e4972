"""Every file of `deploy/` and the release workflow pass the linter or the schema of their kind."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from semel.server.auth.credentials import read_token_file
from semel.server.settings_loader import load_settings
from semel.surfaces.registry import SCOPE_RULES

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
PROGRAMS = Path(sys.executable).parent
WORKFLOW = ROOT / ".github/workflows/release.yml"
COMPOSE = DEPLOY / "compose/compose.yaml"
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
SCRIPTS = sorted(DEPLOY.glob("**/*.sh"))
TOKENS = DEPLOY / "compose/tokens.example.toml"
UNIT = DEPLOY / "systemd/semel.service"
CHECKED = {
    DEPLOY / "Dockerfile",
    DEPLOY / "Dockerfile.dockerignore",
    DEPLOY / "healthcheck.py",
    DEPLOY / "requirements-image.lock",
    TOKENS,
    DEPLOY / "systemd/semel.toml",
    COMPOSE,
    UNIT,
    *MANIFESTS,
    *SCRIPTS,
}
USER = 10_001


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False, timeout=120)


def passes(*command: object) -> None:
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def pods() -> list[Any]:
    """The templates of all pods."""
    kinds = ("StatefulSet", "Deployment")
    return [one["spec"]["template"]["spec"] for path in MANIFESTS for one in documents(path) if one["kind"] in kinds]


def test_every_file_is_checked_here() -> None:
    known = subprocess.run(
        ["git", "ls-files", "deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {ROOT / name for name in known.stdout.splitlines()}
    others = {path for path in found if path.is_relative_to(DEPLOY) and _is_of_this_test(path)}
    assert others == CHECKED


def _is_of_this_test(path: Path) -> bool:
    """Dashboards, alert rules, Litestream and the files of the cluster have tests of their own."""
    return path.parent == DEPLOY or path.relative_to(DEPLOY).parts[0] in ("compose", "kubernetes", "systemd")


def test_the_dockerfile_passes_hadolint() -> None:
    passes(PROGRAMS / "hadolint", "--failure-threshold", "info", DEPLOY / "Dockerfile")


def test_hadolint_notices_an_image_that_runs_as_root(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text((DEPLOY / "Dockerfile").read_text().replace("USER 10001:10001", "USER root"))
    assert run(PROGRAMS / "hadolint", "--failure-threshold", "info", bad).returncode != 0


def test_the_image_is_not_root_and_has_a_health_check_and_a_volume() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    last = text.rpartition("\nFROM ")[2]
    assert f"USER {USER}:{USER}" in last
    assert "HEALTHCHECK" in last
    assert 'VOLUME ["/var/lib/semel"]' in last
    assert "--require-hashes" in text


def test_the_compose_file_fits_its_schema() -> None:
    passes(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_the_compose_file_waits_for_its_standby_and_gives_nodes_no_rights() -> None:
    [compose] = documents(COMPOSE)
    primary = compose["services"]["primary"]
    assert "synchronous_standby_names=ANY 1 (standby)" in primary["command"]
    assert "synchronous_commit=on" in primary["command"]
    assert "application_name=standby" in (DEPLOY / "compose/postgres/standby.sh").read_text()
    for name in ("node-a", "node-b"):
        node = compose["services"][name]
        assert (node["read_only"], node["cap_drop"]) == (True, ["ALL"])
        assert all(port.startswith("127.0.0.1:") for port in node["ports"])
    for service in compose["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert not source.startswith(".") or (COMPOSE.parent / source).exists(), mount


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    passes(PROGRAMS / "kubernetes-validate", "--strict", path)


def test_a_member_that_kubernetes_does_not_know_is_noticed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(MANIFESTS[-1].read_text().replace("replicas:", "replica:"))
    assert run(PROGRAMS / "kubernetes-validate", "--strict", bad).returncode != 0


def test_pods_are_restricted_and_probed() -> None:
    assert len(pods()) == 2
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == USER
        [container] = pod["containers"]
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        probes = {name: container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
        assert probes == {"livenessProbe": "/livez", "readinessProbe": "/readyz"}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claimed = {"data"} if "data" in mounted else set()
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed


def test_a_data_folder_has_one_pod() -> None:
    [single] = [one for path in MANIFESTS for one in documents(path) if one["kind"] == "StatefulSet"]
    assert single["spec"]["replicas"] == 1
    assert single["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    hardened = {"NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes", "CapabilityBoundingSet="}
    assert hardened <= set(UNIT.read_text().splitlines())
    if shutil.which("systemd-analyze") is None:
        return  # elsewhere than on Linux with systemd, that is all that can be seen
    unit = tmp_path / "semel.service"  # the program is not installed where the unit expects it
    unit.write_text(re.sub("^ExecStart=/opt/semel/bin/semel", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M))
    done = run("systemd-analyze", "verify", unit)
    assert (done.returncode, done.stderr) == (0, "")
    passes("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystme=strict"))
    assert "ProtectSystme" in run("systemd-analyze", "verify", unit).stderr


def test_settings_and_tokens_are_those_of_the_server() -> None:
    settings = load_settings({"tokens": str(TOKENS)}, {}, DEPLOY / "systemd/semel.toml")
    assert settings.control_port == 8789
    [principal] = read_token_file(Path(settings.tokens), SCOPE_RULES).values()
    assert principal.name == "operator"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_valid(path: Path) -> None:
    passes("bash", "-n", path)


@pytest.mark.parametrize("workflow", sorted(WORKFLOW.parent.iterdir()), ids=lambda path: path.stem)
def test_workflows_are_valid_and_safe(workflow: Path) -> None:
    passes(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)
    passes(PROGRAMS / "check-jsonschema", "--builtin-schema", "custom.github-workflows-require-timeout", workflow)
    passes(PROGRAMS / "zizmor", "--offline", "--no-progress", workflow)
    for used in re.findall(r"uses: (\S+)", workflow.read_text()):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), used


def test_the_release_is_tested_on_every_python_that_the_package_names() -> None:
    [workflow] = documents(WORKFLOW)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [one.rpartition(":: ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_images_have_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    texts = [path.read_text() for path in (COMPOSE, *MANIFESTS)]
    assert {found for text in texts for found in re.findall(r"image: semel:(\S+)", text)} == {version}
