"""What tests say in one line: what is there, what is answered, how something ends; and tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import pytest

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.processor.handlers import dispatch as answers
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.inbox import at_once
from ringfence_service.queries.registry import Answer, Query

T = TypeVar("T")


def some(value: T | None) -> T:
    """It is there."""
    assert value is not None
    return value


def answer(query: Query, loop: Loop) -> Answer:
    """What a loop answers that does nothing else meanwhile."""
    told = answers.answer(query, loop)
    return told if isinstance(told, Answer) else at_once(told)


def answered(kind: type[T], query: Query, loop: Loop) -> T:
    """What a loop answers, which is of this kind."""
    found = answer(query, loop)
    assert isinstance(found, kind)
    return found


@contextmanager
def ending(code: ExitCode, sentence: str | None = None) -> Iterator[None]:
    """What is done here ends the process with this code, and with such a sentence."""
    with pytest.raises(ExitError, match=sentence) as ended:
        yield
    assert ended.value.exit_code is code


def rows(names: str | tuple[str, ...], table: Mapping[str, object]) -> pytest.MarkDecorator:
    """Each row a test, with its name in front."""
    return pytest.mark.parametrize(names, table.values(), ids=table)
