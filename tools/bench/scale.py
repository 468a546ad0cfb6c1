"""Far more keys than fit into the memory budget: loading, reading, restart."""

import bisect
import itertools
import os
import random
import shutil
import socket
import statistics
import threading
import time

from server import CaseError, Server, encoded, read_replies, read_simple_replies

VALUE_BYTES = 64
POOL_BYTES = 1 << 22
BATCH = 1_000
# Bytes of a key on disk during the load, including space for compaction.
DISK_BYTES_PER_KEY = 400
INTERVALS = 10
CLIENTS = 16
SECONDS = 15
ZIPF_EXPONENT = 0.99
ZIPF_RANKS = 1_000_000
MIB = 1 << 20


def key(n):
    """The n-th key in the order of loading, which is not the order of keys."""
    return f"key:{(n * 2654435761) % (1 << 32):010}:{n}"


def load(server, keys):
    """Loads all keys; returns the rate in each tenth, and the peak of memory."""
    # Each value is another part of this, so that values compress like random numbers.
    text = os.urandom(POOL_BYTES // 2).hex().encode()
    last = POOL_BYTES - VALUE_BYTES
    rates, most, started, reported = [], 0, time.monotonic(), 0
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        for start in range(0, keys, BATCH):
            numbers = range(start, min(start + BATCH, keys))
            link.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n"
                                  % (len(name), name, VALUE_BYTES, text[at:at + VALUE_BYTES])
                                  for name, at in ((key(n).encode(), random.randrange(last)) for n in numbers)))
            read_simple_replies(link, len(numbers), server.label)
            if (start + BATCH) * INTERVALS // keys > len(rates):
                now = time.monotonic()
                rates.append((start + BATCH - reported) / (now - started))
                started, reported = now, start + BATCH
            if start % (100 * BATCH) == 0:
                most = max(most, server.memory())
    return rates, max(most, server.memory())


def zipf(keys):
    """A function that draws numbers below `keys`, the k-th as often as 1 / k^0.99."""
    ranks = min(keys, ZIPF_RANKS)
    weights = list(itertools.accumulate(1 / rank**ZIPF_EXPONENT for rank in range(1, ranks + 1)))
    # The popular keys are spread over all that were loaded.
    return lambda: bisect.bisect_left(weights, random.random() * weights[-1]) * 7_919 % keys


def read(server, draw):
    """GETs of several clients; returns replies per second, and percentiles in ms."""
    times, over = [[] for _ in range(CLIENTS)], time.monotonic() + SECONDS

    def client(mine):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            reader = link.makefile("rb")
            while time.monotonic() < over:
                request = encoded(["GET", key(draw())])
                asked = time.perf_counter()
                link.sendall(request)
                read_replies(reader, 1, server.label)
                mine.append(time.perf_counter() - asked)

    threads = [threading.Thread(target=client, args=(mine,)) for mine in times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(itertools.chain(*times))
    at = [ordered[int(share * (len(ordered) - 1))] * 1e3 for share in (0.5, 0.99, 0.999)]
    return len(ordered) / SECONDS, at


def report(commands, folder, scale):
    """Yields the tables' lines."""
    keys = int(50_000_000 * scale)
    free = shutil.disk_usage(folder).free
    keys = min(keys, free // 2 // DISK_BYTES_PER_KEY)
    memory = max(64, keys * 100 // 5 // MIB)
    server = Server("ours", [*commands["ours"], "--maxmemory", f"{memory}mb"], folder)
    try:
        server.wait_ready()
        rates, most = load(server, keys)
        server.wait_quiet()
        yield f"- {keys:,} keys of {VALUE_BYTES} bytes, `maxmemory {memory}mb`."
        yield ("- Keys loaded in a second, over one connection, in each tenth: "
               + ", ".join(f"{rate:,.0f}" for rate in rates)
               + f" (slowest to median {min(rates) / statistics.median(rates):.2f}).")
        yield f"- Most memory of the process while loading: {most // MIB:,} MiB."
        yield f"- On disk: {server.disk() / keys:.0f} bytes a key, the binlog included."
        yield ""
        yield f"| `GET`, {CLIENTS} clients in Python | in a second | p50, ms | p99, ms | p99.9, ms |"
        yield "|---|---:|---:|---:|---:|"
        for name, draw in (("uniform", lambda: random.randrange(keys)), ("Zipf, 0.99", zipf(keys))):
            rate, at = read(server, draw)
            yield f"| {name} | {rate:,.0f} | " + " | ".join(f"{ms:.2f}" for ms in at) + " |"
        yield ""
        yield f"- Most memory after that: {server.memory() // MIB:,} MiB."
        stopped = server.restart()
        if (found := server.ask("DBSIZE")) != b":%d\r\n" % keys:
            raise CaseError(f"{keys} keys were loaded, and DBSIZE is {found!r}")
        yield f"- Stop {stopped[0]:.2f} s, start {stopped[1]:.2f} s; `DBSIZE` is exact."
    finally:
        server.stop()
