"""Mutants: the service with one thing broken, each of which the simulation has to find.

`make sim-mutants` has a process for each that imports the broken code and runs seeds until one
fails; `ARGS="NAME …"` chooses some. A mutant that is equivalent, or beyond what is simulated, says
why and is left out unless it is named.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.imported_as import import_as
from tools.source_roots import python_path

ROOT: Final = Path(__file__).parents[2]
SEEDS_MAX: Final = int(os.environ.get("RINGFENCE_SIM_RUNS") or 4_000)
SEED_S_MAX: Final = 60
AT_ONCE: Final = 2
HUNT: Final = "--hunt"


class Mutant(NamedTuple):
    """One change of one file: `source` stands there once, and `replacement` takes its place."""

    name: str
    path: str
    source: str
    replacement: str
    left_out: str = ""
    """Why no seed can find it, where that is so."""


MUTANTS: Final = (
    Mutant(
        "apply before commit",
        "service/ringfence_service/processor/committer.py",
        "        self._transaction_manager.commit(plan, outputs, build_offsets, member)\n",
        "        outputs = list(outputs)\n"
        "        for each in plan.sealed:\n"
        "            parts = each.partition.source, each.address, each.memory, each.content\n"
        "            self._cache.apply(*parts)\n"
        "        self._transaction_manager.commit(plan, outputs, build_offsets, member)\n",
    ),
    Mutant(
        "the generation of now in place of the batch's",
        "service/ringfence_service/processor/assignment.py",
        "        return self._member\n",
        "        return _metadata(self._consumer)\n",
        left_out="a partition is given away only when its owner has served the callback",
    ),
    Mutant(
        "a store that is ahead of the offset is not wiped",
        "service/ringfence_service/processor/takeover.py",
        "    if position is not None and position.input_next > (facts.committed_offset or 0):\n",
        "    if False:\n",
        left_out="every write to a store follows a commit, so none is ahead; a second guard",
    ),
    Mutant(
        "the ring holds one less",
        "state/ringfence_state/strategies/ring.py",
        "number is not None and number >= self._floor else None\n",
        "number is not None and number > self._floor else None\n",
    ),
    Mutant(
        "an origin names the deciding partition",
        "service/ringfence_service/dedup/evaluator.py",
        "        self._base = contexts.packed_positions.base(input_partition.source)\n",
        "        self._base = contexts.packed_positions.base(progress.source)\n",
    ),
    Mutant(
        "the sweep goes one record too far",
        "service/ringfence_service/processor/repartition_purger.py",
        "{source: at for source, at in decided.items() if at}",
        "{source: at + 1 for source, at in decided.items() if at}",
    ),
    Mutant(
        "no abort after an error",
        "service/ringfence_service/processor/transaction.py",
        "raise TransactionAbortedError(self._abort(producer, plan, failure, began_s))\n",
        "raise TransactionAbortedError(failure)\n",
    ),
    Mutant(
        "all records of a refused batch are blamed although the broker may mean one",
        "service/ringfence_service/dedup/refusal_trace.py",
        "            is_certain = self.broker_names_records or is_alone\n",
        "            is_certain = True\n",
    ),
    Mutant(
        "a record that was reported alone is blamed for others that are not traced",
        "service/ringfence_service/dedup/refusal_trace.py",
        "            is_alone = self.is_whole and len(refusals) == 1\n",
        "            is_alone = len(refusals) == 1\n",
    ),
    Mutant(
        "the mark of a redrive is not written",
        "service/ringfence_service/processor/handlers/redrives.py",
        "        _write(partition, [put(command.redrive, letters, after())], plan)\n",
        "        _write(partition, [], plan)\n",
    ),
    Mutant(
        "the mark of a redrive is written too far",
        "service/ringfence_service/processor/handlers/redrives.py",
        "[put(command.redrive, letters, after())]",
        "[put(command.redrive, letters, after()._replace(done=after().done + 1))]",
    ),
    Mutant(
        "a producer is never suspected for what the client tells",
        "service/ringfence_service/processor/transaction.py",
        'a copy of it may still arrive."""\n        self._suspect = True\n',
        'a copy of it may still arrive."""\n',
    ),
    Mutant(
        "ends are asked before the committed offset",
        "service/ringfence_service/processor/takeover.py",
        "        try:\n            committed = self._consumer.committed(\n",
        "        logs = [log for p in partitions for log in (p.source, p.changelog) if log]\n"
        "        ends = self._cluster.ends(logs)\n"
        "        own = vars(self._cluster)\n"
        "        own['ends'] = lambda wanted: own.pop('ends') and (\n"
        "            ends if ends.keys() == set(wanted) else self._cluster.ends(wanted)\n"
        "        )\n"
        "        try:\n            committed = self._consumer.committed(\n",
        left_out="an end that is too short is asked for again for ten seconds",
    ),
    Mutant(
        "what was kept is not forgotten at a rewind",
        "service/ringfence_service/processor/poll.py",
        '        fatal error and then nothing any more.\n        """\n        self._kept.clear()\n',
        '        fatal error and then nothing any more.\n        """\n',
    ),
    Mutant(
        "a short changelog is believed at once",
        "service/ringfence_service/processor/takeover.py",
        "_SHORT_S: Final = 10.0\n",
        "_SHORT_S: Final = 0.0\n",
    ),
    Mutant(
        "an old store is not wiped",
        "service/ringfence_service/processor/takeover.py",
        "    return now_ms - position.level_at_ms > tombstones_kept_ms // 2\n",
        "    return False\n",
    ),
    Mutant(
        "a truncated changelog passes",
        "service/ringfence_service/processor/takeover.py",
        "changelog_next <= facts.metadata.last_offset:\n",
        "changelog_next < 0:\n",
    ),
    Mutant(
        "a rebalance amid a transaction is ignored",
        "service/ringfence_service/processor/committer.py",
        "            batch = self._poller.poll_more(plan, self._poison_records.records_max)\n"
        "            if self._assignment.rebalances != rebalances:\n",
        "            batch = self._poller.poll_more(plan, self._poison_records.records_max)\n"
        "            if False:\n",
        left_out="`build_offsets` refuses partitions that are gone, the broker the generation",
    ),
    Mutant(
        "the group is not heard before a change over REST",
        "service/ringfence_service/processor/loop.py",
        "        rebalances = self.assignment.rebalances\n        self.poller.run_callbacks()\n",
        "        rebalances = self.assignment.rebalances\n",
        left_out="the broker refuses the generation",
    ),
    Mutant(
        "an epoch is fenced by itself",
        "service/ringfence_service/dedup/checks.py",
        "        if epoch < newest:\n",
        "        if epoch <= newest:\n",
    ),
    Mutant(
        "an unknown inlet is not doubted",
        "service/ringfence_service/dedup/route.py",
        "            doubt(source.topic)\n",
        "",
    ),
    Mutant(
        "the writer of settings does not read to the end",
        "service/ringfence_service/metadata/topic.py",
        "            reader.catch_up(may_fence=False)\n",
        "            reader.poll()\n",
    ),
    Mutant(
        "an input that was created again passes at the takeover",
        "service/ringfence_service/processor/takeover.py",
        "    if metadata.input_topic_id != facts.identity.input_topic_id:\n",
        "    if False:\n",
    ),
    Mutant(
        "the floor of a ring may go back",
        "state/ringfence_state/strategies/ring_memory.py",
        "            self.floor = max(self.floor, segment.floor)\n",
        "            self.floor = segment.floor\n",
        left_out="equivalent: `RingDraft.seal` never lowers it",
    ),
    Mutant(
        "a run is deleted one too early",
        "state/ringfence_state/segment.py",
        "    count = bisect_right(firsts, floor) - (floor < following)\n",
        "    count = bisect_right(firsts, floor)\n",
    ),
    Mutant(
        "only the damaged partition is taken over again",
        "service/ringfence_service/processor/committer.py",
        "            for source in plan.next_offsets:\n"
        "                self._assignment.retake(source, wipe=False)\n"
        "            raise damaged\n",
        "            raise damaged\n",
    ),
    Mutant(
        "a commit that timed out may be aborted",
        "service/ringfence_service/processor/transaction.py",
        "            request, self._suspect = TransactionRequest.COMMIT_AGAIN, True\n",
        "            self._suspect = True\n",
        left_out="the client refuses to abort while a commit is in progress, and the life ends",
    ),
    Mutant(
        "offsets are sent without a membership",
        "service/ringfence_service/processor/transaction.py",
        "producer.send_offsets_to_transaction(offsets, group, _STEP_TIMEOUT_S)",
        "producer.send_offsets_to_transaction(offsets, type(group)(group.group), _STEP_TIMEOUT_S)",
    ),
    Mutant(
        "a rewind keeps what was read",
        "service/ringfence_service/processor/failures.py",
        "            self._poller.discard()\n",
        "",
    ),
    Mutant(
        "a redrive that has ended is decided",
        "service/ringfence_service/processor/handlers/redrives.py",
        "    if not job.is_running:\n        return RedriveAnswer",
        "    if False:\n        return RedriveAnswer",
    ),
    Mutant(
        "a stale job is believed",
        "service/ringfence_service/processor/handlers/redrives.py",
        "    if not has_caught_up:\n",
        "    if False:\n",
    ),
    Mutant(
        "the time of a partition goes back",
        "service/ringfence_service/dedup/evaluator.py",
        "            if timestamp > time_ms:\n",
        "            if True:\n",
    ),
    Mutant(
        "a ring does not see its draft",
        "state/ringfence_state/strategies/ring.py",
        "        number = self._numbers.get(identifier)\n        if number",
        "        number = None\n        if number",
    ),
    Mutant(
        "a window holds one less",
        "state/ringfence_state/strategies/window.py",
        "and self._count <= self._settings.window_size:\n",
        "and self._count < self._settings.window_size:\n",
    ),
    Mutant(
        "what was stamped is remembered with the address's own",
        "service/ringfence_service/dedup/address.py",
        "        return self._at(context.name, BRIDGE + context.name)\n",
        "        return self._at(context.name, context.name)\n",
    ),
    Mutant(
        "the membership outlasts its loss",
        "service/ringfence_service/processor/assignment.py",
        "        self._drop(consumer, taken)\n        self._member = None\n",
        "        self._drop(consumer, taken)\n",
        left_out="the broker refuses a member that it has forgotten",
    ),
    Mutant(
        "a restore is done one offset early",
        "service/ringfence_service/processor/restore.py",
        "        return self.position.changelog_next >= self.end\n",
        "        return self.position.changelog_next >= self.end - 1\n",
    ),
    Mutant(
        "the restorer takes a record twice",
        "service/ringfence_service/processor/restore.py",
        "        if replay is None or (message.offset() or 0) < replay.reached:\n",
        "        if replay is None:\n",
        left_out="equivalent: an edit that is made twice is the same edit",
    ),
    Mutant(
        "a takeover does not replay what the standby copy lacks",
        "service/ringfence_service/processor/takeover.py",
        "        replay.end = facts.changelog.end\n",
        "        replay.end = replay.position.changelog_next\n",
    ),
    Mutant(
        "a standby copy is continued whatever it is a copy of",
        "service/ringfence_service/processor/takeover.py",
        "        if store_fault(replay.position, facts, self._clock.wall_ms()) is not None:\n",
        "        if False:\n",
        left_out="a second guard: copies are compared when opened, and drop what was replaced",
    ),
    Mutant(
        "a standby copy that was away for too long is level",
        "service/ringfence_service/processor/standby.py",
        "            if is_too_old(replay.position, copy.asked_ms, copy.tombstones_kept_ms):\n",
        "            if False:\n",
        left_out="no process is stopped here for half a day; a copy is looked at when it is opened",
    ),
    Mutant(
        "a standby copy is level before it has caught up",
        "service/ringfence_service/processor/standby.py",
        "            if not replay.done or copy.level_s == copy.asked_s:\n",
        "            if copy.level_s == copy.asked_s:\n",
        left_out="it decides only when a member joins; tests/loop/test_standby.py finds it",
    ),
    Mutant(
        "what a standby copy has read and not applied is lost at a takeover",
        "service/ringfence_service/processor/restore.py",
        "        self.edits, self.reached = [], self.position.changelog_next\n",
        "        self.edits = []\n",
        left_out="a takeover has to follow a failed step at once; test_restore.py finds it",
    ),
    Mutant(
        "a standby copy follows a partition that is owned",
        "service/ringfence_service/processor/standby.py",
        "            if source not in owned\n",
        "            if True\n",
    ),
    # A fix taken out: each of these was a fault of the service once.
    Mutant(
        "a transaction begins on any producer",
        "service/ringfence_service/processor/transaction.py",
        "        producer = self._trusted(waits_for_flush=plan.is_traced)\n",
        "        producer = self._trusted() if self._producer is None else self._producer\n",
    ),
    Mutant(
        "the first piece is decided in the transaction",
        "service/ringfence_service/processor/transaction.py",
        "            first = next(parts, ())\n",
        "            first = ()\n",
    ),
    Mutant(
        "a transaction takes in more whatever its age",
        "service/ringfence_service/processor/committer.py",
        "            if self._cache.is_full or self._decided_for_s > self._load_s_max / 2:\n",
        "            if self._cache.is_full:\n",
        left_out="a second guard: a piece that has to load something then is not decided",
    ),
    Mutant(
        "a transaction loads whatever its age",
        "state/ringfence_state/cache.py",
        "            if self._is_bounded and self._is_late():\n",
        "            if False:\n",
    ),
    Mutant(
        "an older file gives up what a newer one has a route for",
        "service/ringfence_service/processor/active_settings.py",
        "        awaited = self.settings_follower.missing_for(topic)\n",
        "        awaited = None\n",
    ),
    Mutant(
        "an input that was created again is read on",
        "service/ringfence_service/processor/assignment.py",
        "        if _is_replaced(partition, input_topic):\n",
        "        if False:\n",
    ),
    Mutant(
        "a short end of an input is believed at once",
        "service/ringfence_service/processor/takeover.py",
        "    if is_same and facts.input.end < (facts.committed_offset or 0):\n",
        "    if False:\n",
    ),
    Mutant(
        "a change that was committed and not applied is forgotten",
        "service/ringfence_service/processor/committer.py",
        "            raise NotAppliedError(repr(error)) from error\n",
        "            raise\n",
    ),
    Mutant(
        "a piece that was not delivered is taken for one that was",
        "service/ringfence_service/processor/transaction.py",
        "            if not changelog.is_written:\n",
        "            if False:\n",
    ),
    Mutant(
        "an answer counts from when it was looked at",
        "service/ringfence_service/processor/takeover.py",
        "            if self._is_short(partition, found, asked_s):\n",
        "            if self._is_short(partition, found, self._clock.monotonic_s()):\n",
    ),
    Mutant(
        "a record has more headers than the state can count",
        "service/ringfence_service/dedup/transaction_group.py",
        "        if len(kept) > HEADERS_MAX:\n",
        "        if False:\n",
    ),
    # What one route awaits concerns the others, or is awaited without an end.
    Mutant(
        "a record that waits stops every partition of its process",
        "service/ringfence_service/processor/fetcher.py",
        "        self.blocks[source] = Block(sentence, awaits, self._clock.wall_ms())\n"
        "        self.stop([source])\n",
        "        self.blocks[source] = Block(sentence, awaits, self._clock.wall_ms())\n"
        "        self.stop(list(self._fetched))\n",
    ),
    Mutant(
        "the loop sleeps while a record waits",
        "service/ringfence_service/processor/failures.py",
        "        self.block({source: awaited})\n",
        "        self.block({source: awaited})\n"
        "        self._retry_policy.back_off(awaited.sentence)\n",
    ),
    Mutant(
        "the loop waits for a schema",
        "service/ringfence_service/schemas/documents.py",
        "        accepted = [number for number in numbers if self._lookups.want(number, route)]\n",
        "        accepted = [number for number in numbers if self._lookups.want(number, route)]\n"
        "        for number in accepted:\n"
        "            self._lookups.wait(number, WAIT_S)\n",
    ),
    Mutant(
        "a wait is never over",
        "service/ringfence_service/processor/fetcher.py",
        "            if sentence is None:\n",
        "            if False:\n",
    ),
    Mutant(
        "a wait is over at once",
        "service/ringfence_service/processor/fetcher.py",
        "            sentence = block.awaits()\n",
        "            sentence = None\n",
    ),
    Mutant(
        "what was read of a partition that waits is decided",
        "service/ringfence_service/processor/failures.py",
        "        self._poller.skip(waiting)\n",
        "",
    ),
    Mutant(
        "a missing target is looked for once",
        "service/ringfence_service/processor/active_settings.py",
        "            self._are_targets_stale = self._are_targets_stale or self.targets.is_missed\n",
        "",
    ),
    Mutant(
        "the grace of a refused id never ends",
        "service/ringfence_service/schemas/lookups.py",
        "        if not is_again and now_s - wanted.failed_since_s < GRACE_S:\n",
        "        if not is_again:\n",
    ),
    Mutant(
        "a refused id has no grace",
        "service/ringfence_service/schemas/lookups.py",
        "        if not is_again and now_s - wanted.failed_since_s < GRACE_S:\n",
        "        if False:\n",
    ),
    Mutant(
        "a registry that answers nothing refuses ids",
        "service/ringfence_service/schemas/lookups.py",
        "                is_there = True\n",
        "                pass\n            is_there = True\n",
    ),
    Mutant(
        "an id that the registry did not know is unknown for ever",
        "service/ringfence_service/schemas/documents.py",
        "[each for each, lacking in self._lacking.items() if lacking.until_s < now_s]",
        "list[int]()",
    ),
    Mutant(
        "scope id: records of a group have the keys of their ids",
        "service/ringfence_service/dedup/repartition_keys.py",
        "    if group is not None:\n",
        "    if False:\n",
    ),
    Mutant(
        "scope id: a record with an id has the key of its input partition",
        "service/ringfence_service/dedup/repartition_keys.py",
        "    if claim.identifier is not None:\n",
        "    if False:\n",
    ),
    Mutant(
        "scope id: records of a publisher have the keys of their ids",
        "service/ringfence_service/dedup/repartition_keys.py",
        "    if claim.publisher is not None:\n",
        "    if False:\n",
    ),
    Mutant(
        "scope id: each partition has a ring of the whole size",
        "service/ringfence_service/config/addresses.py",
        "-(-self.id_cache_size // self.shares)",
        "self.id_cache_size",
    ),
)
"""Ends by the last stable offset are not among them: the fake answers for
`ringfence_service.kafka.admin`."""


