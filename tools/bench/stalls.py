"""Writes at a high, fixed rate: whether seconds are lost, and what the server did meanwhile.

Two phases, after Luo and Carey, "On Performance Stability in LSM-based Storage Systems" (PVLDB
13(4)): the highest rate in a closed loop, then 95 % of it in an open loop, in which a server that
stalls is charged with all requests that were due. The closed loop lasts as long as the open one, and
its first third does not count: a minute of writes is faster than any rate that compactions can keep up
with, and a queue that grows in the open loop would hide what a single second does.
"""

import threading
import time

from disk import COLD_CLIENTS, VALUE_BYTES, Disk
from loads import Load
from server import Server, built

SHARE = 0.95
MINUTES = 30
LEAST_S = 3
SAMPLE_S = 0.1
SLOW_MS = 20
WORST = 10
# Keys that memory holds, and their budget.
RESIDENT_KEYS, RESIDENT_MEMORY = 200_000, "2gb"
# What is sampled: the counters of INFO rocksdb and INFO storage that say what ran, and states.
COUNTERS = {"flushes": "flush", "compactions": "compaction ended", "value_log_collected_bytes": "values collected"}
STATES = {"running_flushes": "flush", "running_compactions": "compaction", "delayed_write_rate": "writes slowed down",
          "writes_stopped": "writes stopped"}


class Watch:
    """Samples what the server does in the background, until it is stopped."""

    def __init__(self, server):
        self.server, self.over, self.samples = server, threading.Event(), []
        self.began = time.monotonic()
        # A field that is missing ends the measurement here, not in the thread.
        self.take()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def sample(self):
        """Takes samples until it is stopped."""
        while not self.over.wait(SAMPLE_S):
            self.take()

    def take(self):
        """Takes a sample: the second, and the fields."""
        found = self.server.info("rocksdb", "storage")
        fields = {name: float(found[name]) for name in (*COUNTERS, *STATES)}
        self.samples.append((int(time.monotonic() - self.began), fields))

    def stop(self):
        """Ends the samples."""
        self.over.set()
        self.thread.join()

    def during(self, second):
        """What the server did in a second, as text."""
        seen = [fields for at, fields in self.samples if at == second]
        before = [fields for at, fields in self.samples if at < second][-1:]
        did = {text for name, text in STATES.items() if any(fields[name] for fields in seen)}
        both = before + seen
        did |= {text for name, text in COUNTERS.items() if both and both[0][name] != both[-1][name]}
        return ", ".join(sorted(did)) or "nothing that is counted"


def phases(label, server, keys, seconds):
    """Both phases on a server that has half of `keys`: the lines of the table, and of the worst seconds."""
    def load(**flags):
        """SETs of all keys."""
        return Load(built("examples/load"), server, "set", clients=COLD_CLIENTS, keys=keys, value_bytes=VALUE_BYTES,
                    order="scattered", grace=30, **flags).result()

    counts = [count for count, _ in load(seconds=seconds)["each_second"]]
    steady = counts[len(counts) // 3:]
    target = SHARE * sum(steady) / len(steady)
    watch = Watch(server) if label == "ours" else None
    try:
        result = load(rate=target, seconds=seconds)
    finally:
        if watch:
            watch.stop()
    at, each = result["latency_ms"], result["each_second"]
    halves = sum(count < target / 2 for count, _ in each)
    row = (f"| {label} | {target:,.0f} | {result['rate']:,.0f} | {min(count for count, _ in each):,} | {halves} | "
           + " | ".join(f"{at[name]:,.2f}" for name in ("p50", "p99", "p99.9", "max")) + " |")
    slow = [(count, p99_ms, second) for second, (count, p99_ms) in enumerate(each) if p99_ms > SLOW_MS]
    # Those that did least: what they left over makes the seconds after them slow.
    worst = [f"- second {second}: {count:,} replies, p99 {p99:,.0f} ms: {watch.during(second)}"
             for count, p99, second in sorted(slow)[:WORST] if watch]
    return row, worst, len(slow)


def resident(commands, folder, scale, seconds):
    """Keys that memory holds."""
    keys = max(1_000, int(RESIDENT_KEYS * scale))
    for label, command in commands.items():
        memory = ["--maxmemory", RESIDENT_MEMORY] if label == "ours" else []
        server = Server(label, [*command, *memory], folder)
        try:
            server.wait_ready()
            Load(built("examples/load"), server, "set", requests=keys // 2, keys=keys, order="sequential",
                 value_bytes=VALUE_BYTES, clients=COLD_CLIENTS, grace=30).result()
            yield phases(label, server, keys, seconds)
        finally:
            server.stop()


def beyond(commands, folder, scale, seconds):
    """Keys that memory does not hold."""
    disk = Disk(commands["ours"], folder, scale)
    try:
        disk.run("set", requests=disk.keys // 2, order="sequential", clients=COLD_CLIENTS)
        disk.server.settle()
        yield phases("ours", disk.server, disk.keys, seconds)
    finally:
        disk.stop()


def report(commands, folder, scale):
    """Yields the tables' lines; `scale` of the keys and of the time. Above 1, of the time alone."""
    seconds = max(LEAST_S, MINUTES * 60 * scale)
    scale = min(1, scale)
    for title, part in (
            (f"{RESIDENT_KEYS * scale:,.0f} keys in memory (`maxmemory {RESIDENT_MEMORY}`)", resident),
            ("keys in a cgroup that holds a quarter of them", beyond)):
        yield (f"`SET` of {VALUE_BYTES:,} random bytes, {title}; half of the keys are there at the start,"
               f" {COLD_CLIENTS} clients, {seconds:,.0f} s.")
        yield ""
        yield ("| server | due in a second | done | slowest second | under half | p50, ms | p99, ms | p99.9, ms"
               " | max, ms |")
        yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        found = list(part(commands, folder, scale, seconds))
        yield from (row for row, _, _ in found)
        yield ""
        for _, worst, slow in found:
            if worst:
                yield f"Seconds with a p99 above {SLOW_MS} ms: {slow}. The worst, and what ran in them:"
                yield ""
                yield from worst
                yield ""
