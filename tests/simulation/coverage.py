"""Coverage of faults: how often each kind of fault struck at each step, as a table.

A step is a call of the loop to Kafka or to its store, `.done` what follows the effect of one. A
cell is empty where that kind cannot strike there, for a reason that stands under the table; any
other cell that stays empty is missing coverage.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tests.simulation.trouble import FAILURES, SLOW

_STEPS: Final = (
    *("cluster_id", "names", "topics", "create", "subscribe", "metadata"),
    *("committed", "starts", "ends", "assigned", "store.open", "store.wipe"),
    *("incremental_assign", "incremental_unassign", "consume", "consume.done"),
    *("init_transactions", "init_transactions.done", "begin_transaction"),
    *("produce", "send", "poll", "flush", "flush.done"),
    *("send_offsets_to_transaction", "send_offsets_to_transaction.done"),
    *("commit_transaction", "commit_transaction.done"),
    *("applying", "store.apply", "store.apply.done", "run.write", "run.write.done"),
    *("abort_transaction", "abort_transaction.done", "delete_before", "sleep", "close"),
)
"""In the order in which a life comes to them."""
_FILES: Final = "run."
"""What the steps of files begin with, which the path in Python does not write."""
_AT: Final = " | "
_COPIES: Final[Mapping[str, tuple[str, ...]]] = {
    "send": ("AddPartitionsToTxn", "Produce"),
    "send_offsets_to_transaction": ("AddOffsetsToTxn", "TxnOffsetCommit"),
    "commit_transaction": ("EndTxn of commit_transaction",),
    "abort_transaction": ("EndTxn of abort_transaction",),
}
"""The requests of a step of which a copy may reach the broker later."""
_WHERE: Final[Mapping[str, str]] = {
    "killed": "anywhere",
    "stopped": "anywhere",
    "slow": "where the client waits for an answer to what it sent",
    "no answer": "where an answer is waited for, before or after its effect",
    "must abort": "where a broker may refuse what a transaction does",
    "fenced": "where a request carries the producer's epoch",
    "disk": "where the store reads or writes",
    "exception": "between a commit and the last write of what it decided",
    "late copy": "for requests that change a transaction",
}
"""Where each kind of fault can strike."""
OTHERS: Final = frozenset(
    {
        *("lanes opened", "evictions", "copies taken over"),
        *("waits for a schema", "waits for a topic", "clean turns beside a wait"),
        *("registry away", "registry slow", "schema garbled for a while"),
        *("schema refused", "schema unusable", "schema registered late"),
    }
)
"""What else has to be met."""


def struck(step: str, kind: str) -> str:
    """Return the name under which a fault at a step is counted."""
    return f"{step}{_AT}{kind}"


def is_possible(step: str, kind: str) -> bool:
    """Return whether a kind of fault can strike at a step."""
    if kind in {"killed", "stopped"}:
        return True
    if kind == "slow":
        return step in SLOW
    if kind == "late copy":
        return step in _COPIES
    return any(kind == failure.kind for failure in FAILURES.get(step, ()))


def counted(met: Counter[str], step: str, kind: str) -> int:
    """Return how often a kind of fault struck at a step."""
    if kind != "late copy":
        return met[struck(step, kind)]
    names = _COPIES.get(step, ())
    return sum(met[f"late {name}"] + met[f"late {name} refused"] for name in names)


def missed(met: Counter[str], *, has_files: bool) -> list[str]:
    """Return the cells that could have been struck and were not."""
    steps = [step for step in _STEPS if has_files or not step.startswith(_FILES)]
    cells = ((step, kind) for step in steps for kind in _WHERE if is_possible(step, kind))
    others = sorted(OTHERS - met.keys())
    return [struck(*cell) for cell in cells if not counted(met, *cell)] + others


def rare(met: Counter[str]) -> Counter[str]:
    """Return what else was met."""
    return Counter({name: count for name, count in met.items() if _AT not in name})


def table(met: Counter[str]) -> str:
    """Return the table of steps and faults, and under it where each kind can strike."""
    return "\n".join(_lines(met))


def _lines(met: Counter[str]) -> Iterator[str]:
    others = {name.partition(_AT)[0] for name in met if _AT in name} - set(_STEPS)
    assert not others, f"steps that have no row: {others}"
    width = max(map(len, _STEPS))
    yield " " * width + "".join(f"{kind:>12}" for kind in _WHERE)
    for step in _STEPS:
        cells = (_cell(counted(met, step, kind), step, kind) for kind in _WHERE)
        yield f"{step:<{width}}" + "".join(f"{cell:>12}" for cell in cells)
    yield ""
    yield from (f"{kind}: {where}" for kind, where in _WHERE.items())


def _cell(count: int, step: str, kind: str) -> str:
    if not is_possible(step, kind):
        assert not count, f"{kind} cannot strike at {step}"
        return ""
    return f"{count:,}" if count else "none"
