"""Plots of a finding, one SVG file per figure."""

from pathlib import Path
from typing import Final

import matplotlib as mpl

from bench.finding import Figure, Finding, middle, shown
from bench.results import Spread

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_COLOURS: Final = {"Ringfence": "#0b7285", "floor": "#868e96"}
_OTHERS: Final = ("#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c")


def plot(finding: Finding, key: str, folder: Path) -> None:
    """Draw each figure into its own file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, figure in enumerate(finding.figures, 1):
        draw = _bars if figure.bars else _lines
        height = 1.6 + len(finding.rows) * (0.1 + 0.18 * len(figure.columns))
        height = height if figure.bars else 4.5
        canvas, axes = plt.subplots(figsize=(8, height), layout="constrained")
        draw(axes, finding, figure)
        axes.set_title(figure.title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        suffix = f"-{number}" if number > 1 else ""
        canvas.savefig(folder / f"full-{key}{suffix}.svg")
        plt.close(canvas)


def _lines(axes: Axes, finding: Finding, figure: Figure) -> None:
    """Draw a line for each column; the rows are equidistant steps."""
    names = [shown(row[figure.rows]) for row in finding.rows]
    for number, column in enumerate(figure.columns):
        values = [middle(row[column]) for row in finding.rows]
        errors = [_distances(row[column]) for row in finding.rows]
        ends = [[error[end] for error in errors] for end in (0, 1)]
        colour = _colour(column, number)
        axes.errorbar(names, values, yerr=ends, marker="o", capsize=3, label=column, color=colour)
        for step, value in enumerate(values):
            text = shown(float(value))
            # The first line has its labels below it, to keep them apart from those of the others.
            offset = (6, 6) if number else (6, -12)
            axes.annotate(text, (step, value), offset, textcoords="offset points", fontsize=8)
    axes.margins(x=0.08, y=0.12)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.rows)
    axes.set_ylabel(figure.unit)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    if len(figure.columns) > 1:
        axes.legend(frameon=False)


def _bars(axes: Axes, finding: Finding, figure: Figure) -> None:
    """Draw a group of bars for each row; a missing value has no bar."""
    width = 0.8 / len(figure.columns)
    for number, column in enumerate(figure.columns):
        found = [(index, row.get(column)) for index, row in enumerate(finding.rows)]
        filled = [(index, cell) for index, cell in found if cell is not None]
        heights = [index + (number - (len(figure.columns) - 1) / 2) * width for index, _ in filled]
        values = [middle(cell) for _, cell in filled]
        colour = _colour(column, number)
        bars = axes.barh(heights, values, width * 0.9, label=column, color=colour)
        axes.bar_label(bars, [f" {shown(float(value))}" for value in values], fontsize=8)
    names = [shown(row[figure.rows]) for row in finding.rows]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(figure.unit)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    if len(figure.columns) > 1:
        axes.legend(frameon=False)


def _distances(cell: object) -> tuple[float, float]:
    """Return the distances of the minimum and the maximum from the median."""
    if isinstance(cell, Spread):
        return cell.median - cell.min, cell.max - cell.median
    return 0.0, 0.0


def _colour(column: str, number: int) -> str:
    return _COLOURS.get(column, _OTHERS[number % len(_OTHERS)])
