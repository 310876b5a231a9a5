"""Look-ups: which schemas to ask the registry for, when, and what to conclude from its answers.

A thread asks; the loop notes here what it needs, and goes on with something else. Each route has
a line of its own, and the lines take turns. Ids that lead to no schema cost a line its budget, so a
flood of them slows only the route whose payloads name them.
Invariants: a registry that answers nothing is asked one thing at a time, and proves nothing about
any id. An id counts as refused only while the registry answers about another one.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ringfence_service.schemas.decoders import Decoder, chars_of, decoder_of
from ringfence_service.schemas.errors import RegistryUnavailableError, SchemaUnusableError
from ringfence_service.schemas.registry import RegisteredSchema, SchemaRegistry

AT_ONCE: Final = 4
"""How many schemas are asked for at a time."""
WANTED_MAX: Final = 1_000
"""How many ids a line holds. Those beyond are wanted again when their partition is read again."""
FRUITLESS_MAX: Final = 100
"""How many requests of a line may lead to no schema at once; then `FRUITLESS_PER_S` limits them.

Schemas that are found cost nothing of it, so only ids without a schema slow their route.
"""
FRUITLESS_PER_S: Final = 10.0
"""How many more a second: the load that such ids of one route put on the registry."""
GRACE_S: Final = 30.0
"""How long an id has to be refused. A registry that is restarted is back sooner."""
REMEMBERED_S: Final = 3_600.0
"""For how long an id that was refused is refused without the grace when it is wanted again."""
REFUSED_MAX: Final = 10_000
"""How many refused ids are remembered: payloads may name any number.

The oldest makes room, and has the grace again when it is wanted.
"""

_CLOSE_S: Final = 5.0
"""How long the end of the process waits for the thread, which cancels its requests at once."""
_PAUSES_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses after failures in a row, of an id or of the registry; the last is repeated.

Partitions wait meanwhile, so the first are short. While ids are wanted, the first is also the time
between two looks at what is due.
"""
_NOBODY: Final = 2**31 - 1
"""An id to ask for when none is known: the registry says that it does not have it."""

Result = Literal["found", "unknown", "unusable", "refused"]

_log = logging.getLogger(__name__)  # executors of Spark have no structlog


class Answer(NamedTuple):
    """What is known about an id after it was asked for."""

    result: Result
    decoder: Decoder | None = None
    """Only of a schema that was found."""
    cause: str = ""
    """Why it cannot be used, or how the registry refuses it."""
    chars: int = 0
    """How many characters the decoder was made from."""


@dataclass(slots=True)
class _Wanted:
    """An id that was not answered yet."""

    routes: list[str]
    """Whose payloads name it."""
    asked_for: str | None = None
    """The route on whose behalf it is being asked for."""
    due_s: float = float("-inf")
    failed_since_s: float | None = None
    failures: int = 0
    cause: str = ""


@dataclass(slots=True)
class _Line:
    """The ids that the payloads of one route name."""

    numbers: dict[int, None] = field(default_factory=dict)
    budget: float = FRUITLESS_MAX
    refilled_s: float = float("-inf")


