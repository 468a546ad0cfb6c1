"""The latency of GETs beside a client with expensive requests."""

import socket
import threading

from measure import measure, median
from server import Server, encoded

ROUNDS = 3
# Few: beside some neighbours, a server with one thread replies to twenty in 50 ms.
REQUESTS = 10_000
MANY = 100_000
MARK = b"$4\r\nmark\r\n"
NEIGHBOURS = {
    "nobody": [],
    "`MGET` of 100,000 keys": [["MGET", *[f"key:{n:012}" for n in range(MANY)]]],
    "`KEYS *` of 100,000": [["KEYS", "*"]],
    "`SMEMBERS` of 100,000": [["SMEMBERS", "many"]],
    "`SORT` of 100,000": [["SORT", "many", "ALPHA", "LIMIT", "0", "10"]],
    "a script of 100,000 `GET`s": [["EVAL", "for n = 1, 100000 do redis.call('GET', KEYS[1]) end", "1", "other"]],
    "`DEL` and `SADD` of 10,000": [["DEL", "filled"], ["SADD", "filled", *[f"member:{n}" for n in range(10_000)]]],
}


class Neighbour:
    """A client that repeats its requests, each after the previous reply."""

    def __init__(self, server, commands):
        self.request = b"".join(map(encoded, [*commands, ["ECHO", "mark"]]))
        self.link = socket.create_connection(("127.0.0.1", server.port))
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        """Sends requests until the end."""
        buffer = bytearray(1 << 20)
        while not self.over.is_set():
            self.link.sendall(self.request)
            tail = b""
            while not tail.endswith(MARK):
                size = self.link.recv_into(buffer)
                if not size:
                    return
                tail = (tail + bytes(buffer[max(0, size - len(MARK)):size]))[-len(MARK):]

    def stop(self):
        """Stops after the outstanding reply."""
        self.over.set()
        self.thread.join()
        self.link.close()


def latency(server, commands, requests):
    """GETs of 20 clients beside a neighbour."""
    neighbour = Neighbour(server, commands) if commands else None
    try:
        return measure(server, ["GET", "key:__rand_int__"], requests, keyspace=MANY, connections=20, alone=False)
    finally:
        if neighbour:
            neighbour.stop()


def report(commands, folder, scale):
    """Yields the table's lines."""
    requests = int(REQUESTS * scale)
    servers = []
    try:
        for label, command in commands.items():
            servers.append(Server(label, command, folder))
        for server in servers:
            server.wait_ready()
            server.load(["SET", f"key:{n:012}", "v" * 64] for n in range(MANY))
            server.load(["SADD", "many", *[f"member:{n + k}" for k in range(100)]] for n in range(0, MANY, 100))
            server.load([["SET", "other", "v"]])
        yield "| beside | GET p50, ms | Redis | GET p99, ms | Redis | GET/s | Redis |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for name, asks in NEIGHBOURS.items():
            samples = {server.label: [] for server in servers}
            for number in range(ROUNDS):
                for server in servers[:: 1 if number % 2 == 0 else -1]:
                    samples[server.label].append(latency(server, asks, requests))
            ours, peer = median(samples["ours"]), median(samples["peer"])
            yield (f"| {name} | {ours.p50_ms:.2f} | {peer.p50_ms:.2f} | {ours.p99_ms:.2f} | {peer.p99_ms:.2f} |"
                   f" {ours.rps:,.0f} | {peer.rps:,.0f} |")
    finally:
        for server in servers:
            server.stop()