def hunt(mutant: Mutant, seeds_max: int) -> str | None:
    """Break the code and run seeds of all simulations until one fails; tells which, or None."""
    text = (ROOT / mutant.path).read_text()
    assert text.count(mutant.source) == 1, mutant.name
    broken = text.replace(mutant.source, mutant.replacement)
    import_as(mutant.path, broken.encode(), ROOT)
    # Here, since what is broken must not be loaded before.
    from tests.simulation.odd_logs import simulate_odd_logs  # noqa: PLC0415
    from tests.simulation.redriving import simulate_redrive  # noqa: PLC0415
    from tests.simulation.runs import be_quiet  # noqa: PLC0415
    from tests.simulation.world import simulate  # noqa: PLC0415

    def runs() -> Iterator[tuple[str, Callable[[int], Counter[str]], int]]:
        for seed in range(1, seeds_max + 1):
            yield "seed", simulate, seed
            if seed % 10 == 0:
                yield "odd logs, seed", simulate_odd_logs, seed // 10
            if seed % 25 == 0:
                yield "redrive, seed", simulate_redrive, seed // 25

    be_quiet()
    signal.signal(signal.SIGALRM, _too_long)
    for name, run, seed in runs():
        signal.alarm(SEED_S_MAX)
        try:
            run(seed)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is found
            return f"{name} {seed}: {fault!r:.100}"
        finally:
            signal.alarm(0)
    return None


