"""CPU time counts for the innermost function that the table knows."""

import inspect

import pytest

from bench.sampler import REST, STAGES, stage_of
from service import apply, commit, consume, decide, loop, worker
from state import cache, rocks, run
from state.strategies import ring

LOOP = ["loop.py:Loop._commit", "loop.py:Loop.turn", "worker.py:Worker._turn", "run.py:serve"]


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (["commit.py:_send", "commit.py:Committer._write"], "produce"),
        (
            ["commit.py:_send", "commit.py:_Changelog._write", "commit.py:Committer._write"],
            "changelog",
        ),
        (["decide.py:_Decider.decide", "commit.py:Committer._write"], "decide"),
        (
            ["whole_ring.py:WholeRing.admitter.<locals>.admit", "decide.py:_Decider.decide"],
            "decide",
        ),
        (["ring.py:RingDraft.seal", "decide.py:_Decider.seal"], "changelog"),
        (["whole_ring.py:WholeRing.absorb", "cache.py:Cache.absorb", "apply.py:apply"], "apply"),
        (["consume.py:read_headers", "decide.py:_Decider.decide"], "headers"),
        (["commit.py:Committer._flush", "commit.py:Committer.commit"], "commit"),
        (["watch.py:Watch.committed"], REST),
    ],
)
def test_the_innermost_function_that_is_known_tells_the_stage(stack: list[str], stage: str) -> None:
    assert stage_of([*stack, *LOOP]) == stage


def test_what_is_not_the_loop_counts_for_nothing() -> None:
    assert stage_of(["server.py:serve_in_thread", "run.py:serve"]) is None


def test_every_function_of_the_table_exists() -> None:
    modules = [apply, commit, consume, decide, loop, worker, cache, rocks, ring, run]
    known = {module.__name__.rpartition(".")[2] + ".py": module for module in modules}
    named = [name.split(":") for names in STAGES.values() for name in names]
    for file, qualified in [(file, name) for file, name in named if file in known and name]:
        found: object = known[file]
        for part in qualified.partition(".<locals>")[0].split("."):
            found = getattr(found, part)
        assert inspect.isfunction(found) or inspect.isclass(found)
