"""Inlet: an input partition, as it is seen by the partition that decides its records.

With scope `partition` both are one. With scope `address` many inlets feed one deciding partition,
and what is told of a record (its dead letter, its stamp, the original of a duplicate) names the
inlet.
"""

from typing import NamedTuple

from ringfence.headers import Reason
from service.caches import AUDIT
from service.rejection import RejectedError
from service.route import ADDRESS_BYTES_MAX, Headers, InputRoute, UnrenderableError
from state.edit import Source


class Inlet(NamedTuple):
    """One partition of an input."""

    source: Source
    route: InputRoute
    partitions: int
    """How many partitions the input has; 0 where that is not known."""
    fault: str | None = None
    """Why nothing of it can be decided: it belongs to no route."""

    def address(self, key: bytes | None, headers: Headers) -> str:
        """The address of a record; RejectedError when it names none."""
        address = self.route.address.constant
        if address is not None:
            return address
        try:
            address = self.route.address.render(key, headers, "")
        except UnrenderableError as error:
            raise RejectedError(Reason.NO_ADDRESS, f"no address: {error}") from None
        if not address or len(address.encode()) > ADDRESS_BYTES_MAX:
            cause = f"the address is empty or longer than {ADDRESS_BYTES_MAX} bytes"
            raise RejectedError(Reason.NO_ADDRESS, cause)
        if address.startswith(AUDIT):
            cause = f"the address begins with {AUDIT}, where dead letters are remembered"
            raise RejectedError(Reason.NO_ADDRESS, cause)
        return address

    def check(self) -> None:
        """RejectedError where nothing of it can be decided."""
        if self.fault is not None:
            raise RejectedError(Reason.NO_OUTPUT, self.fault)
