"""Warnings about ids and addresses that different messages can share.

Such a message may be removed although nobody has sent it twice, and nothing else shows that.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from service.config.load import Config
from service.config.templates import PLAIN
from service.dedup.route import InputRoute


def kept_templates(file: Config, effective: Config) -> Iterator[str]:
    """Yield a sentence for each template that has an earlier meaning, since its route has started.

    A template that the file has in that form is what its author wants.
    """
    written = {template for route in file.routes for template in (route.id, route.address)}
    for route in effective.routes:
        for key, template in (("id", route.id), ("address", route.address)):
            if template.startswith(PLAIN) and template not in written:
                yield (
                    f'the {key} of the route "{route.name}" is {template}, as when it was first '
                    f"started: messages that differ in a field may have one {key}, and be removed; "
                    "give the route another name, which makes it a new one that remembers nothing, "
                    "or write it as it is here to keep it"
                )


def shared_addresses(routes: Mapping[str, InputRoute]) -> Iterator[str]:
    """Yield a sentence for inputs of a route that can have one address.

    That is so if {topic} stands before a field of the address, and the text of the one input up to
    that field begins with the text of the other.
    """
    beginnings = sorted(
        (route.settings.name, text, topic)
        for topic, route in routes.items()
        for text in route.address.pieces[:1]
        if "{topic}" in route.settings.address
        and route.address.constant is None
        and isinstance(text, str)
    )
    for (name, text, topic), (other_name, longer, other) in pairwise(beginnings):
        if name == other_name and text != longer and longer.startswith(text):
            yield (
                f'the inputs "{topic}" and "{other}" of the route "{name}" can have the same '
                f'address "{longer}…"; write the field first, or give each input a route of its '
                "own with another text in its address"
            )
