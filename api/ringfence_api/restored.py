"""Restore check: a query is refused while the state of a partition is not restored."""

from ringfence_service.queries.errors import NotRestored
from ringfence_service.queries.status import ServiceStatus


def require_restored(status: ServiceStatus) -> None:
    """Raise NotRestored while state is incomplete: "not known" might be wrong."""
    if status.phase in {"starting", "stopping"}:
        sentence = f"The service is {status.phase} and owns no partition now; see /readyz."
        raise NotRestored(sentence, retry_after_s=2)
    behind = sum(each.phase != "running" for each in status.partitions)
    if behind:
        sentence = (
            f"Not restored: {behind} of {len(status.partitions)} owned partitions; see /readyz."
        )
        raise NotRestored(sentence, retry_after_s=2)