def _too_long(*_: object) -> None:
    raise TimeoutError("the run does not come to an end")


def found(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> str | None:
    """Hunt one in a process of its own; tells what found it, or None."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", HUNT, mutant.name],
        cwd=ROOT,
        env={"PYTHONPATH": python_path(ROOT), "RINGFENCE_SIM_RUNS": str(seeds_max)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        return f"it does not even load: {ended.stderr[-300:]}"
    return ended.stdout.strip() or None


def main(names: Sequence[str]) -> int:
    """Hunt mutants, all or those named; the exit code tells whether one survives."""
    chosen = [each for each in MUTANTS if each.name in names or not (names or each.left_out)]
    survivors = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, fault in zip(chosen, pool.map(found, chosen), strict=True):
            survivors += fault is None
            print(f"{mutant.name}: {fault or 'SURVIVES'}", flush=True)
    for mutant in MUTANTS:
        if mutant.left_out and not names:
            print(f"{mutant.name}: left out, {mutant.left_out}")
    return 1 if survivors else 0


if __name__ == "__main__":
    if HUNT in sys.argv:
        (hunted,) = (each for each in MUTANTS if each.name == sys.argv[-1])
        print(hunt(hunted, SEEDS_MAX) or "")
    else:
        sys.exit(main(sys.argv[1:]))
