"""What an operation on a large collection costs against one of ten elements."""

import random
import socket
import time

from server import Server, encoded, read_replies

SMALL = 10
STEP = 500
DEPTH = 16
SECONDS = 2


def member(n):
    """The n-th field, member or item."""
    return f"member:{n:012}"


def loads(kind, key, count):
    """Commands that make a collection of `count` elements."""
    for start in range(0, count, STEP):
        numbers = range(start, min(start + STEP, count))
        if kind == "hash":
            yield ["HSET", key, *[word for n in numbers for word in (member(n), "value")]]
        elif kind == "set":
            yield ["SADD", key, *[member(n) for n in numbers]]
        elif kind == "zset":
            yield ["ZADD", key, *[word for n in numbers for word in (str(n), member(n))]]
        else:
            yield ["RPUSH", key, *[member(n) for n in numbers]]


# Given a key, a random element and the number of elements.
OPERATIONS = {
    "hash": {
        "HGET": lambda key, n, count: ["HGET", key, member(n)],
        "HSET": lambda key, n, count: ["HSET", key, member(n), "other"],
        "HRANDFIELD": lambda key, n, count: ["HRANDFIELD", key],
        "HLEN": lambda key, n, count: ["HLEN", key],
    },
    "set": {
        "SISMEMBER": lambda key, n, count: ["SISMEMBER", key, member(n)],
        "SREM, SADD": lambda key, n, count: [["SREM", "SADD"][random.getrandbits(1)], key, member(n)],
        "SRANDMEMBER": lambda key, n, count: ["SRANDMEMBER", key],
    },
    "zset": {
        "ZSCORE": lambda key, n, count: ["ZSCORE", key, member(n)],
        "ZADD": lambda key, n, count: ["ZADD", key, str(random.randrange(count)), member(n)],
        "ZRANK": lambda key, n, count: ["ZRANK", key, member(n)],
        "ZCOUNT": lambda key, n, count: ["ZCOUNT", key, str(n // 2), str(n)],
        "ZRANGE of 10": lambda key, n, count: ["ZRANGE", key, str(n), str(n + 9)],
        "ZREVRANGE of 10": lambda key, n, count: ["ZREVRANGE", key, str(n), str(n + 9)],
    },
    "list": {
        "LINDEX": lambda key, n, count: ["LINDEX", key, str(n)],
        "LRANGE of 10": lambda key, n, count: ["LRANGE", key, str(n), str(n + 9)],
        "LSET": lambda key, n, count: ["LSET", key, str(n), "other"],
        "LPUSH, RPOP": lambda key, n, count: [["LPUSH", key, "item"], ["RPOP", key]][random.getrandbits(1)],
    },
}


def cost(server, operation, key, count):
    """Microseconds of CPU and of time per command, sixteen at a time."""
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        reader = link.makefile("rb")

        def batch():
            link.sendall(b"".join(encoded(operation(key, random.randrange(count), count)) for _ in range(DEPTH)))
            read_replies(reader, DEPTH, server.label)

        batch()
        server.wait_quiet()
        cpu, started, commands = server.cpu_s(), time.monotonic(), 0
        while time.monotonic() < started + SECONDS:
            batch()
            commands += DEPTH
        return (server.cpu_s() - cpu) / commands * 1e6, (time.monotonic() - started) / commands * 1e6


def report(commands, folder, scale):
    """Yields the table's lines."""
    count = int(10_000_000 * scale)
    server = Server("ours", commands["ours"], folder)
    try:
        server.wait_ready()
        yield f"| | CPU µs at {SMALL} | at {count:,} | time µs at {SMALL} | at {count:,} | first at {count:,}, ms |"
        yield "|---|---:|---:|---:|---:|---:|"
        for kind, operations in OPERATIONS.items():
            for key, elements in (("small", SMALL), ("large", count)):
                server.load([["DEL", key]])
                server.load(loads(kind, key, elements))
            for name, operation in operations.items():
                started = time.monotonic()
                with socket.create_connection(("127.0.0.1", server.port)) as link:
                    link.sendall(encoded(operation("large", count // 2, count)))
                    read_replies(link.makefile("rb"), 1, server.label)
                first = (time.monotonic() - started) * 1e3
                small, large = cost(server, operation, "small", SMALL), cost(server, operation, "large", count)
                yield (f"| {name} | {small[0]:.1f} | {large[0]:.1f} | {small[1]:.1f} | {large[1]:.1f} |"
                       f" {first:.1f} |")
    finally:
        server.stop()
