"""Parts of the chart that are generated: the README's table of values and the values' schema."""
