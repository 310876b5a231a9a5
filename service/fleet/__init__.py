"""Fleet: the instances of a group, each of which answers for all."""
