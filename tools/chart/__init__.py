"""Generated parts: the schema and README of the chart, and the table of all settings."""
