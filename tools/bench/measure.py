"""A run of redis-benchmark against a server, and the server's CPU time."""

import csv
import dataclasses
import io
import statistics
import subprocess

from server import CaseError

# A longer last argument is passed on standard input: Linux limits arguments to 128 KiB.
ARGUMENT_BYTES = 100_000


@dataclasses.dataclass
class Sample:
    """One run of redis-benchmark."""

    rps: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    cpu_after_us: float


def measure(server, command, requests, keyspace=1, depth=1, connections=50, alone=True, flags=()):
    """One run against a server: `requests` times `command`, and its background work
    after that. A server with other clients (not `alone`) never becomes idle. `flags`: further
    ones of redis-benchmark."""
    words = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(server.port), "-c", str(connections),
             "-n", str(requests), "-r", str(keyspace), "-P", str(depth), "--csv", "--precision", "3", *flags]
    value = None
    if len(command[-1]) > ARGUMENT_BYTES:
        *command, value = command
        words.append("-x")
    words += command
    if alone:
        server.wait_quiet()
    before = server.cpu_s()
    done = subprocess.run(words, input=value or "", capture_output=True, text=True, check=False)
    after = server.cpu_s()
    if alone:
        server.wait_quiet()
    settled = server.cpu_s()
    rows = list(csv.DictReader(io.StringIO(csv_part(done.stdout))))
    if done.returncode != 0 or not rows:
        raise CaseError(f"redis-benchmark failed on {server.label}:\n{done.stdout[-800:]}\n{done.stderr[-800:]}")
    row = rows[-1]
    return Sample(float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"]),
                  (after - before) / requests * 1e6, (settled - before) / requests * 1e6)


def csv_part(text):
    """The output from the header on (a warning may stand before it)."""
    start = text.find('"test","rps"')
    return text[start:] if start >= 0 else ""


def median(samples):
    """The median of each figure on its own."""
    return Sample(*(statistics.median(column) for column in zip(*map(dataclasses.astuple, samples))))
