"""Overview: all commands in their sections, with a sentence each, as `ringfence --help` shows them.

It imports nothing, so that the page is quick.
"""

from typing import Final, NamedTuple


class LazyCommand(NamedTuple):
    """A command that is loaded when it is called."""

    place: str
    """Its module under `service.cli`, and the name of its Typer there."""
    sentence: str


RUN: Final = {
    "serve": "Run the processor and its admin API until SIGTERM.",
    "bridge": "Forward topics to another cluster until SIGTERM.",
    "adopt": "Have the service know the ids of a topic that was in use before.",
    "check": "Check the configuration, then the broker.",
    "try": "Send one message twice to an input, and show what becomes of it.",
    "token": "Make a token for the admin API; it is printed once.",
    "demo": "Play real flights through a real broker.",
    "pipeline": "Run a Spark job; see pipeline --help.",
    "broker": "The embedded development broker: a real Apache Kafka.",
}
LATER: Final[dict[str, dict[str, LazyCommand]]] = {
    "Look": {
        "status": LazyCommand(
            "status:app", "What the service does now; --watch keeps on showing it."
        ),
        "why": LazyCommand(
            "why:app", "Why was this record dropped? By its place, or address and id."
        ),
        "audit": LazyCommand("audit:app", "Who changed what, when and why."),
        "instance": LazyCommand(
            "status:instance", "The instances of the group, and how each does."
        ),
        "partition": LazyCommand("status:partition", "Partitions: owners, offsets, lag, restore."),
        "worker": LazyCommand("status:worker", "The processes of an instance."),
    },
    "Change": {
        "pause": LazyCommand("routes:pausing", "Stop reading the inputs of a route."),
        "resume": LazyCommand("routes:resuming", "Read them again, from where they were left."),
        "route": LazyCommand("routes:app", "Routes: which topics are read, and where they go."),
        "address": LazyCommand("addresses:app", "What an address remembers, and its settings."),
        "id": LazyCommand("ids:app", "One id: known? since which record? Forget, import, export."),
        "publisher": LazyCommand("publishers:app", "How far publishers have come; their sessions."),
        "dead-letter": LazyCommand("dead_letters:app", "What was not accepted, and why."),
        "redrive": LazyCommand("redrives:app", "Dead letters, sent on their way again."),
        "settings": LazyCommand("settings:app", "All that is set, as one document; its history."),
        "context": LazyCommand("contexts:app", "Places with names, to which commands go."),
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
    """Return the page."""
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
