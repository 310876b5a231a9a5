"""Inputs: which topics are read, by their names or by a regular expression in the syntax of RE2.

RE2 is imported when an expression is met: where inputs are only named it need not be installed.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

EXPRESSION_MARKER: Final = "^"
"""First character of an input that is a regular expression."""


def expression_fault(topic: str) -> str | None:
    """Return why an input that is marked as a regular expression is not one, or None."""
    if not topic.startswith(EXPRESSION_MARKER):
        return None
    import re2

    try:
        re2.compile(topic, _options())
    except re2.error as error:
        return str(error.args[0], "utf-8", "replace")
    except UnicodeEncodeError:
        return "it contains an unpaired surrogate"
    return None


def fits(expression: str, topic: str) -> bool:
    """Whether an expression matches a topic; an invalid one, of another version, matches none."""
    import re2

    return expression_fault(expression) is None and bool(re2.match(expression, topic, _options()))


def reads(topics: Iterable[str], topic: str) -> bool:
    """Whether a topic is one of those to read: by its name, or by a regular expression."""
    return any(
        fits(name, topic) if name.startswith(EXPRESSION_MARKER) else name == topic
        for name in topics
    )


OF_KAFKA: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Topics whose records only brokers understand."""


def may_be_read(topic: str, inputs: Iterable[str], group_id: str) -> bool:
    """Whether a topic may be an input, if it is among these; a group's own topics may not.

    Regular expressions find no topic that begins with `__`, such as Kafka's own.
    """
    if topic.startswith(f"{group_id}.") or topic in OF_KAFKA:
        return False
    return not topic.startswith("__") or topic in inputs


@cache
def _options() -> Any:  # noqa: ANN401 - re2 has no types
    import re2

    options = re2.Options()
    options.log_errors = False  # RE2 would write them to stderr
    return options
