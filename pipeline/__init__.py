"""The Spark side: Ringfence's output topics as tables."""
