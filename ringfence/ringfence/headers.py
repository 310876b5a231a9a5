"""Wire contract: the names of headers, the reasons, and the dead-letter envelope."""

from ringfence_client.headers import *  # noqa: F403 - all of its names are public
