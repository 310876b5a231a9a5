"""The import rules hold, and a planted violation of each is caught."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("ringfence", "service", "state", "api", "pipeline", "tools")
PLANTS = {
    "Imports point one way": ("state/directory.py", "import service.errors"),
    "The loop stands on its steps": ("service/consume.py", "import service.decide"),
    "The crew stands on its messages": ("service/crew/link.py", "import service.crew.member"),
    "The supervisor starts without": ("service/crew/supervisor.py", "import service.worker"),
    "The bridge stands on its steps": ("service/bridge/stamp.py", "import service.bridge.loop"),
    "The command line stands on its call": (
        "service/commands/cells.py",
        "import service.commands.screen",
    ),
    "The command line knows the service": ("service/commands/ids.py", "import service.queries"),
    "Strategies know no Kafka": ("state/strategies/ring.py", "import time"),
    "Only state.rocks touches RocksDB": ("service/loop.py", "import rocksdict"),
    "Kafka stays at the edge": ("service/route.py", "import confluent_kafka"),
    "The publisher stands on its parts": ("ringfence/session.py", "import ringfence.courier"),
    "What users import needs no more": ("ringfence/message.py", "import pydantic"),
    "The API sees values": ("api/health.py", "import service.loop"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(tree: Path) -> str:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return "\n".join(line for line in done.stdout.splitlines() if " BROKEN" in line)


def test_no_rule_is_broken(tree: Path) -> None:
    assert broken_contracts(tree) == ""


@pytest.mark.parametrize("rule", PLANTS)
def test_a_planted_violation_is_caught(tree: Path, rule: str) -> None:
    file, line = PLANTS[rule]
    with (tree / file).open("a") as planted:
        planted.write(f"\n{line}\n")
    assert rule in broken_contracts(tree)
