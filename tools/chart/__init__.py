"""The chart's page of values, made from values.yaml; `python -m tools.chart` writes it."""
