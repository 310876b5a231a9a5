"""Upkeep: what a turn of the loop does before it reads records.

It refreshes topics and settings, ensures the producer and advances takeovers. It commits what needs
no record: cleared state, applied settings, offsets that are due, groups that timed out, and the
removal of idle addresses. The time of a partition stands still without records; only groups time
out by the clock.
"""

from collections.abc import Callable, Iterator

from ringfence_service.clock import Clock
from ringfence_service.dedup.decider import expire_addresses, give_up
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.waiting_order import GroupName
from ringfence_service.errors import missing_inputs
from ringfence_service.processor.active_settings import ActiveSettings
from ringfence_service.processor.apply import clear_plans
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.committer import Committer
from ringfence_service.processor.poll import Poller
from ringfence_service.processor.repartition_purger import RepartitionPurger
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.takeover import check_written
from ringfence_service.processor.transaction import TransactionManager


class Upkeep:
    """Keeps topics, settings, partitions and groups of one life of the loop up to date."""

    def __init__(
        self,
        active_settings: ActiveSettings,
        assignment: Assignment,
        poller: Poller,
        committer: Committer,
        transaction_manager: TransactionManager,
        purger: RepartitionPurger,
        clock: Clock,
        reporter: Reporter,
        rewind: Callable[[], None],
    ) -> None:
        """`rewind` makes the loop read again what was consumed and not committed."""
        self._active_settings = active_settings
        self._assignment = assignment
        self._poller = poller
        self._committer = committer
        self._transaction_manager = transaction_manager
        self._purger = purger
        self._clock, self._reporter = clock, reporter
        self._rewind = rewind

    def prepare(self) -> str | None:
        """Do all that precedes reading; return what the loop waits for in the broker, or None.

        Refreshes topics and settings, ensures the producer, and advances takeovers.
        """
        self.find_inputs()
        for partition in self._assignment.running.values():
            check_written(partition)
        self._refresh_targets()
        self._assignment.unreadable.step(
            self._assignment.running, is_all_committed=self._poller.is_empty
        )
        waiting = self._assignment.step()
        edits_max = self._active_settings.config.service.batch_records_max
        for partition in self._selected(lambda partition: partition.to_clear):
            for plan in clear_plans(partition, edits_max):
                self._committer.commit(plan, ())
            self._assignment.retake(partition.source, wipe=False)
        self.follow_settings()
        self._give_up_groups()
        self._expire_addresses()
        self._purger.purge(self._assignment.running.values())
        return waiting

    def standstill(self) -> str | None:
        """Return what routes wait for if no partition can be read meanwhile; else None."""
        inputs = self._active_settings.inputs
        if inputs.missing and not inputs.input_topics:
            return missing_inputs(*inputs.missing)
        return self._assignment.fetching.standstill(self._assignment.running)

    def find_inputs(self) -> bool:
        """Refresh the inputs if it is time; if they changed, subscribe to them and return True."""
        if not self._active_settings.find_inputs():
            return False
        self._rewind()
        self._assignment.subscribe(self._active_settings.inputs.input_topics)
        return True

    def _refresh_targets(self) -> None:
        """Refresh the target topics, and adapt the producer to their record limits."""
        self._active_settings.find_targets()
        self._reporter.beat()  # each request to the broker may have taken seconds
        self._transaction_manager.prepare(self._active_settings.targets.batch_bytes_max)

    def follow_settings(self) -> None:
        """Make new settings effective, apply them to caches, and commit their revision."""
        follower, running = self._active_settings.settings_follower, self._assignment.running
        follower.poll(running.values())
        pending = follower.pending()
        if pending is not None and self._active_settings.activate(pending):
            self._rewind()
            self._assignment.fetching.pause(pending.effective.paused, running.values())
            self._assignment.subscribe(self._active_settings.inputs.input_topics)
            self._refresh_targets()
        follower.mark_current()
        for partition in self._selected(lambda each: bool(follower.unapplied_caches(each))):
            plan = Plan()
            edits = follower.apply_to(partition, self._active_settings.rules, plan)
            self._committer.commit(plan, edits)
            follower.mark_applied(partition)
        late = self._selected(lambda each: follower.is_late(each) or self._begins_at_an_end(each))
        if late:
            plan = Plan()
            plan.next_offsets = {partition.source: partition.next_offset for partition in late}
            self._committer.commit(plan, ())
        applied = follower.applied(running.values())
        self._reporter.follows(
            follower.effective.config, follower.document, applied, follower.fault
        )

    def _begins_at_an_end(self, partition: OwnedPartition) -> bool:
        """Whether `latest` chose the offset: the next owner must not choose another, later one."""
        service = self._active_settings.config.service
        if "latest" not in {service.on_missing_offset, service.on_lost_offset}:
            return False
        return partition.committed_offset != partition.next_offset

    def _give_up_groups(self) -> None:
        """Dead-letter groups that timed out, in each turn as many as a batch may hold."""
        now_s, config = self._clock.monotonic_s(), self._active_settings.config
        service, blocks = config.service, self._assignment.fetching.blocks

        def overdue(partition: OwnedPartition) -> Iterator[GroupName]:
            return partition.groups.overdue(now_s, config.addresses)

        def is_due(partition: OwnedPartition) -> bool:
            return partition.source not in blocks and any(overdue(partition))

        for partition in self._selected(is_due):
            late = partition.groups.first(
                overdue(partition), service.batch_records_max, service.batch_bytes_max
            )
            plan = Plan()
            outputs = give_up(
                partition, late, self._active_settings.rules, plan, self._clock.wall_ms()
            )
            self._committer.commit(plan, outputs)

    def _expire_addresses(self) -> None:
        """Remove addresses that are idle, in each turn as many as are looked at and deleted fast.

        A record for which there is no room does the same at once
        (`service/ringfence_service/dedup/address.py`).
        """
        config, rules = self._active_settings.config, self._active_settings.rules

        def may_have(partition: OwnedPartition) -> bool:
            partition.idle.begin(partition.addresses, config.addresses)
            return partition.idle.may_have(partition.time_ms)

        for partition in self._selected(may_have):
            plan = Plan()
            outputs = expire_addresses(partition, rules, plan, config.service.batch_records_max)
            if plan.expired:
                self._committer.commit(plan, [outputs])

    def _selected(self, predicate: Callable[[OwnedPartition], bool]) -> list[OwnedPartition]:
        """Return the partitions for which to commit something without reading records.

        Pending rebalance callbacks run first: until then a partition may be another member's.
        """
        running = self._assignment.running
        if any(map(predicate, running.values())):
            self._poller.run_callbacks()
        return [partition for partition in running.values() if predicate(partition)]
