"""Command registry: the commands that use the API, imported when they are called.

Their sentences stand here, so that `ringfence --help` imports none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ringfence_service.cli.command import first_of

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter


class LazyCommand(NamedTuple):
    """A command that is imported when it is called."""

    import_path: str
    """`module:attribute` of its Typer app, relative to `ringfence_service.cli`."""
    sentence: str


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
_BY_NAME: Final = {name: later for section in LATER.values() for name, later in section.items()}


class Commands(TyperGroup):
    """All commands: those that run something, and those that use the API."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - passed on unchanged
        super().__init__(**options)
        # Registered by name, so that Typer's suggestions for a mistyped name include them.
        for name, each in _BY_NAME.items():
            self.add_command(TyperCommand(name, help=each.sentence))

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Return a command; load it if it uses the API."""
        return load(cmd_name) if cmd_name in _BY_NAME else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as typer calls it
        """Write the commands by section, with the first sentence of each."""
        sections = {"Run": [name for name in self.commands if name not in _BY_NAME], **LATER}
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, first_of(self.commands[name])) for name in names])


def load(name: str) -> "Command":
    """Load a command that uses the API."""
    later = _BY_NAME[name]
    module, _, attribute = later.import_path.partition(":")
    app = getattr(import_module(f"ringfence_service.cli.{module}"), attribute)
    command = get_command(app)
    command.name = name
    assert isinstance(command, TyperCommand | TyperGroup)
    return command
