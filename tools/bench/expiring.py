"""Fields of hashes whose times end together, and the latency of another client beside that."""

import socket
import time

from server import CaseError, Server, encoded

FIELDS = 10_000_000
AT_ONCE = 1000
# Fields in one hash of many.
FEW = 10
LONGEST_S = 900
BEFORE_S = 3
# What the other client asks in turn: of a hash whose fields expire, and of another.
ASKED = {
    "`HGET`, another hash": ["HGET", "other", "stays"],
    "`HSET`, another hash": ["HSET", "other", "stays", "w"],
    "`HGET`, a hash that expires": ["HGET", "{hash}", "stays"],
    "`HSET`, a hash that expires": ["HSET", "{hash}", "stays", "w"],
    "`HLEN`, a hash that expires": ["HLEN", "{hash}"],
}


def batches(fields, each, at_ms):
    """Commands that set fields with a time, a thousand in each."""
    for first in range(0, fields, AT_ONCE):
        for begin in range(first, min(first + AT_ONCE, fields), min(each, AT_ONCE)):
            pairs = [word for n in range(begin, min(begin + each, first + AT_ONCE, fields))
                     for word in (f"field:{n:09}", "value")]
            yield ["HSETEX", f"hash:{begin // each}", "PXAT", at_ms, "FIELDS", len(pairs) // 2, *pairs]


def load(server, fields, each):
    """Loads the fields; returns when they expire, Unix ms."""
    probe = min(fields, 200_000)
    begun = time.monotonic()
    far = int(time.time() * 1000) + 10**9
    server.load([str(word) for word in command] for command in batches(probe, each, far))
    per_field = (time.monotonic() - begun) / probe
    at_ms = int((time.time() + 2 * per_field * fields + 10) * 1000)
    server.load([str(word) for word in command] for command in batches(fields, each, at_ms))
    server.load([["HSET", "other", "stays", "v"], ["HSET", "hash:0", "stays", "v"]])
    if time.time() * 1000 + BEFORE_S * 1000 > at_ms:
        raise CaseError("the fields took longer to load than was thought")
    return at_ms


class Client:
    """Sends commands one after the other and notes when each began and how long it took."""

    def __init__(self, server):
        self.link = socket.create_connection(("127.0.0.1", server.port))
        self.reader = self.link.makefile("rb")

    def call(self, words):
        """The reply: a number, a text, or None."""
        self.link.sendall(encoded(words))
        line = self.reader.readline()
        if line[:1] == b"$":
            return None if line[1:2] == b"-" else self.reader.read(int(line[1:]) + 2)[:-2]
        return int(line[1:]) if line[:1] == b":" else line[1:-2]


def beside(server, fields, at_ms):
    """Latencies in ms before and after the time, and the seconds until all fields are gone."""
    client, seen = Client(server), {"before": [], "after": []}
    commands = [[word.format(hash="hash:0") for word in words] for words in ASKED.values()]
    time.sleep(max(0, at_ms / 1000 - BEFORE_S - time.time()))
    gone, looked = None, 0
    while gone is None:
        for number, words in enumerate(commands):
            begun = time.time()
            client.call(words)
            took = time.time() - begun
            part = "before" if begun * 1000 < at_ms else "after"
            seen[part].append((number, took * 1000))
        now = time.time()
        if now * 1000 > at_ms:
            if looked == 0 and client.call(["HGET", "hash:0", "field:000000000"]) is not None:
                raise CaseError("a field whose time is over is seen")
            if now - looked > 0.5:
                looked = now
                if int(server.info("stats")["expired_subkeys"]) >= fields:
                    gone = now - at_ms / 1000
            if now * 1000 > at_ms + LONGEST_S * 1000:
                raise CaseError(f"fields are left after {LONGEST_S} s")
    return seen, gone


def at(values, share):
    """The value that this share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(commands, folder, scale):
    """Yields the tables' lines; ours alone."""
    fields = max(FEW, int(FIELDS * scale))
    for title, each in (("one hash", fields), (f"hashes of {FEW}", FEW)):
        server = Server("ours", commands["ours"], folder)
        try:
            server.wait_ready()
            at_ms = load(server, fields, each)
            full = server.disk()
            seen, gone = beside(server, fields, at_ms)
            server.wait_quiet()
            yield (f"{fields:,} fields in {title}: gone after {gone:.0f} s, {fields / gone:,.0f} a second;"
                   f" {full / 1e6:,.0f} MB on disk before, {server.disk() / 1e6:,.0f} MB after")
            yield ""
            yield "| beside that | p50 before, ms | p50 | p99 before | p99 | longest |"
            yield "|---|---:|---:|---:|---:|---:|"
            for number, name in enumerate(ASKED):
                before, after = ([took for asked, took in seen[part] if asked == number] for part in seen)
                yield (f"| {name} | {at(before, 0.5):.2f} | {at(after, 0.5):.2f} | {at(before, 0.99):.2f} |"
                       f" {at(after, 0.99):.2f} | {max(after):.1f} |")
            yield ""
        finally:
            server.stop()
