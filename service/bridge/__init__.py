"""The bridge: topics of one cluster into another, at least once, stamped, for a Ringfence there."""
