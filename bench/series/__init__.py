"""Series of `make bench-full`: a module, or an entry in a table, for each."""
