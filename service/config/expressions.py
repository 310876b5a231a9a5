"""Input expressions: inputs of a route that are regular expressions, in the syntax of RE2.

RE2 is imported when an expression is met: where inputs are only named it need not be installed.
"""

from functools import cache
from typing import Any

from service.config.model import EXPRESSION_MARKER


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


@cache
def _options() -> Any:  # noqa: ANN401 - re2 has no types
    import re2

    options = re2.Options()
    options.log_errors = False  # RE2 would write them to stderr
    return options
