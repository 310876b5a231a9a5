"""What the known systems do, case by case, asked of the real loop on a fake log.

The cases bear the numbers 1 to 62 of the list that was taken from the systems' own tests and
specifications, from runs of their genuine classes and from their clients' source: 1 to 35 Artemis,
36 to 52 ActiveMQ 5, 53 to 57 MSMQ, 58 and 59 AMPS, 60 to 62 others. Each is a test with its number
in the name, or stands in one of these tables with the reason why not. Where we answer otherwise
than the origin, on purpose, the case asserts our answer and tells the difference.
"""

from collections.abc import Mapping
from typing import Final

NOT_OURS: Final[Mapping[int, str]] = {
    24: "the last queue of an address is deleted: a topic has no queues that keep its ids alive",
    42: "last index and rollback of a bit: an interface for programs; a dropped draft is our abort",
    43: "an order check beside the audit, which touches no verdict: `ordered` is ours",
    47: "redelivery after a consumer's rollback: Kafka's consumers keep offsets, nobody redelivers",
    60: "numbers pushed and not yet persisted: a record and its number are one transaction here",
}
"""Cases that do not concern us."""

TO_COME: Final[Mapping[int, str]] = {
    29: "a redrive that is not judged again",
    50: "redrive; what comes to the dead letters a second time is tested",
    59: "the publisher's store, which is the client's; what is reported to it is tested",
}
"""Cases whose feature is not there yet, as a whole or in part."""
