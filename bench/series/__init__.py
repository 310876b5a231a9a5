"""What `make bench-full` measures: a module, or an entry of a table, for each series."""
