"""Publisher queries and changes: the positions of publishers, and setting one."""

from typing import Final

from ringfence_service.config.addresses import settings_of
from ringfence_service.dedup.decider import set_publisher_position
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import first_after
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.inbox import Steps, at_once
from ringfence_service.queries.publisher_numbers import check_change, written_partition
from ringfence_service.queries.publishers import (
    PublisherAnswer,
    PublisherProgress,
    PublisherQuery,
    PublishersAnswer,
    PublishersQuery,
    SetSequence,
    positions_in_order,
)
from ringfence_state.keys import prefix, rest_of
from ringfence_state.model import Claim
from ringfence_state.strategies.registry import STRATEGIES

_ADDRESSES_A_STEP: Final = 128


def publisher(query: PublisherQuery, loop: Loop) -> Steps[PublisherAnswer]:
    """Return the committed positions of a publisher on every address."""
    session = loop.sessions.by_publisher.get(query.publisher)
    is_open = session is not None and session.is_open
    positions = yield from _positions(query.publisher, loop)
    return PublisherAnswer(
        publisher=query.publisher,
        epoch=session.epoch if session is not None and is_open else None,
        user=session.user if session is not None and is_open else None,
        positions=positions_in_order(positions),
        complete=loop.assignment.has_all,
    )


def publishers(query: PublishersQuery, loop: Loop) -> Steps[PublishersAnswer]:
    """Return a page of publisher names, from sessions and state; scans all publisher entries."""
    names = set(loop.sessions.epochs)
    for partition in list(loop.assignment.running.values()):
        kinds = [each.kind for each in STRATEGIES.values() if not each.holds_ids]
        # In one step: the scan of a store must end before the store may be closed.
        stores = [] if partition.store is None else [partition.store]
        for store in (*stores, partition.volatile):
            found = (rest_of(key).decode() for kind in kinds for key, _ in store.scan(kind))
            names.update(first_after(found, query.after, query.limit))
        yield
    first = first_after(names, query.after, query.limit)
    return PublishersAnswer(tuple(first), loop.assignment.has_all)


def change_number(change: SetSequence, loop: Loop) -> PublisherAnswer:
    """Set the position of a publisher in a transaction; return its positions afterwards."""
    check_change(change, loop.config.addresses)
    running = loop.assignment.running.values()
    deciding = [each.source for each in running if each.input_partition and each.changelog]
    positions = at_once(_positions(change.publisher, loop))
    writes = written_partition(change, positions, deciding)
    claim = Claim(
        publisher=change.publisher, number=change.number, stream=change.stream, previous=0
    )
    partition = loop.decider(change.address, writes)(claim)
    if partition is None:
        sentence = (
            f"{writes.topic}-{writes.partition} is no partition that this instance decides; "
            "name topic and partition of an input, and ask the instance that owns it."
        )
        raise NotPossible(sentence)
    if change.dry_run:
        position = PublisherProgress(change.address, *writes, change.number, change.stream)
        now = at_once(publisher(PublisherQuery(change.publisher), loop))
        return now._replace(positions=positions_in_order([*now.positions, position]))
    loop.change(
        lambda rules, plan, _now_ms: set_publisher_position(
            partition, change.address, claim, writes, rules, plan, change.missing
        )
    )
    return at_once(publisher(PublisherQuery(change.publisher), loop))


def _positions(name: str, loop: Loop) -> Steps[list[PublisherProgress]]:
    found = list[PublisherProgress]()
    for source, partition in list(loop.assignment.running.items()):
        for number, address in enumerate(list(partition.addresses), 1):
            if number % _ADDRESSES_A_STEP == 0:
                yield
            if loop.assignment.running.get(source) is not partition:
                break
            position = _position(name, address, partition, loop)
            if position is not None:
                found.append(position)
    return found


def _position(
    name: str, address: str, partition: OwnedPartition, loop: Loop
) -> PublisherProgress | None:
    settings = settings_of(loop.config.addresses, address)
    strategy, store = settings.remembered_by, partition.store_of(settings)
    if strategy.numbers is None:
        return None
    key = prefix(strategy.kind, address) + name.encode()
    value = store.get(key)
    memory = strategy.load([] if value is None else [(key, value)])
    found = strategy.numbers.standing(memory, name)
    if found is None:
        return None
    number, stream, source = found
    return PublisherProgress(address, *(source or partition.source), number, stream)
