"""A release of this checkout, without its image: what is in dist/, and that it can be installed."""

import io
import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest
import yaml

from ringfence_service.clock import product_version
from ringfence_service.native.extension import INTERFACE
from tests.helm.chart import HELM_TEST, Helm, container, only
from tests.support.repository import copy_of_checkout, git
from tests.support.waiting import LIMIT_S
from tools.go import TOOLS_DIR
from tools.release.__main__ import main
from tools.release.artifacts import PLATFORMS
from tools.unpack import unpack

pytestmark = HELM_TEST

VERSION: Final = product_version()
FILES: Final = {
    "SHA256SUMS",
    f"ringfence-{VERSION}-py3-none-any.whl",
    f"ringfence-{VERSION}.notes.md",
    f"ringfence-{VERSION}.tar.gz",
    f"ringfence-{VERSION}.tgz",
    *(f"ringfence_native-{VERSION}-cp311-abi3-{platform}.whl" for platform in PLATFORMS),
    f"ringfence_native-{VERSION}.tar.gz",
    f"ringfence_server-{VERSION}-py3-none-any.whl",
    f"ringfence_server-{VERSION}.cdx.json",
    f"ringfence_server-{VERSION}.requirements.txt",
    f"ringfence_server-{VERSION}.tar.gz",
}
MINIMAL: Final = {
    "image": {"repository": "registry.example.com/ringfence"},
    "config": {
        "kafka": {"bootstrap.servers": "kafka:9092"},
        "api": {"auth": "none"},
        "routes": [{"inputs": ["orders"]}],
    },
}


def made(checkout: Path, version: str) -> "subprocess.CompletedProcess[str]":
    """Run `make release` in a checkout, with the environment and the Helm of this one."""
    tools = checkout / ".run" / "tools"
    if not tools.exists():
        tools.parent.mkdir(exist_ok=True)
        tools.symlink_to(TOOLS_DIR)
    words = ["make", "release", f"VERSION={version}", "ARGS=--without-image"]
    words += [
        "--old-file=.venv/demo",
        "--old-file=.venv/release",
        f"BIN={Path(sys.executable).parent}",
    ]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        words,
        cwd=checkout,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.fixture(scope="module")
def checkout(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with this checkout, after its release."""
    assert helm.binary.exists()
    found = copy_of_checkout(tmp_path_factory.mktemp("checkout"))
    done = made(found, VERSION)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"dist/ has Ringfence {VERSION}" in done.stdout
    return found


@pytest.fixture(scope="module")
def dist(checkout: Path) -> Path:
    return checkout / "dist"


def test_it_has_every_file_and_the_checksums_of_all(dist: Path) -> None:
    assert {path.name for path in dist.iterdir()} == FILES
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=dist, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == len(FILES) - 1


def test_the_working_tree_is_as_it_was(checkout: Path, dist: Path) -> None:
    assert dist.exists()
    assert git(checkout, "status", "--porcelain") == ""
    assert [path.name for path in (checkout / ".run").iterdir()] == ["tools"]


def test_the_same_commit_makes_the_same_bytes_on_another_day_and_elsewhere(
    dist: Path, tmp_path: Path
) -> None:
    again = copy_of_checkout(tmp_path)
    for path in again.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (1, 1))
    assert main([VERSION, "--without-image"], again) == 0
    names = {path.name for path in dist.iterdir()}
    assert {name: (again / "dist" / name).read_bytes() for name in names} == {
        name: (dist / name).read_bytes() for name in names
    }


def test_an_earlier_release_stays_until_the_next_one_succeeds(checkout: Path, dist: Path) -> None:
    done = made(checkout, "9.9.9")
    assert done.returncode != 0
    assert "CHANGELOG.md has no section 9.9.9" in done.stderr
    assert {path.name for path in dist.iterdir()} == FILES


def test_a_server_installs_from_the_folder_and_knows_its_version(
    dist: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path, symlinks=True)
    site = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--find-links", str(dist), "--target", str(site)]
    packages = ["ringfence-server", "ringfence", "ringfence-native"]
    subprocess.run([*command, *packages], check=True, timeout=LIMIT_S)
    program = (
        "import importlib.metadata as m, ringfence_native;"
        f"print(*map(m.version, {packages}), ringfence_native.INTERFACE)"
    )
    done = subprocess.run(
        [tmp_path / "bin" / "python", "-I", "-c", program],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [VERSION, VERSION, VERSION, str(INTERFACE)]


def test_each_platform_has_its_own_machine_code(dist: Path) -> None:
    machines = {}
    for path in dist.glob("ringfence_native-*.whl"):
        with zipfile.ZipFile(path) as wheel:
            header = wheel.read("ringfence_native.abi3.so")[:20]
        assert header[:4] == b"\x7fELF"
        machines[path.stem.rpartition("_2_28_")[2]] = int.from_bytes(header[18:20], "little")
    assert machines == {"x86_64": 62, "aarch64": 183}  # e_machine of elf.h


@pytest.mark.parametrize("name", ["ringfence", "ringfence_server"])
def test_a_wheel_that_is_built_from_the_source_is_the_wheel(
    checkout: Path, dist: Path, name: str, tmp_path: Path
) -> None:
    with tarfile.open(dist / f"{name}-{VERSION}.tar.gz") as files:
        unpack(files, tmp_path)
    program = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    committed_s = git(checkout, "log", "-1", "--format=%ct").strip()
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / f"{name}-{VERSION}",
        env={**os.environ, "SOURCE_DATE_EPOCH": committed_s},
        check=True,
    )
    wheel = f"{name}-{VERSION}-py3-none-any.whl"
    assert (tmp_path / wheel).read_bytes() == (dist / wheel).read_bytes()


def test_the_chart_installs_the_image_of_its_version(
    helm: Helm, dist: Path, tmp_path: Path
) -> None:
    package = dist / f"ringfence-{VERSION}.tgz"
    with tarfile.open(package) as files:
        content = files.extractfile("ringfence/Chart.yaml")
        assert content is not None
        chart = yaml.safe_load(io.TextIOWrapper(content))
        assert not [name for name in files.getnames() if name.startswith("ringfence/ci")]
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(MINIMAL), "utf-8")
    objects = helm.render(values, chart=package)
    assert container(objects)["image"] == f"registry.example.com/ringfence:{VERSION}"
    labels = only(objects, "StatefulSet")["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == VERSION


def test_the_bill_of_materials_names_what_is_locked(checkout: Path, dist: Path) -> None:
    bill = json.loads((dist / f"ringfence_server-{VERSION}.cdx.json").read_text("utf-8"))
    lock = (checkout / "requirements" / "service.txt").read_text("utf-8")
    assert (dist / f"ringfence_server-{VERSION}.requirements.txt").read_text("utf-8") == lock
    assert {each["purl"] for each in bill["components"]} >= {
        "pkg:pypi/confluent-kafka@2.16.1",
        "pkg:pypi/rocksdict@0.3.29",
    }
    assert len(bill["components"]) == lock.count("==") - lock.count(" == ")


def test_the_notes_are_the_section_of_the_changelog(checkout: Path, dist: Path) -> None:
    notes = (dist / f"ringfence-{VERSION}.notes.md").read_text("utf-8")
    assert notes.startswith(f"# Ringfence {VERSION}\n\n- ")
    assert notes.partition("\n\n")[2].strip() in (checkout / "CHANGELOG.md").read_text("utf-8")
