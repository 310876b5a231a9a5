"""Demo run: sends real flights through a real broker, kills the service, and audits the result.

Exit status 0 only if every flight came out once and unchanged and every copy was kept out; 1
otherwise; 130 if it is interrupted before its end.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from tools.broker.cluster import Broker, open_broker
from tools.demo.audit import Audit, Findings
from tools.demo.books import Books
from tools.demo.flights import FLIGHTS, start_loading
from tools.demo.folder import Left, broker_folder, fresh_folder, leave
from tools.demo.load import Load, Result
from tools.demo.plan import Plan
from tools.demo.publisher import Publisher
from tools.demo.reader import Reader
from tools.demo.screen import Screen, short
from tools.demo.service import Service
from tools.demo.signals import Ended, ended_by_signals
from tools.demo.topics import Names, Topics, names_for
from tools.errors import ToolError

SEED: Final = 2013
MEASURED: Final = "all that was sent, from the first send to the last verdict, kill included"
STARTING_OURS: Final = "starting a real Apache Kafka (its first start fetches the jars) …"
WAITING_FOR_YOURS: Final = "waiting for the broker that the environment names …"
LOADING_TIMEOUT_S: Final = 120.0
CHECK_EVERY_S: Final = 0.5


def demo(*, exit_after: bool) -> int:
    """Run the demo and return the exit status."""
    try:
        with ended_by_signals(), fresh_folder() as folder:
            return play(folder, Screen(), exit_after=exit_after)
    except Ended as end:
        return end.exit_code
    except ToolError as error:
        print(f"ringfence demo: {error}", file=sys.stderr)
        return 1


def play(folder: Path, screen: Screen, *, exit_after: bool) -> int:
    """Run all steps of the demo and return the exit status."""
    with ExitStack() as stack:
        loading = start_loading()
        broker = open_broker(broker_folder(folder))
        is_shared = not broker.controllable
        screen.say(WAITING_FOR_YOURS if is_shared else STARTING_OURS)
        stack.enter_context(broker)
        names = names_for(is_shared=is_shared)
        topics = stack.enter_context(Topics(broker.client_properties, names))
        topics.create(is_shared=is_shared)
        screen.say(f"the broker answers at {broker.bootstrap_servers}; starting the service …")
        service = stack.enter_context(Service(folder, broker.bootstrap_servers, names))
        service.start()
        service.wait_until_ready()
        books = Books(loading.result(timeout=LOADING_TIMEOUT_S))
        screen.say(f"the service is ready at {service.url}; sending {FLIGHTS:,} real flights")
        with new_load(books, broker.client_properties, topics, service, screen) as load:
            result = load.run()
        leave(folder, left_by(result.findings, broker, names))
        fast_path = service.fast_path()
        rows = closing_rows(
            *(result, broker, names, service, folder), fast_path=fast_path, exit_after=exit_after
        )
        screen.close_with(rows)
        screen.say(verdict(result.findings))
        if not exit_after:
            serve_on(service, screen)
        service.stop()
    return 0 if result.findings.is_faultless else 1


def new_load(
    books: Books, kafka: Mapping[str, str], topics: Topics, service: Service, screen: Screen
) -> Load:
    """Return a load whose publisher and audit share the record of sends."""
    names = topics.names
    audit = Audit(books)
    plan = Plan(len(books.flights), SEED)
    return Load(
        books=books,
        audit=audit,
        publisher=Publisher(kafka, names.input, books, plan, lambda: audit.taken),
        reader=Reader(kafka, names, audit),
        service=service,
        topics=topics,
        screen=screen,
    )


def left_by(findings: Findings, broker: Broker, names: Names) -> Left:
    """Return what later commands need to know about the run."""
    return Left(
        bootstrap_servers=broker.bootstrap_servers,
        is_embedded=broker.controllable,
        input=names.input,
        output=names.output,
        dead_letter=names.dead_letter,
        group_id=names.group_id,
        accepted=findings.accepted,
        duplicates=findings.duplicates,
    )


def closing_rows(
    result: Result,
    broker: Broker,
    names: Names,
    service: Service,
    folder: Path,
    *,
    fast_path: str,
    exit_after: bool,
) -> list[tuple[str, str]]:
    """Return the closing table: what the independent reader found, and where to look next.

    With `exit_after` it names no address that nobody answers at when the demo has ended.
    """
    found, kill = result.findings, result.kill
    originals = found.sent - found.copies_sent
    logs = [short(service.log), *([short(broker.log_path)] if broker.controllable else [])]
    return [
        ("sent", f"{found.sent:,}  ({originals:,} flights and {found.copies_sent:,} copies)"),
        ("accepted", f"{found.accepted:,}"),
        ("duplicates", f"{found.duplicates:,}  (dead letters with reason duplicate)"),
        ("missing", f"{found.missing:,}"),
        ("doubled", f"{found.doubled:,}"),
        ("changed", f"{found.changed:,}  (in key, value, headers or time)"),
        *faults(found),
        (
            "messages per second",
            f"{result.messages_per_second:,.0f}  ({MEASURED}: {result.took_s:.1f} s)",
        ),
        ("kill -9", f"at {kill.at}, {kill.sent:,} sent and {kill.accepted:,} accepted by then"),
        ("ready again", f"{result.down_s:.1f} s later"),
        ("fast path", fast_path),
        ("topics", f"{names.input} → {names.output}, {names.dead_letter}"),
        *([] if exit_after and broker.controllable else [("broker", broker.bootstrap_servers)]),
        *([] if exit_after else [("console", f"{service.url}/")]),
        ("logs", ", ".join(logs)),
        ("left behind", short(folder)),
    ]


def faults(found: Findings) -> list[tuple[str, str]]:
    """Return rows for the faults that were found."""
    rows = [
        ("unknown", f"{found.unknown:,}  (no flight has their id)", found.unknown),
        ("miscounted", f"{found.miscounted:,}  (dead letters ≠ copies sent)", found.miscounted),
        *(
            (f"dead: {reason}", f"{count:,}  (dead letters with another reason)", count)
            for reason, count in found.other_dead_letters.items()
        ),
    ]
    return [(name, text) for name, text, count in rows if count]


def verdict(found: Findings) -> str:
    """Return the result in one sentence."""
    if found.is_faultless:
        return "every flight came out exactly once, and every copy was kept out"
    return "NOT exactly once: see the table; topics and logs are kept for a look"


def serve_on(service: Service, screen: Screen) -> None:
    """Keep everything running until a signal arrives."""
    screen.say(f"it goes on serving, see {service.url}/; Ctrl-C ends it")
    with suppress(Ended):
        while True:
            service.check()
            time.sleep(CHECK_EVERY_S)
    screen.say("stopping; next: make spark-tables")
