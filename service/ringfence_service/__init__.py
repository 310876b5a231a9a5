"""The service: the processor loop, its workers, and the programs that start and operate it."""
