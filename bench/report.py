"""Report of `make bench`: tables for the terminal, and plots."""

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

from bench.results import FOLDER, Comparison, Results, Spread
from bench.trials import TITLES

mpl.use("svg")

from matplotlib import pyplot as plt

_COLOURS = {"ringfence": "#0b7285", "floor": "#adb5bd"}
_OTHER_COLOUR = "#e8590c"


def show(results: Results, console: Console) -> None:
    """Print every table."""
    for comparison in results.comparisons:
        console.print(_throughput(comparison))
    for rate, arms in results.latencies.items():
        table = Table(title=f"latency at {rate} messages a second, ms: median of the rounds")
        for column in ("arm", "p50", "p99", "p99.9"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for arm, rounds in arms.items():
            middles = [Spread.of(each[index] for each in rounds).median for index in range(3)]
            table.add_row(TITLES[arm], *(f"{value:.1f}" for value in middles))
        console.print(table)

    if results.queues:
        table = Table(title="Artemis, a different job: into a durable queue and out of it")
        for column in ("min", "median", "max"):
            table.add_column(f"messages a second, {column}", justify="right")
        rates = Spread.of(queue.rate for queue in results.queues)
        table.add_row(*(f"{value:,.0f}" for value in rates))
        console.print(table)


def _throughput(comparison: Comparison) -> Table:
    settings = ", ".join(f"{name} {value}" for name, value in comparison.settings.items())
    table = Table(title=f"{comparison.name}: messages a second, warm ({settings})")
    for column in ("arm", "min", "median", "max", "CPU µs", "others", "Ringfence is …"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm in comparison.rounds:
        rates = [f"{value:,.0f}" for value in comparison.rates(arm)]
        ratio = comparison.ratio("ringfence", arm)
        text = (
            "" if arm == "ringfence" else f"{ratio.min:.2f} / {ratio.median:.2f} / {ratio.max:.2f}"
        )
        used = comparison.cpu_us(arm), comparison.others_us(arm)
        table.add_row(TITLES[arm], *rates, *(f"{each.median:.1f}" for each in used), text)
    return table


def plot(results: Results) -> None:
    """Draw a plot of every comparison."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, comparison in enumerate(results.comparisons, 1):
        _bars(comparison, number)


def _bars(comparison: Comparison, number: int) -> None:
    arms = list(comparison.rounds)
    spreads = [comparison.rates(arm) for arm in arms]
    figure, axes = plt.subplots(figsize=(8, 0.7 * len(arms) + 1.4), layout="constrained")
    middles = [spread.median for spread in spreads]
    errors = [
        [spread.median - spread.min for spread in spreads],
        [spread.max - spread.median for spread in spreads],
    ]
    colours = [_COLOURS.get(arm, _OTHER_COLOUR) for arm in arms]
    axes.barh([TITLES[arm] for arm in arms], middles, xerr=errors, color=colours, capsize=3)
    for row, spread in enumerate(spreads):
        axes.annotate(f" {spread.median:,.0f}", (spread.max, row), va="center", fontsize=9)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("messages a second, warm: median, minimum and maximum of the rounds")
    axes.set_title(comparison.name, loc="left")
    axes.margins(x=0.18)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FOLDER / f"throughput-{number}.svg")
    plt.close(figure)