class LookupPlan:
    """Decides what to ask next; knows no clock and no network. Not safe between threads."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._wanted: dict[int, _Wanted] = {}
        self._lines: dict[str, _Line] = {}
        """By route; the first one is served next."""
        self._refused_s: dict[int, float] = {}
        """When ids were refused last."""
        self._asking = 0
        self._away_since: str | None = None
        """Why the registry answers nothing; None while it does."""
        self._away_failures = 0
        self._resumes_s = float("-inf")

    def want(self, number: int, route: str) -> bool:
        """Have an id asked for; return False if the line of its route is full."""
        line = self._lines.setdefault(route, _Line())
        if number not in line.numbers and len(line.numbers) < WANTED_MAX:
            self._wanted.setdefault(number, _Wanted([])).routes.append(route)
            line.numbers[number] = None
        return number in self._wanted

    def next(self, now_s: float) -> int | None:
        """Return the id to ask for now, and count it as being asked; None if there is none."""
        at_once = AT_ONCE if self._away_since is None else 1
        if self._asking >= at_once or self.is_resting(now_s):
            return None
        for route in list(self._lines):
            line = self._lines.pop(route)
            self._lines[route] = line  # the last one now
            elapsed_s = max(0.0, now_s - line.refilled_s)
            line.budget = min(FRUITLESS_MAX, line.budget + FRUITLESS_PER_S * elapsed_s)
            line.refilled_s = now_s
            number = self._first_due(line, now_s) if line.budget >= 1 else None
            if number is not None:
                self._wanted[number].asked_for = route
                self._asking += 1
                return number
        return None

    def _first_due(self, line: _Line, now_s: float) -> int | None:
        for number in line.numbers:
            wanted = self._wanted[number]
            if wanted.asked_for is None and wanted.due_s <= now_s:
                return number
        return None

    def answered(self, number: int, *, is_found: bool) -> None:
        """Note that the registry has said what it has; a schema that is not there costs budget."""
        self._is_there()
        self._refused_s.pop(number, None)
        if not is_found:
            self._spend(number)
        self._end(number)

    def failed(self, number: int, cause: str, *, is_there: bool, now_s: float) -> bool:
        """Note a request without a usable answer; return whether the id counts as refused.

        `is_there`: the registry answered about another id meanwhile.
        """
        wanted = self._wanted[number]
        wanted.cause = cause
        if not is_there:
            self.away(cause, now_s)
            wanted.asked_for, wanted.failed_since_s, wanted.failures = None, None, 0
            self._asking -= 1
            return False
        self._is_there()
        self._spend(number)
        if wanted.failed_since_s is None:
            wanted.failed_since_s = now_s
        before_s = self._refused_s.get(number, float("-inf"))
        is_again = now_s - before_s <= REMEMBERED_S
        if not is_again and now_s - wanted.failed_since_s < GRACE_S:
            wanted.due_s = now_s + _pause_s(wanted.failures)
            wanted.asked_for, wanted.failures = None, wanted.failures + 1
            self._asking -= 1
            return False
        self._end(number)
        self._refused_s.pop(number, None)
        self._refused_s[number] = now_s
        if len(self._refused_s) > REFUSED_MAX:
            del self._refused_s[next(iter(self._refused_s))]
        return True

    def awaited(self, number: int) -> str | None:
        """Return what is awaited for an id, as a sentence; None if it is not wanted any more."""
        wanted = self._wanted.get(number)
        if wanted is None:
            return None
        registry = f"the schema registry at {self._url}"
        if self._away_since is not None:
            return f"{registry}, which {self._away_since}"
        if all(self._lines[route].budget < 1 for route in wanted.routes):
            return (
                f"{registry}, which lacks the schemas that payloads of the route "
                f"{wanted.routes[0]} name; it is asked for {FRUITLESS_PER_S:g} of them a second"
            )
        if wanted.cause:
            return f"{registry}, which has not returned schema {number}: it {wanted.cause}"
        return not_yet(self._url, number)

    def is_resting(self, now_s: float) -> bool:
        """Whether nothing is asked because the registry has just answered nothing."""
        return now_s < self._resumes_s

    def hurry(self, number: int) -> None:
        """Ask for an id without the pause after a failure: somebody waits for it."""
        self._resumes_s = float("-inf")
        if number in self._wanted:
            self._wanted[number].due_s = float("-inf")

    @property
    def is_idle(self) -> bool:
        """Whether nothing is wanted."""
        return not self._wanted

    def away(self, cause: str, now_s: float) -> None:
        """Note that the registry answers nothing."""
        self._away_since = cause
        self._resumes_s = now_s + _pause_s(self._away_failures)
        self._away_failures += 1

    def _spend(self, number: int) -> None:
        route = self._wanted[number].asked_for
        assert route is not None  # it was asked for
        self._lines[route].budget -= 1

    def _end(self, number: int) -> None:
        for route in self._wanted.pop(number).routes:
            del self._lines[route].numbers[number]
        self._asking -= 1

    def _is_there(self) -> None:
        self._away_since, self._away_failures, self._resumes_s = None, 0, float("-inf")


def _read(schema: RegisteredSchema) -> Answer:
    try:
        return Answer("found", decoder_of(schema), chars=chars_of(schema))
    except SchemaUnusableError as error:
        return Answer("unusable", cause=str(error))


def not_yet(url: str, number: int) -> str:
    """Return what is awaited for an id about which nothing is known."""
    return f"the schema registry at {url}, which has not returned schema {number} yet"


def _pause_s(failures: int) -> float:
    return _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]


class Lookups:
    """Asks a registry for the schemas that are wanted, on a thread of its own; safe on any."""

    def __init__(
        self,
        url: str,
        opened: Callable[[], SchemaRegistry],
        on_lookup: Callable[[str], None] = lambda _result: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`opened` makes the registry with the first look-up.

        `on_lookup` gets the result of each request, on the thread: that of an answer, or failed.
        """
        self.url = url
        self._opened, self._on_lookup, self._monotonic_s = opened, on_lookup, monotonic_s
        self._plan = LookupPlan(url)
        self._changed = threading.Condition()
        """Guards the plan and the answers; notified of each answer."""
        self._answers: dict[int, Answer] = {}
        """Those that `take` has not returned yet."""
        self._known = _NOBODY
        """An id about which the registry answers, as far as is known."""
        self._answers_total = self._failures_total = 0
        self._events: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="ringfence-schemas", daemon=True)
        self._wake = asyncio.Event()
        self._is_closing = False

    def want(self, number: int, route: str) -> bool:
        """Have an id asked for, on behalf of a route; return False if it wants too many."""
        with self._changed:
            if number in self._answers or self._is_closing:
                return True
            is_wanted = self._plan.want(number, route)
            if self._events is None:
                self._events = asyncio.new_event_loop()
                self._thread.start()
        self._events.call_soon_threadsafe(self._wake.set)
        return is_wanted

    def take(self) -> dict[int, Answer]:
        """Return the answers since the last call."""
        if not self._answers:  # without the lock, since this is asked for each piece
            return {}
        with self._changed:
            taken, self._answers = self._answers, {}
            return taken

    def awaited(self, number: int) -> str | None:
        """Return what is awaited for an id, as a sentence; None if it is not wanted any more."""
        with self._changed:
            return self._plan.awaited(number)

    def wait(self, number: int, seconds: float) -> None:
        """Ask for an id now and wait until it is answered or a request fails, at most so long."""
        with self._changed:
            failures = self._failures_total
            self._hurry(number)
            self._changed.wait_for(
                lambda: self._plan.awaited(number) is None or self._failures_total > failures,
                seconds,
            )

    def _hurry(self, number: int) -> None:
        self._plan.hurry(number)
        if self._events is not None and not self._is_closing:
            self._events.call_soon_threadsafe(self._wake.set)

    def close(self) -> None:
        """End the thread and close the registry; requests that are under way are given up."""
        with self._changed:
            self._is_closing, events = True, self._events
        if events is not None and not events.is_closed():
            events.call_soon_threadsafe(self._wake.set)
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        assert self._events is not None  # this runs in the thread of it
        try:
            self._events.run_until_complete(self._serve())
        finally:
            self._events.close()

    async def _serve(self) -> None:
        under_way, registry = set[asyncio.Task[None]](), None
        while not self._is_closing:
            self._wake.clear()
            with self._changed:
                registry = registry or self._try_open()
                number = self._plan.next(self._monotonic_s()) if registry else None
                pause_s = None if self._plan.is_idle else _PAUSES_S[0]
            if number is None or registry is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                continue
            task = asyncio.create_task(self._ask(registry, number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if registry is not None:
            await registry.close()

    def _try_open(self) -> SchemaRegistry | None:
        if self._plan.is_resting(self._monotonic_s()):
            return None
        try:
            return self._opened()
        except Exception as error:  # noqa: BLE001 - such as a file that is gone; shown as the cause
            self._plan.away(f"cannot be asked ({error!r})", self._monotonic_s())
            self._failures_total += 1
            self._changed.notify_all()
            return None

    async def _ask(self, registry: SchemaRegistry, number: int) -> None:
        answers_before = self._answers_total
        try:
            schema = await registry.schema(number)
            answer = Answer("unknown") if schema is None else _read(schema)
        except SchemaUnusableError as error:
            answer = Answer("unusable", cause=str(error))
        except RegistryUnavailableError as error:
            await self._failed(registry, number, error.cause, answers_before)
            return
        except Exception as error:  # noqa: BLE001 - shown as the cause
            _log.exception("The look-up of schema %d failed", number)
            await self._failed(registry, number, f"answered {error!r}", answers_before)
            return
        self._on_lookup(answer.result)
        self._answers_total += 1
        if answer.result == "found":
            self._known = number
        with self._changed:
            self._plan.answered(number, is_found=answer.result == "found")
            self._give(number, answer)

    async def _failed(
        self, registry: SchemaRegistry, number: int, cause: str, answers_before: int
    ) -> None:
        self._on_lookup("failed")
        is_there = self._answers_total > answers_before
        if not is_there:
            with contextlib.suppress(RegistryUnavailableError):
                await registry.probe(self._known if self._known != number else _NOBODY)
                is_there = True
        with self._changed:
            self._failures_total += 1
            if self._plan.failed(number, cause, is_there=is_there, now_s=self._monotonic_s()):
                self._on_lookup("refused")
                self._give(number, Answer("refused", cause=cause))
            self._changed.notify_all()

    def _give(self, number: int, answer: Answer) -> None:
        self._answers[number] = answer
        self._changed.notify_all()
        self._wake.set()
