"""Command registry: imports the module of an API command when the command is called."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from service.cli.overview import LATER, overview

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

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

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as typer calls it
        """Write the overview, as `ringfence --help` does."""
        formatter.write(overview())


def load(name: str) -> "Command":
    """Load a command that uses the API."""
    later = _BY_NAME[name]
    module, _, attribute = later.import_path.partition(":")
    app = getattr(import_module(f"service.cli.{module}"), attribute)
    command = get_command(app)
    command.name = name
    assert isinstance(command, TyperCommand | TyperGroup)
    return command
