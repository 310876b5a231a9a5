"""Needs: what a configuration asks of topics and groups, and which of it is not granted.

docs/configuration.md lists the same for operators. Transactional ids are left out: no broker tells
of their rights without a transaction being begun.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from service.cluster import NewTopicInfo, TopicInfo
from service.config import Config
from service.errors import Problem
from service.inputs import decides_by_address
from service.part import Hop, consumer_group
from service.rights import READING, WRITING, Granted, Rights, not_makeable, ungranted, user_of
from service.route import InputRoute, written_topics
from service.topics import by_address, new_target

_GROUP: Final = frozenset({"READ"})


def needs_of_routes(routes: Mapping[str, InputRoute]) -> dict[str, frozenset[str]]:
    """The operations on each input, and on each topic that a route may write."""
    return dict.fromkeys(routes, READING) | dict.fromkeys(written_topics(routes), WRITING)


def needs_of_own(group_id: str, own: Iterable[NewTopicInfo]) -> dict[str, frozenset[str]]:
    """The operations on our own topics; what is decided is deleted from one of them."""
    carried = by_address(group_id)
    more = {carried: frozenset({"DELETE"})}
    return {each.name: READING | WRITING | more.get(each.name, frozenset()) for each in own}


def new_outputs(
    config: Config, routes: Mapping[str, InputRoute], inputs: Mapping[str, TopicInfo]
) -> list[NewTopicInfo]:
    """What the service would make beside its own, were it all missing."""
    if not config.service.create_topics:
        return []
    wanted = {target: inputs[name] for name in inputs for target in routes[name].targets()}
    replication = config.service.internal_replication
    return [new_target(name, input_, replication) for name, input_ in wanted.items()]


def rights_problems(
    config: Config,
    rights: Rights,
    needs: Mapping[str, frozenset[str]],
    granted: Mapping[str, Granted],
    made: Iterable[NewTopicInfo],
) -> Iterator[Problem]:
    """Yield what is not granted; `granted` has all topics that exist, `made` is to be made."""
    user = user_of(config.kafka.common, config.kafka.admin)
    yield from ungranted("topic", needs, granted, user)
    missing = [each for each in made if each.name not in granted]
    yield from not_makeable(rights.unmakeable(missing), user)
    hops = [Hop.INPUTS, Hop.ADDRESSES] if decides_by_address(config) else [Hop.INPUTS]
    groups = dict.fromkeys((consumer_group(config.service.group_id, hop) for hop in hops), _GROUP)
    yield from ungranted("group", groups, rights.of_groups(groups), user)
