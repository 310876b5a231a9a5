"""Overview of all commands, by section, with a sentence each, as `ringfence --help` shows it.

It imports no other module of the service, so that the help is fast.
"""

from typing import Final, NamedTuple


class LazyCommand(NamedTuple):
    """A command that is imported when it is called."""

    import_path: str
    """`module:attribute` of its Typer app, relative to `service.cli`."""
    sentence: str


RUN: Final = {
    "serve": "Run the processor and its admin API until SIGTERM.",
    "bridge": "Forward topics to another cluster until SIGTERM.",
    "adopt": "Import the ids of a topic that was in use before Ringfence.",
    "check": "Check the configuration, then the broker.",
    "try": "Send one message twice to an input, and show what becomes of it.",
    "token": "Create a token for the admin API; it is printed once.",
    "demo": "Send real flights through a real broker.",
    "pipeline": "Run a Spark job; see pipeline --help.",
    "broker": "The embedded development broker: a real Apache Kafka.",
}
LATER: Final[dict[str, dict[str, LazyCommand]]] = {
    "Look": {
        "status": LazyCommand(
            "status:app", "Show what the service does now; --watch keeps showing it."
        ),
        "why": LazyCommand(
            "why:app", "Why was this record dropped? By position, or by address and id."
        ),
        "audit": LazyCommand("audit:app", "List who changed what, when and why."),
        "instance": LazyCommand(
            "status:instance", "Instances of the group, and the state of each."
        ),
        "partition": LazyCommand("status:partition", "Partitions: owners, offsets, lag, restore."),
        "worker": LazyCommand("status:worker", "The processes of an instance."),
    },
    "Change": {
        "pause": LazyCommand("routes:pausing", "Stop reading the inputs of a route."),
        "resume": LazyCommand("routes:resuming", "Resume reading the inputs of a route."),
        "route": LazyCommand("routes:app", "Routes: which topics are read, and where they go."),
        "address": LazyCommand("addresses:app", "What an address remembers, and its settings."),
        "id": LazyCommand("ids:app", "One id: known? since which record? Forget, import, export."),
        "publisher": LazyCommand("publishers:app", "Positions of publishers, and their sessions."),
        "dead-letter": LazyCommand("dead_letters:app", "Records that were not accepted, and why."),
        "redrive": LazyCommand("redrives:app", "Send dead letters again."),
        "settings": LazyCommand("settings:app", "All settings as one document; history, rollback."),
    },
}
_HEAD: Final = """\
Usage: ringfence [OPTIONS] COMMAND [ARGS]...

  Keeps duplicate messages out of Kafka topics, exactly once.

Options:
  --version             Print the version.
  --install-completion  Install completion for the current shell.
  --show-completion     Show completion for the current shell, to copy it or
                        customize the installation.
  --help                Show this message and exit.
"""


def overview() -> str:
    """Return the overview as text."""
    sections = {"Run": RUN} | {
        title: {name: later.sentence for name, later in names.items()}
        for title, names in LATER.items()
    }
    width = max(len(name) for names in sections.values() for name in names)
    lines = [_HEAD]
    for title, names in sections.items():
        lines.append(f"\n{title}:\n")
        lines += [f"  {name:{width}}  {sentence}\n" for name, sentence in names.items()]
    return "".join(lines)
