"""CPU time counts for the innermost function that the table knows."""

import inspect

import pytest

from bench.sampler import REST, STAGES, stage_of
from ringfence_service.dedup import batch as consume
from ringfence_service.dedup import decider as decide
from ringfence_service.processor import loop
from ringfence_service.processor import transaction as apply
from ringfence_service.processor import transaction as commit
from ringfence_service.supervisor import loop_runner
from ringfence_state import cache
from ringfence_state import rocksdb_store as rocks
from ringfence_state import segment as run
from ringfence_state.strategies import ring

LOOP = [
    "committer.py:Committer.commit",
    "loop.py:Loop.turn",
    "loop_runner.py:LoopRunner.turn",
    "run.py:serve",
]


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (["transaction.py:_send", "transaction.py:TransactionManager._write"], "produce"),
        (
            [
                "transaction.py:_send",
                "transaction.py:_ChangelogWriter._write",
                "transaction.py:TransactionManager._write",
            ],
            "changelog",
        ),
        (["decider.py:_Decider.decide", "transaction.py:TransactionManager._write"], "decide"),
        (
            ["ring_memory.py:InMemoryRing.make_admit.<locals>.admit", "decider.py:_Decider.decide"],
            "decide",
        ),
        (["ring.py:RingDraft.seal", "decider.py:_Decider.seal"], "changelog"),
        (
            ["ring_memory.py:InMemoryRing.absorb", "cache.py:Cache.absorb", "transaction.py:apply"],
            "apply",
        ),
        (["io.py:read_headers", "decider.py:_Decider.decide"], "headers"),
        (
            [
                "transaction.py:TransactionManager._deliver",
                "transaction.py:TransactionManager.commit",
            ],
            "commit",
        ),
        (["reporter.py:Reporter.committed"], REST),
    ],
)
def test_the_innermost_function_that_is_known_tells_the_stage(stack: list[str], stage: str) -> None:
    assert stage_of([*stack, *LOOP]) == stage


def test_what_is_not_the_loop_counts_for_nothing() -> None:
    assert stage_of(["server.py:serve_in_thread", "run.py:serve"]) is None


def test_every_function_of_the_table_exists() -> None:
    modules = [apply, commit, consume, decide, loop, loop_runner, cache, rocks, ring, run]
    known = {module.__name__.rpartition(".")[2] + ".py": module for module in modules}
    named = [name.split(":") for names in STAGES.values() for name in names]
    for file, qualified in [(file, name) for file, name in named if file in known and name]:
        found: object = known[file]
        for part in qualified.partition(".<locals>")[0].split("."):
            found = getattr(found, part)
        assert inspect.isfunction(found) or inspect.isclass(found)
