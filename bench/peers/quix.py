"""Quix Streams peer, as in its guide: keyed state, and a message whose key was seen is dropped.

It remembers without bound and writes no dead letters, so it does less than a ring. It runs in its
own virtual environment, since it needs another version of the Kafka client than we do.
"""

import argparse

from quixstreams import Application, State


def main() -> None:
    """Filter the input until the process is killed."""
    given = _parsed()
    app = Application(
        broker_address=given.bootstrap_servers,
        consumer_group=given.group,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_every=given.batch,
        state_dir=given.state_dir,
        loglevel="WARNING",
        consumer_extra_config={"fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": 65_536},
        producer_extra_config={"linger.ms": 5, "retry.backoff.ms": 10},
    )
    taken = app.topic(given.input, key_deserializer="bytes", value_deserializer="bytes")
    unique = app.topic(given.output, key_serializer="bytes", value_serializer="bytes")
    app.dataframe(taken).filter(_is_new, stateful=True).to_topic(unique)
    app.run()


def _is_new(_value: bytes, state: State) -> bool:
    if state.exists("seen"):
        return False
    state.set("seen", 1)
    return True


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-servers", "group", "input", "output", "state-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--batch", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
