"""The import rules hold, and a planted violation of each is caught."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.source_roots import SOURCE_ROOTS, python_path

ROOT = Path(__file__).parents[2]
PACKAGES = (*SOURCE_ROOTS, "tools")
PLANTS = {
    "Imports point one way": (
        "state/ringfence_state/rocksdb_store.py",
        "import ringfence_service.errors",
    ),
    "The service stands on its rules": (
        "service/ringfence_service/dedup/batch.py",
        "import ringfence_service.processor.poll",
    ),
    "No package imports a sibling": (
        "service/ringfence_service/dedup/record.py",
        "import ringfence_service.dedup.decider",
    ),
    "The rules know no clock": ("service/ringfence_service/dedup/record.py", "import time"),
    "Decisions read columns": (
        "service/ringfence_service/dedup/evaluator.py",
        "import confluent_kafka",
    ),
    "Strategies know no Kafka": ("state/ringfence_state/strategies/ring.py", "import logging"),
    "Strategies are used by what they can do": (
        "service/ringfence_service/dedup/checks.py",
        "import ringfence_state.strategies.ring",
    ),
    "Kafka stays at the edge": (
        "service/ringfence_service/dedup/record.py",
        "import confluent_kafka",
    ),
    "State knows no Kafka": ("state/ringfence_state/cache.py", "import confluent_kafka"),
    "Only ringfence_state.rocksdb_store imports RocksDB": (
        "service/ringfence_service/processor/loop.py",
        "import rocksdict",
    ),
    "The supervisor starts without": (
        "service/ringfence_service/supervisor/supervisor.py",
        "import ringfence_service.supervisor.loop_runner",
    ),
    "The command line is a client": (
        "service/ringfence_service/cli/ids.py",
        "import ringfence_service.queries.ids",
    ),
    "The API sees values": (
        "api/ringfence_api/resources/health.py",
        "import ringfence_service.processor.loop",
    ),
    "The pipeline reads Kafka": ("pipeline/ringfence_pipeline/source.py", "import confluent_kafka"),
    "A backfill decides without Spark": (
        "pipeline/ringfence_pipeline/backfill/decider.py",
        "import pyspark",
    ),
    "What users import needs no more": (
        "ringfence/ringfence_client/publisher/message.py",
        "import pydantic",
    ),
    "The server starts without the name": (
        "service/ringfence_service/urls.py",
        "import ringfence.headers",
    ),
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
    done = subprocess.run(
        command,
        cwd=tree,
        env={"PYTHONPATH": python_path(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
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
    (tree / "service" / "ringfence_service" / "helpers.py").write_text("")
    assert "The service stands on its rules" in broken_contracts(tree)
