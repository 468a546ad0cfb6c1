"""The cost of a command with growing connections, pipelines, values and IO threads."""

import resource

from measure import measure, median
from server import Server

ROUNDS = 3
KEYS = 100_000
VALUES_BYTES = 512 << 20
CONNECTIONS = (1, 50, 1_000, 10_000)
DEPTHS = (1, 4, 16, 64, 256)
VALUE_SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
THREADS = (1, 2, 4)


def dimensions(scale):
    """Name of a dimension, and for each of its values: label, options of the run, flags of our server."""
    requests = int(300_000 * scale)
    pipelined = int(1_000_000 * scale)
    yield "connections", [(f"{n:,}", {"connections": n, "requests": requests // (5 if n == 1 else 1)}, [])
                          for n in CONNECTIONS]
    yield "`-P`", [(str(n), {"depth": n, "requests": pipelined if n > 1 else requests}, []) for n in DEPTHS]
    yield "value, bytes", [(f"{n:,}", {"size": n, "requests": max(2_000, min(requests, int(2 * VALUES_BYTES * scale) // n))},
                            []) for n in VALUE_SIZES]
    yield "IO threads, `-P 16`", [(str(n), {"depth": 16, "requests": pipelined}, ["--io-threads", str(n)]) for n in THREADS]


def cost(commands, folder, run, flags):
    """Medians of SET and GET on each server, in turns."""
    run = dict(run)
    value = "v" * run.pop("size", 64)
    keys = max(100, min(KEYS, VALUES_BYTES // len(value)))
    servers = []
    try:
        for label, command in commands.items():
            extra = flags if label == "ours" else []
            servers.append(Server(label, [*command, *extra, "--maxclients", "12000"], folder))
        samples = {}
        for server in servers:
            server.wait_ready()
            server.load(["SET", f"key:{n:012}", value] for n in range(keys))
        for number in range(ROUNDS):
            for server in servers[:: 1 if number % 2 == 0 else -1]:
                for name, words in (("SET", ["SET", "key:__rand_int__", value]), ("GET", ["GET", "key:__rand_int__"])):
                    sample = measure(server, words, keyspace=keys, **run)
                    samples.setdefault((server.label, name), []).append(sample)
        return {key: median(list_) for key, list_ in samples.items()}
    finally:
        for server in servers:
            server.stop()


def report(commands, folder, scale):
    """Yields the tables' lines."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for dimension, values in dimensions(scale):
        yield f"| {dimension} | SET/s | of Redis | GET/s | of Redis | SET p99, ms | of Redis | GET p99, ms | of Redis |"
        yield "|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        for label, run, flags in values:
            medians = cost(commands, folder, run, flags)
            cells = [label]
            for figure, digits in (("rps", 0), ("p99_ms", 2)):
                for name in ("SET", "GET"):
                    ours, peer = (getattr(medians[side, name], figure) for side in ("ours", "peer"))
                    cells += [f"{ours:,.{digits}f}", f"{ours / peer:.2f}×" if peer else "–"]
            yield "| " + " | ".join(cells) + " |"
        yield ""
