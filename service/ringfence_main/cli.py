"""Command line: defines the commands, and turns the end of each into an exit code.

Commands import what they need when they run, so that `--help` stays quick. A foreseeable error is
one sentence on stderr and a documented exit code; a traceback is always a bug.
"""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer
from typer.core import TyperCommand

from ringfence_main.quick_start import exit_on_signals
from ringfence_service.cli.command import example
from ringfence_service.cli.registry import Commands
from ringfence_service.clock import leave
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.formatting import plural
from ringfence_service.printable import visible

if TYPE_CHECKING:
    from typer._click import Context

T = TypeVar("T")

app = typer.Typer(
    help="Keeps duplicate messages out of Kafka topics, exactly once.",
    no_args_is_help=True,
    cls=Commands,
    rich_markup_mode=None,  # importing rich would take longer than all the rest of --help
    pretty_exceptions_enable=False,
)
broker = typer.Typer(
    help="The embedded development broker: a real Apache Kafka.", rich_markup_mode=None
)
app.add_typer(broker, name="broker", no_args_is_help=True)

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The TOML file with all settings.",
    ),
]


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        app(prog_name="ringfence")
    except ExitError as error:
        _report(error)
        raise SystemExit(error.exit_code) from None


def _leave_after(program: Callable[[T], int], config: T) -> NoReturn:
    """Run a program until it ends, and leave with its exit code, also if it fails.

    Threads of the Kafka clients and the API still run then. A normal exit waits for them, and one
    that needs Python while it is taken down can change the exit code.
    """
    try:
        code = program(config)
    except ExitError as error:
        _report(error)
        code = error.exit_code
    leave(code)


def _report(error: ExitError) -> None:
    for sentence in error.sentence.split("\n"):
        _say(f"ringfence: {sentence}", err=True)


def _say(text: str, *, err: bool = False) -> None:
    """Print lines, with unprintable characters escaped."""
    typer.echo(visible(text, keep="\n"), err=err)


def _print_version(is_given: bool) -> None:  # noqa: FBT001  Typer passes the option's value
    if is_given:
        from ringfence_service.clock import product_version

        typer.echo(f"ringfence {product_version()}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Declare the options before a command."""


@app.command(epilog=example("serve --config ringfence.toml"))
def serve(config_file: ConfigFile) -> None:
    """Run the processor and its admin API until SIGTERM."""
    exit_on_signals()
    from ringfence_service.config.load import load

    config = load(config_file, os.environ)
    from ringfence_main.serve import serve as run

    _leave_after(run, config)


@app.command(epilog=example("bridge --config bridge.toml"))
def bridge(config_file: ConfigFile) -> None:
    """Forward topics to another cluster until SIGTERM."""
    exit_on_signals()
    from ringfence_service.bridge.config import load

    config = load(config_file, os.environ)
    from ringfence_main.bridge import forward as run

    _leave_after(run, config)


@app.command(
    epilog=example(
        "adopt --config ringfence.toml --from-topic orders --since 7d --dry-run",
        "adopt --config ringfence.toml --from-topic orders --address orders.eu",
    )
)
def adopt(
    config_file: ConfigFile,
    *,
    from_topic: Annotated[
        str | None, typer.Option("--from-topic", metavar="TOPIC", help="A topic that is in use.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="Lines, as ids:export writes them; with --address.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    input_topic: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="TOPIC",
            help="The input whose ids they are; by default the topic itself or the only input.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address of all ids, instead of the route's."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only records of this last time, as 7d or PT12H."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The admin API [RINGFENCE_URL; else that of the file]."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file that holds the token [RINGFENCE_TOKEN_FILE, RINGFENCE_TOKEN].",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file", metavar="FILE", help="Certificates to trust [RINGFENCE_CA_FILE]."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and count; change nothing.")
    ] = False,
) -> None:
    """Import the ids of a topic that was in use before the service."""
    import time

    from ringfence_service.config.load import load
    from ringfence_service.formatting import duration_ms

    if (from_topic is None) == (from_file is None):
        raise ExitError(ExitCode.USAGE, "Name a topic with --from-topic, or a file (--from-file).")
    age_ms = None if since is None else duration_ms(since)
    if since is not None and age_ms is None:
        sentence = f"--since {since} is not a duration; write it as 7d or PT12H."
        raise ExitError(ExitCode.USAGE, sentence)
    config = load(config_file, os.environ)
    from ringfence_service.cli.http import client_of
    from ringfence_service.cli.target import TargetOptions, where
    from ringfence_service.import_ids.run import ImportRequest
    from ringfence_service.import_ids.run import adopt as run

    request = ImportRequest(
        topic=from_topic,
        file=from_file,
        input=input_topic,
        address=address,
        since_ms=None if age_ms is None else round(time.time() * 1000) - age_ms,
        reason=reason,
        dry_run=dry_run,
    )
    target = where(TargetOptions(url, token_file, ca_file), os.environ, config.api.own_url)
    with client_of(target, 30.0, lambda text: _say(text, err=True)) as client:
        run(config, request, client, _say)


class _CheckCommand(TyperCommand):
    """Takes `--sample` with a number or without."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Give the option its default where no number follows."""
        from ringfence_main.live_sample import RECORDS

        at = args.index("--sample") + 1 if "--sample" in args else len(args) + 1
        if at == len(args) or (at < len(args) and args[at].startswith("--")):
            args = [*args[:at], str(RECORDS), *args[at:]]
        return super().parse_args(ctx, args)


@app.command(
    epilog=example("check --config ringfence.toml", "check --config ringfence.toml --sample"),
    cls=_CheckCommand,
)
def check(
    config_file: ConfigFile,
    *,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="[N]",
            min=1,
            max=100_000,
            help="Look for ids in the newest messages of each input; 1,000 without a number.",
        ),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Also test the broker's transactions, in the topic <group_id>.config.",
        ),
    ] = False,
) -> None:
    """Check the configuration, then the broker.

    With --sample an input of which no message has an id is a problem.
    """
    from ringfence_main.findings import findings_of, listed

    findings = findings_of(config_file, sample, _say, probes=probe)
    found = list(dict.fromkeys(problem for finding in findings for problem in finding.problems))
    for finding in findings:
        for name, topics in finding.topics.items():
            _say(f"{name}: {', '.join(topics) or 'none'}")
    if any(finding.topics.get("outputs") for finding in findings):
        _say("Consumers of outputs need isolation.level=read_committed.")
    for line in (line for finding in findings for line in finding.lines):
        _say(line)
    warnings = dict.fromkeys(text for finding in findings for text in finding.warnings)
    for warning in warnings:
        _say(f"warning: {warning}", err=True)
    noted = f"can be used, with {plural(len(warnings), 'warning')}" if warnings else "is good"
    _say(listed(found) if found else f"{config_file} {noted}.")
    raise typer.Exit(ExitCode.NO if found else ExitCode.DONE)


