"""Panels of the dashboard, row by row; `@` in an expression is the viewer's selection."""

from typing import Final, NamedTuple

AT: Final = "@"


class Line(NamedTuple):
    """A query, and the legend of its series."""

    query: str
    name: str


class Panel(NamedTuple):
    """One panel: a graph or a single number."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    description: str
    kind: str = "timeseries"
    stacked: bool = False


class Row(NamedTuple):
    """A row of related panels."""

    title: str
    panels: tuple[Panel, ...]
    width: int = 8
    height: int = 8


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate(ringfence_{metric}{{@{more}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', labels)})"


_NOW: Final = Row(
    "Now",
    (
        Panel(
            "Instances",
            "short",
            (Line("count(ringfence_build_info{@})", ""),),
            "Instances that report metrics.",
            "stat",
        ),
        Panel(
            "Waiting",
            "short",
            (Line("sum(ringfence_waiting{@})", ""),),
            "Instances that decide nothing; /readyz has the reason.",
            "stat",
        ),
        Panel(
            "Lag",
            "short",
            (Line("sum(ringfence_consumer_lag_records{@})", ""),),
            "Records not yet decided.",
            "stat",
        ),
        Panel(
            "Since the last commit",
            "s",
            (Line("time() - max(ringfence_last_commit_timestamp_seconds{@})", ""),),
            "A long time is normal only if no records arrive.",
            "stat",
        ),
        Panel(
            "Duplicates",
            "percentunit",
            (
                Line(
                    "sum(ringfence:duplicates:rate5m{$job_only}) "
                    "/ sum(ringfence:consumed:rate5m{$job_only})",
                    "",
                ),
            ),
            "Share of all records, over five minutes.",
            "stat",
        ),
        Panel(
            "Dead letters other than duplicates",
            "short",
            (
                Line(
                    "sum(increase(ringfence_dead_letters_total"
                    '{@, reason!~"duplicate|duplicate-in-transaction"}[1h]))',
                    "",
                ),
            ),
            "In the last hour; investigate any that is not zero.",
            "stat",
        ),
    ),
    width=4,
    height=4,
)

_FLOW: Final = Row(
    "Flow",
    (
        Panel(
            "Records",
            "rps",
            (
                Line(_rate("records_consumed_total", "route"), "{{route}} decided"),
                Line(_rate("records_forwarded_total", "route"), "{{route}} accepted"),
                Line(_rate("duplicates_total", "route"), "{{route}} duplicates"),
                Line(_rate("records_carried_total", "route"), "{{route}} first hop"),
            ),
            "Decided records are accepted, duplicates, or rejected for another reason.",
        ),
        Panel(
            "Share of duplicates",
            "percentunit",
            (Line("ringfence:duplicates:ratio_rate5m{$job_only}", "{{route}}"),),
            "A jump is a publisher that resends, or one that uses one id for many messages.",
        ),
        Panel(
            "Share without an id",
            "percentunit",
            (Line("ringfence:unchecked:ratio_rate5m{$job_only}", "{{route}}"),),
            "Their duplicates are accepted. At 100 % nothing of the route is deduplicated.",
        ),
        Panel(
            "Accepted unchecked by reason",
            "rps",
            (Line(_rate("unchecked_total", "route, reason"), "{{route}} {{reason}}"),),
            "Records that no address could check; off is what the settings say.",
            stacked=True,
        ),
        Panel(
            "Duplicates compared with their originals",
            "rps",
            (Line(_rate("duplicates_compared_total", "route, result"), "{{route}} {{result}}"),),
            "Samples; the id of a route with different ones may name more than one message.",
            stacked=True,
        ),
        Panel(
            "Dead letters by reason",
            "rps",
            (Line(_rate("dead_letters_total", "route, reason"), "{{route}} {{reason}}"),),
            "All but duplicates are records that could not be decided or forwarded.",
            stacked=True,
        ),
        Panel(
            "Duplicates by address",
            "rps",
            (Line(_rate("duplicates_total", "address", ', address=~"$address"'), "{{address}}"),),
            "Of the addresses selected above.",
            stacked=True,
        ),
        Panel(
            "Bytes",
            "Bps",
            (Line(_rate("bytes_consumed_total", "instance"), "{{instance}}"),),
            "Keys and values of decided records.",
        ),
        Panel(
            "Redelivery distance",
            "s",
            (
                Line(_quantile(0.5, "duplicate_distance_seconds"), "half"),
                Line(_quantile(0.95, "duplicate_distance_seconds"), "95 %"),
                Line(_quantile(0.99, "duplicate_distance_seconds"), "99 %"),
            ),
            "Time from an original to its duplicate. Keep it well below the horizon.",
        ),
    ),
)

_LAG: Final = Row(
    "Lag and latency",
    (
        Panel(
            "Lag in records",
            "short",
            (Line("sum by (topic) (ringfence_consumer_lag_records{@})", "{{topic}}"),),
            "Up to the end of the partition, including open transactions.",
        ),
        Panel(
            "Lag in seconds",
            "s",
            (Line("max by (topic) (ringfence_consumer_lag_seconds{@})", "{{topic}}"),),
            "How long the next record may have waited, on the worst partition.",
        ),
        Panel(
            "From a record's timestamp to its commit",
            "s",
            (
                Line(_quantile(0.5, "end_to_end_latency_seconds", "record"), "{{record}} half"),
                Line(_quantile(0.99, "end_to_end_latency_seconds", "record"), "{{record}} 99 %"),
            ),
            "Of the oldest and of the newest record of each transaction.",
        ),
    ),
)

_RINGS: Final = Row(
    "Rings",
    (
        Panel(
            "Horizon",
            "s",
            (
                Line(
                    'min by (address) (ringfence_ring_horizon_seconds{@, address=~"$address"})',
                    "{{address}}",
                ),
                Line("ringfence:retry_window_seconds", "retry window"),
            ),
            "An address below the retry window forgets ids whose duplicates may still arrive.",
        ),
        Panel(
            "Fill",
            "percentunit",
            (
                Line(
                    'sum by (address) (ringfence_ring_used_ids{@, address=~"$address"}) '
                    "/ sum by (address) (ringfence_ring_capacity_ids{@})",
                    "{{address}}",
                ),
            ),
            "Full is normal: from then on the horizon matters.",
        ),
        Panel(
            "Evicted ids",
            "cps",
            (
                Line(
                    _rate("ring_evictions_total", "address", ', address=~"$address"'),
                    "{{address}}",
                ),
            ),
            "Each eviction makes room for a newer id.",
        ),
    ),
)

_TRANSACTIONS: Final = Row(
    "Transactions",
    (
        Panel(
            "Transactions",
            "cps",
            (Line(_rate("transactions_total", "result"), "{{result}}"),),
            "Aborted transactions are repeated; the broker resolves unknown ones.",
        ),
        Panel(
            "Duration",
            "s",
            (
                Line(_quantile(0.5, "transaction_duration_seconds"), "half"),
                Line(_quantile(0.99, "transaction_duration_seconds"), "99 %"),
            ),
            "From begin to commit; transaction_timeout_ms is the limit.",
        ),
        Panel(
            "Stages of a batch",
            "s",
            (
                Line(
                    f"{_rate('batch_duration_seconds_sum', 'stage')} "
                    f"/ {_rate('batch_duration_seconds_count', 'stage')}",
                    "{{stage}}",
                ),
            ),
            "Mean times. A long commit points to the broker, apply to the disk, lookup to the CPU.",
        ),
    ),
)

_STATE: Final = Row(
    "State",
    (
        Panel(
            "Records still to restore",
            "short",
            (
                Line("sum by (instance) (ringfence_restore_remaining_records{@})", "{{instance}}"),
                Line(
                    "max by (instance) (ringfence_standby_lag_records{@})",
                    "{{instance}} standby copies",
                ),
            ),
            "Partitions wait until this is zero. For standby copies nothing waits.",
        ),
        Panel(
            "Disk",
            "bytes",
            (
                Line("sum by (instance) (ringfence_state_bytes{@})", "{{instance}} state"),
                Line("min by (instance) (ringfence_state_disk_free_bytes{@})", "{{instance}} free"),
            ),
            "Of the state folder.",
        ),
        Panel(
            "Memory",
            "bytes",
            (
                Line("sum(ringfence_cache_memory_bytes{@})", "ids"),
                Line("sum(ringfence_rocksdb_block_cache_usage_bytes{@})", "RocksDB blocks"),
                Line("sum(ringfence_rocksdb_memtable_bytes{@})", "RocksDB memtables"),
                Line("sum(process_resident_memory_bytes{@})", "all processes"),
            ),
            "Memory of ids and stores, as part of the processes' memory.",
        ),
        Panel(
            "RocksDB: pending compaction",
            "bytes",
            (
                Line(
                    "sum by (instance) (ringfence_rocksdb_pending_compaction_bytes{@})",
                    "{{instance}}",
                ),
            ),
            "If it keeps growing, writes stall.",
        ),
        Panel(
            "RocksDB: write stalls",
            "short",
            (
                Line(
                    "sum by (instance) (increase(ringfence_rocksdb_write_stalls_total{@}"
                    "[$__rate_interval]))",
                    "{{instance}}",
                ),
            ),
            "Normally zero.",
        ),
        Panel(
            "RocksDB: files and keys",
            "short",
            (
                Line("sum(ringfence_rocksdb_sst_bytes{@})", "bytes"),
                Line("sum(ringfence_rocksdb_estimated_keys{@})", "keys"),
            ),
            "A key is a run of ids.",
        ),
    ),
)

_PROCESSES: Final = Row(
    "Instances and workers",
    (
        Panel(
            "Partitions",
            "short",
            (Line("sum by (instance) (ringfence_assigned_partitions{@})", "{{instance}}"),),
            "Evenly assigned, instances differ by one at most.",
            stacked=True,
        ),
        Panel(
            "Rebalances, restarts, fencings",
            "short",
            (
                Line(
                    "sum by (kind) (increase(ringfence_rebalances_total{@}[$__rate_interval]))",
                    "{{kind}}",
                ),
                Line(
                    "sum by (instance, worker) "
                    "(increase(ringfence_worker_restarts_total{@}[$__rate_interval]))",
                    "restart {{instance}}/{{worker}}",
                ),
                Line("sum(increase(ringfence_fenced_total{@}[$__rate_interval]))", "fenced"),
            ),
            "Each pauses the partitions that move.",
        ),
        Panel(
            "Blocked and waiting",
            "short",
            (
                Line("sum by (instance) (ringfence_held_back_partitions{@})", "{{instance}} held"),
                Line("sum by (instance) (ringfence_waiting{@})", "{{instance}} waits"),
                Line("sum by (instance) (ringfence_groups_open{@})", "{{instance}} groups"),
            ),
            "Inputs behind an open transaction; instances that wait; incomplete groups.",
        ),
        Panel(
            "CPU",
            "short",
            (
                Line(
                    "sum by (instance) (rate(process_cpu_seconds_total{@}[$__rate_interval]))",
                    "{{instance}}",
                ),
            ),
            "Cores. A loop uses one at most.",
        ),
        Panel(
            "Errors of the Kafka client",
            "cps",
            (Line(_rate("client_errors_total", "code"), "{{code}}"),),
            "By librdkafka's error names; the client recovers from most of them.",
        ),
        Panel(
            "Open files",
            "short",
            (Line("sum by (instance) (process_open_fds{@})", "{{instance}}"),),
            "Of all processes of an instance.",
        ),
    ),
)

_API: Final = Row(
    "API",
    (
        Panel(
            "Requests",
            "reqps",
            (Line(_rate("http_requests_total", "status"), "{{status}}"),),
            "By status.",
            stacked=True,
        ),
        Panel(
            "Response time",
            "s",
            (Line(_quantile(0.99, "http_request_duration_seconds", "route"), "{{route}} 99 %"),),
            "By route.",
        ),
        Panel(
            "Settings revision",
            "none",
            (Line("max by (instance) (ringfence_config_revision{@})", "{{instance}}"),),
            "Equal on all instances shortly after a change.",
        ),
        Panel(
            "Authentication failures",
            "reqps",
            (Line(_rate("http_auth_failures_total", "reason"), "{{reason}}"),),
            "Wrong or missing tokens.",
        ),
        Panel(
            "Versions",
            "short",
            (
                Line(
                    "count by (version, librdkafka) (ringfence_build_info{@})",
                    "{{version}}, librdkafka {{librdkafka}}",
                ),
            ),
            "More than one during a rolling upgrade.",
        ),
    ),
)

ROWS: Final = (_NOW, _FLOW, _LAG, _RINGS, _TRANSACTIONS, _STATE, _PROCESSES, _API)
