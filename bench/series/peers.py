"""Peers series: repeats the trials of `make bench`, so that one file has all results."""

from bench.artemis import artemis as one_queue
from bench.finding import Figure, Finding, Row
from bench.results import Spread
from bench.session import Session
from bench.trials import TITLES, TRIALS, compared


def peers(session: Session, key: str) -> Finding:
    """Run one of the trials."""
    (trial,) = (trial for trial in TRIALS if trial.key == key)
    trial = trial._replace(workload=session.sized(trial.workload))
    found = compared(session.venue, trial, session.rounds, session.say)
    rows: list[Row] = [
        {
            "arm": TITLES[arm],
            "messages a second": found.rates(arm),
            "Ringfence is … times as fast": None
            if arm == "ringfence"
            else found.ratio("ringfence", arm),
        }
        for arm in found.rounds
    ]
    title = f"{trial.title}: " + ", ".join(TITLES[arm.name].partition(":")[0] for arm in trial.arms)
    figure = Figure(title, "arm", ["messages a second"], "messages a second, warm", bars=True)
    return Finding(title, trial.settings(), rows, [figure])


def artemis(session: Session) -> Finding:
    """Run Artemis, whose job is a different one, so it is compared with nothing."""
    rates = [one_queue().rate for _ in range(session.rounds)]
    session.say(f"Artemis: {max(rates):,.0f}/s")
    row: Row = {"arm": "Artemis", "messages a second": Spread.of(rates)}
    return Finding("Artemis, a different job: into a durable queue and out of it", {}, [row])