@app.command(
    epilog=example(
        "plan --rate 1000 --window 30m",
        "plan --rate 5000 --window 2h --scope partition --partitions 12 --address orders",
        "plan --rate 50000 --window 1h --scope id --address orders",
        "plan --rate 50 --window 7d --strategy window --json | jq -r .toml",
    )
)
def plan(
    *,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Accepted messages per second.")
    ],
    window: Annotated[
        str,
        typer.Option(
            "--window",
            "--retry-window",
            metavar="DURATION",
            help="Longest delay of a duplicate: 30s, 90m, 2h, 7d.",
        ),
    ],
    strategy: Annotated[
        str, typer.Option("--strategy", metavar="NAME", help="ring or window.")
    ] = "ring",
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="NAME", help="address, id or partition, as in the route."),
    ] = "address",
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="COUNT",
            min=1,
            help="With --scope partition: partitions of the input; with id: by_address_partitions.",
        ),
    ] = None,
    busiest: Annotated[
        float | None,
        typer.Option(
            "--busiest",
            metavar="N",
            help="With --scope partition: messages per second on the busiest; default: as on all.",
        ),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(
            "--address", metavar="PATTERN", help="Address to write settings for; # is any."
        ),
    ] = "#",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
) -> None:
    """Compute the size of an address and what it costs, without a running service.

    The address is sized for one and a half times the ids that arrive within the longest delay of
    a duplicate.
    """
    from ringfence_main.plan import PlanRequest
    from ringfence_main.plan import plan as run
    from ringfence_service.cli.screen import CommandOutput

    request = PlanRequest(rate, window, strategy, scope, partitions, busiest, pattern)
    run(request, CommandOutput(as_json=as_json))


@app.command("try", epilog=example("try orders --config ringfence.toml"))
def try_out(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="An input of a route.")],
    config_file: ConfigFile,
) -> None:
    """Send one message twice to an input, and show what becomes of it."""
    from ringfence_service.config.load import load

    config = load(config_file, os.environ)
    from ringfence_main.try_topic import trial

    raise typer.Exit(ExitCode.DONE if trial(config, topic, _say) else ExitCode.NO)


