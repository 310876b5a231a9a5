"""The import rules hold, and a planted violation of each is caught."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("ringfence", "service", "state", "api", "pipeline", "tools")
PLANTS = {
    "Imports point one way": ("state/rocksdb_store.py", "import service.errors"),
    "The service stands on its rules": ("service/dedup/batch.py", "import service.processor.poll"),
    "No package imports a sibling": ("service/dedup/record.py", "import service.dedup.decider"),
    "The rules know no clock": ("service/dedup/record.py", "import time"),
    "Decisions read columns": ("service/dedup/evaluator.py", "import confluent_kafka"),
    "Strategies know no Kafka": ("state/strategies/ring.py", "import logging"),
    "Strategies are used by what they can do": (
        "service/dedup/checks.py",
        "import state.strategies.ring",
    ),
    "Kafka stays at the edge": ("service/dedup/record.py", "import confluent_kafka"),
    "State knows no Kafka": ("state/cache.py", "import confluent_kafka"),
    "Only state.rocksdb_store imports RocksDB": ("service/processor/loop.py", "import rocksdict"),
    "The supervisor starts without": (
        "service/supervisor/supervisor.py",
        "import service.supervisor.worker",
    ),
    "The command line is a client": ("service/cli/ids.py", "import service.queries.ids"),
    "The API sees values": ("api/resources/health.py", "import service.processor.loop"),
    "The pipeline reads Kafka": ("pipeline/source.py", "import confluent_kafka"),
    "A backfill decides without Spark": ("pipeline/backfill/decider.py", "import pyspark"),
    "What users import needs no more": ("ringfence/publisher/message.py", "import pydantic"),
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


def test_a_file_without_a_place_is_caught(tree: Path) -> None:
    (tree / "service" / "helpers.py").write_text("")
    assert "The service stands on its rules" in broken_contracts(tree)
