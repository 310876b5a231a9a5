"""First start: the layout is written down; at every later one it has to be the same.

The routes of the instance's own file are written with it, before anything is read by them.
"""

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from service.clock import Clock
from service.config_record import ConfigRecord
from service.config_topic import Follower, Writer
from service.errors import ExitCode, ExitError
from service.faults import fault_of
from service.file_routes import FileRoutes
from service.kafka import Clients
from service.layout import Layout, contradiction
from service.settings import Settings

_ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.2


def check_layout(
    now: Callable[[Settings], Layout],
    own: FileRoutes,
    follower: Follower,
    clients: Clients,
    topic: str,
    clock: Clock,
    beat: Callable[[], None],
) -> None:
    """Write down what is new of the layout; ExitError 5 where it contradicts what was written.

    `now` tells it as it should be with what is set; `own` are the routes of this instance's file,
    which are written where they are not yet.
    All processes of a group start at once and fence each other: whoever is fenced looks again.
    KafkaException where the broker refuses.
    """
    writer = Writer(lambda: clients, topic, clock)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        is_written = _checked(follower.settings, wanted := now(follower.settings)) == wanted
        if is_written and follower.settings.file_routes.has(own):
            return
        beat()  # each attempt may take most of a minute
        try:
            writer.write_once(_change(now, own))
        except KafkaException as error:
            if attempt == _ATTEMPTS_MAX:
                raise _final(error) from error
            clock.sleep(_PAUSE_S * attempt)
        beat()
        follower.catch_up()


def _final(error: KafkaException) -> KafkaException:
    """What to go by after the last attempt: to be fenced here tells of no process of our name."""
    if not fault_of(error.args[0]).fenced:
        return error
    reason = "others write the layout; it is tried again"
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001 - its name


def _change(
    now: Callable[[Settings], Layout], own: FileRoutes
) -> Callable[[Settings], Sequence[ConfigRecord]]:
    def change(settings: Settings) -> Sequence[ConfigRecord]:
        wanted = now(settings)  # what is set may be newer than what we have read
        _checked(settings, wanted)
        if settings.file_routes.has(own):  # another process of this instance was first
            return [wanted.record]
        return [settings.file_routes.record_of(own), wanted.record]

    return change


def _checked(settings: Settings, now: Layout) -> Layout | None:
    """The layout that was written, which now does not contradict."""
    sentence = None if settings.layout is None else contradiction(settings.layout, now)
    if sentence is not None:
        raise ExitError(ExitCode.CONTRADICTION, sentence)
    return settings.layout