@app.command(
    epilog=example(
        "token ada > ada.token", "token ada --roles operator --add-to tokens > ada.token"
    )
)
def token(
    name: Annotated[str, typer.Argument(help="Who will use it; the audit shows this name.")],
    roles: Annotated[
        str,
        typer.Option(
            "--roles", help="viewer, operator or admin, and payload:read; separated by commas."
        ),
    ] = "viewer",
    tokens_file: Annotated[
        Path | None,
        typer.Option("--add-to", metavar="FILE", help="The tokens file to append its line to."),
    ] = None,
) -> None:
    """Make a token for the admin API; print it once, and its line for the tokens file."""
    from ringfence_service.config.tokens import TokenError, entry_of, new_token

    made = new_token()
    try:
        line = entry_of(name, roles, made).line
    except TokenError as error:
        raise ExitError(ExitCode.USAGE, str(error)) from error
    if tokens_file is None:
        typer.echo(f"Add this line to the tokens file (api.tokens_file):\n{line}", err=True)
    else:
        _add_line(tokens_file, line)
    typer.echo(made)


def _add_line(path: Path, line: str) -> None:
    """Append a line to a file; create the file if it does not exist."""
    try:
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            before = file.read()
            start = "\n" if before and not before.endswith("\n") else ""
            file.write(f"{start}{line}\n")
    except OSError as error:
        sentence = f"{path} cannot be written ({error.strerror}); name another file with --add-to."
        raise ExitError(ExitCode.USAGE, sentence) from error


@app.command(epilog=example("demo", "demo --exit"))
def demo(
    *,
    exit_when_done: Annotated[
        bool, typer.Option("--exit", help="End after the closing table.")
    ] = False,
) -> None:
    """Send real flights through a real broker."""
    try:
        from tools.demo.run import demo as play
    except ModuleNotFoundError as error:
        sentence = "The demo belongs to a checkout and is not in this installation; see the README."
        raise ExitError(ExitCode.USAGE, sentence) from error

    raise typer.Exit(play(exit_after=exit_when_done))


BrokerFolder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Where its data is; .run/broker by default."),
]


@broker.command(epilog=example("broker up"))
def up(*, folder: BrokerFolder = None) -> None:
    """Start the broker if it is not running, and print its address."""
    typer.echo(_with_broker(folder, lambda broker, at: broker.up(at)))


@broker.command(epilog=example("broker topic orders", "broker topic orders --partitions 4"))
def topic(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the topic.")],
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="COUNT", min=1, help="How many partitions.")
    ] = 1,
    folder: BrokerFolder = None,
) -> None:
    """Create a topic on the broker."""
    _with_broker(folder, lambda broker, at: broker.create_topic(name, partitions, at))
    _say(f"created {name} with {plural(partitions, 'partition')}")


@broker.command(epilog=example("broker down"))
def down(*, folder: BrokerFolder = None) -> None:
    """Stop the broker; its data stays."""
    was_running = _with_broker(folder, lambda broker, at: broker.down(at))
    typer.echo("stopped" if was_running else "not running")


@broker.command(epilog=example("broker status"))
def status(*, folder: BrokerFolder = None) -> None:
    """Print the broker's address; exit 1 if it is not running."""
    running = _with_broker(folder, lambda broker, at: broker.status(at))
    typer.echo(running or "not running")
    raise typer.Exit(ExitCode.DONE if running else ExitCode.NO)


def _with_broker(folder: Path | None, work: Callable[[ModuleType, Path], T]) -> T:
    try:
        from tools.broker import detached
        from tools.errors import ToolError
    except ModuleNotFoundError as error:
        sentence = "The development broker belongs to a checkout and is not in this installation."
        raise ExitError(ExitCode.USAGE, sentence) from error
    try:
        return work(detached, folder or detached.DEFAULT_FOLDER)
    except ToolError as error:
        raise ExitError(ExitCode.BROKER, str(error)) from error


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def pipeline(context: typer.Context) -> None:
    """Run a Spark job; see pipeline --help."""
    try:
        from ringfence_pipeline.command import app as jobs
    except ModuleNotFoundError as error:
        sentence = (
            f"{error.name} is not installed, which the Spark jobs need; install it: "
            'pip install "ringfence-server[spark]" (in a checkout: -r requirements/spark.txt).'
        )
        raise ExitError(ExitCode.USAGE, sentence) from error

    jobs(context.args, prog_name="ringfence pipeline")


if __name__ == "__main__":
    main()
