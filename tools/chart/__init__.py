"""Table of values in the chart's README, generated from values.yaml by `python -m tools.chart`."""
