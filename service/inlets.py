"""Inlets: which route an input partition belongs to, told by the name that its records carry."""

from collections.abc import Callable, Iterable, Mapping

from service.carried import source_of
from service.cluster import TopicInfo
from service.config import RouteSettings
from service.inlet import Inlet
from service.route import InputRoute, is_legal_topic, resolve
from state.edit import Source

Find = Callable[[bytes], Inlet]


def finder(
    routes: Iterable[RouteSettings],
    group_id: str,
    topics: Callable[[], Mapping[str, TopicInfo]],
    doubt: Callable[[str], None] = lambda _topic: None,
) -> Find:
    """What finds the inlets of these routes; `topics` are the inputs that exist now.

    An input that was deleted is known all the same: what has come from it is decided. `doubt` is
    called with the topic of one before it is said to belong to no route, and raises where its route
    may be a new one.
    """
    settings = tuple(routes)

    def find(written: bytes) -> Inlet:
        source = source_of(written)
        if source is None or not is_legal_topic(source.topic):
            name = written.decode(errors="replace")[:300]
            return lost(Source(name, 0), "it does not tell which input it came from")
        bound = resolve(settings, [source.topic], group_id).get(source.topic)
        if bound is None:
            doubt(source.topic)
            return lost(source, f"its input {source.topic} belongs to no route any more")
        info = topics().get(source.topic)
        return Inlet(source, bound, 0 if info is None else info.partitions)

    return find


def lost(source: Source, fault: str) -> Inlet:
    """An inlet that belongs to no route."""
    stand_in = RouteSettings(name=source.topic, inputs=(source.topic,))
    return Inlet(source, InputRoute.bind(stand_in, source.topic), 0, fault)
