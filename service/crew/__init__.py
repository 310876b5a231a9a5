"""The crew: the processes of an instance, one for each part, and the supervisor that keeps them."""
