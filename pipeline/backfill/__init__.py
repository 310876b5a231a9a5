"""The decisions of the service on the engine of Spark: for histories too long for one machine."""
