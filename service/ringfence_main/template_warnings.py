"""Warnings about ids and addresses that different messages can share.

Such a message may be removed although nobody has sent it twice, and nothing else shows that.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from typing import Final, NamedTuple

from ringfence_service.config.model import Config
from ringfence_service.config.templates import PLAIN, named
from ringfence_service.dedup.route import InputRoute


def kept_templates(file: Config, effective: Config) -> Iterator[str]:
    """Yield a sentence for each template that has an earlier meaning, since its route has started.

    A template that the file has in that form is what its author wants.
    """
    written = {template for route in file.routes for template in (route.id, route.address)}
    for route in effective.routes:
        for key, template in (("id", route.id), ("address", route.address)):
            if template.startswith(PLAIN) and template not in written:
                yield (
                    f'the {key} of the route "{route.name}" is {named(template)}, as when it was '
                    f"first started: messages that differ in a field may have one {key}, and be "
                    "removed; give the route another name, which makes it a new one that "
                    "remembers nothing, or write it as it is here to keep it"
                )


_PAIRS_MAX: Final = 500_000
"""So many pairs of inputs are compared, in some tenths of a second: those of a thousand inputs."""


class _Shape(NamedTuple):
    """The addresses of an input, by the text that is the same in all of them."""

    route: str
    topic: str
    start: str
    end: str
    is_constant: bool
    names_topic: bool
    """Whether {topic} is there, by which the author keeps inputs apart."""

    @classmethod
    def of(cls, route: InputRoute) -> "_Shape":
        """Return that of an input."""
        pieces = route.address.pieces or ("",)
        first, last = pieces[0], pieces[-1]
        return cls(
            route.settings.name,
            route.topic,
            first if isinstance(first, str) else "",
            last if isinstance(last, str) else "",
            route.address.constant is not None,
            "{topic}" in route.settings.address,
        )

    def meets(self, other: "_Shape") -> bool:
        """Whether both can have one address, and one of them has several."""
        if self.is_constant and other.is_constant:
            return False
        if self.is_constant:
            return other.meets(self)
        if other.is_constant:
            text = other.start
            fits = text.startswith(self.start) and text.endswith(self.end)
            return fits and len(text) >= len(self.start) + len(self.end)
        start = sorted((self.start, other.start), key=len)
        end = sorted((self.end, other.end), key=len)
        return start[1].startswith(start[0]) and end[1].endswith(end[0])


def shared_addresses(routes: Mapping[str, InputRoute]) -> Iterator[str]:
    """Yield a sentence for two routes, or a route, of which inputs can have one address.

    That is so although {topic} is in an address if a field of a record beside it can be anything.
    """
    shapes = [_Shape.of(routes[name]) for name in sorted(routes)]
    found = set[tuple[str, ...]]()
    for one, other in islice(combinations(shapes, 2), _PAIRS_MAX):
        names = tuple(sorted({one.route, other.route}))
        keeps_apart = one.names_topic or other.names_topic
        if names in found or not keeps_apart or not one.meets(other):
            continue
        found.add(names)
        whose = f'route "{one.route}"' if len(names) == 1 else f'routes "{names[0]}", "{names[1]}"'
        yield (
            f'the inputs "{one.topic}" and "{other.topic}" of the {whose} can have the same '
            f"address ({routes[one.topic].settings.address} and "
            f"{routes[other.topic].settings.address}); write "
            "a character between {topic} and a field that no topic has, as in {topic}/{key}, or "
            "give each input a route of its own with another text at the beginning of its address"
        )
