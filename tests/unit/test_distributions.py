"""Two wheels come from one checkout: the client library, and the server that depends on it."""

import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from ringfence_pipeline.jars import CHECKOUT_JARS
from ringfence_service import clock
from ringfence_service.clock import product_version
from tests.support.shadowing import shadowing
from tools.source_roots import SOURCE_ROOTS

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = ROOT / "ringfence"
PACKAGES: Final = {
    "ringfence": {"ringfence", "ringfence_client"},
    "ringfence-server": {
        *("ringfence_service", "ringfence_state", "ringfence_api"),
        *("ringfence_pipeline", "ringfence_main"),
    },
}
LEFT_OUT: Final = ("fastapi", "rocksdict", "ringfence_service", "pydantic", "structlog")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both, by the names of their distributions."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in (CLIENT, ROOT):
        program = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
        subprocess.run([sys.executable, "-c", program], cwd=project, check=True)
    return {str(metadata(wheel)["Name"]): wheel for wheel in folder.glob("*.whl")}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_each_holds_its_own_packages_and_the_license(wheels: dict[str, Path]) -> None:
    for distribution, packages in PACKAGES.items():
        names = zipfile.ZipFile(wheels[distribution]).namelist()
        folders = {name.split("/")[0] for name in names}
        assert {each for each in folders if not each.endswith(".dist-info")} == packages
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "ringfence/py.typed" in zipfile.ZipFile(wheels["ringfence"]).namelist()


@pytest.mark.parametrize("distribution", PACKAGES)
def test_an_index_would_take_them(wheels: dict[str, Path], distribution: str) -> None:
    with zipfile.ZipFile(wheels[distribution]) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        found = Metadata.from_email(archive.read(name), validate=True)
    assert found.description
    assert found.description_content_type == "text/markdown"
    # W009: the distributions have several packages each.
    command = ["check_wheel_contents", "--ignore", "W009", str(wheels[distribution])]
    subprocess.run([sys.executable, "-m", *command], check=True)


def test_both_have_one_version_and_the_server_needs_that_of_the_client() -> None:
    server, client = (
        tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for folder in (ROOT, CLIENT)
    )
    assert client["version"] == server["version"]
    assert f"ringfence=={client['version']}" in server["dependencies"]


def test_the_extras_for_spark_ask_for_the_version_that_the_jobs_run_on(
    wheels: dict[str, Path],
) -> None:
    for wheel in wheels.values():
        needs = map(Requirement, metadata(wheel).get_all("Requires-Dist", []))
        spark = {each.name: each.specifier for each in needs if "spark" in str(each.marker)}
        assert spark["pyspark"].contains("4.0.5")
        assert not any(map(spark["pyspark"].contains, ("3.5.7", "4.1.0")))
    lines = (ROOT / "requirements" / "spark.in").read_text("utf-8").splitlines()
    workers = {Requirement(line).name for line in lines if not line.startswith("#")}
    of_server = map(Requirement, metadata(wheels["ringfence-server"]).get_all("Requires-Dist", []))
    assert {each.name for each in of_server if "spark" in str(each.marker)} == workers


def test_the_client_needs_no_part_of_the_server(wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    site = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    with zipfile.ZipFile(wheels["ringfence"]) as archive:
        archive.extractall(site)
    needed = ["confluent_kafka", *(["pyspark", "py4j"] if find_spec("pyspark") else [])]
    for name in needed:
        installed = Path(str(import_module(name).__file__)).parent
        (site / name).symlink_to(installed)
        for libraries in installed.parent.glob(f"{name}.libs"):
            (site / libraries.name).symlink_to(libraries)
    program = (
        "import importlib.util, ringfence.headers, ringfence.publisher;"
        f"found = [each for each in {LEFT_OUT} if importlib.util.find_spec(each)];"
        "assert not found, found;" + ("import ringfence.spark" if "pyspark" in needed else "")
    )
    subprocess.run([tmp_path / "bin" / "python", "-I", "-c", program], cwd=tmp_path, check=True)


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheels, and the packages of this environment but not its checkout."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    # The files of paths in there, such as that of the checkout, do not count.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


EVERY_MODULE: Final = """
import importlib, pkgutil, sys
from importlib.metadata import entry_points
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
sys.argv[:] = ["ringfence", "--version"]
entry_points(group="console_scripts", name="ringfence")["ringfence"].load()()
"""


def test_no_folder_of_a_user_takes_the_place_of_a_package(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed, "-c", EVERY_MODULE, "ringfence_client", *PACKAGES["ringfence-server"]],
        env={"PYTHONPATH": str(shadowing(tmp_path, SOURCE_ROOTS))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"ringfence {product_version()}\n"


def test_the_source_roots_are_the_same_wherever_they_are_listed() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    assert document["hatch"]["build"]["dev-mode-dirs"] == [".", *SOURCE_ROOTS]
    assert document["pytest"]["ini_options"]["pythonpath"] == [".", *SOURCE_ROOTS]
    assert document["mypy"]["mypy_path"] == [*SOURCE_ROOTS]


def test_a_checkout_finds_its_jars_and_its_version_at_its_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "_DISTRIBUTION", "not-installed")
    assert CHECKOUT_JARS.parents[1] == ROOT
    server = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert product_version() == server["version"]
