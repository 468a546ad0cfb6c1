"""Disk space: bytes for each key and element, and what comes back after deletions and expiry.

The server runs without a binlog and without a reserve, so that its files hold the data alone. The
write-ahead log is bounded by a parameter, not by the data, and is named apart.
"""

import os
import shutil
import socket
import threading
import time
from dataclasses import dataclass

from loads import Load
from server import CaseError, Server, built, encoded

ELEMENTS = 2_000_000
LEAST_ELEMENTS = 40_000
MEMORY_MIB, LEAST_MEMORY_MIB = 256, 64
# Elements of one command, and of a small collection; commands that are sent together.
EACH, DEPTH = 10, 20
# Deletions that take longer are given up; what has then gone is said.
CHANGE_S, LEAST_CHANGE_S = 300, 30
POP_S = 20
# Data of all the servers of the second part, which wait at the same time.
DISK_BYTES = 12_000_000_000
KEPT_PART = 10
BOUNDS = (1.3, 1.15)
WAIT_S, LEAST_WAIT_S = 900, 30
PERIOD_S = 0.5
# Beyond three times the expected time of the load, before anything expires.
EXPIRY_EXTRA_S = 15
AT_ONCE = 1_000
END = b"+PONG\r\n"
DOCUMENT = '{"id":"{key}","name":"name of {same}","tags":["one","two","three"],"score":12.5}'
DOCUMENT_BYTES = len(DOCUMENT) - len("{key}{same}") + 2 * 12


@dataclass
class Shape:
    """Keys or elements of one kind: how they are made, `each` by one command, and their bytes of user data."""

    words: list
    each: int
    data_bytes: int
    value_bytes: int = 100
    # Of all elements: long values and small collections are fewer.
    share: float = 1


def many(*words, times=EACH):
    """The words of several elements."""
    return list(words) * times


# Numbers have twelve digits; a score counts eight bytes, a generated id nothing.
SHAPES = {
    "string of 100 bytes": Shape(["MSET", *many("key:{key}", "{value}")], EACH, 116),
    "string of 2,000 bytes": Shape(["MSET", *many("key:{key}", "{value}")], EACH, 2_016, 2_000, 0.1),
    "field of a large hash": Shape(["HSET", "large", *many("{key}", "{value}")], EACH, 112),
    "member of a large set": Shape(["SADD", "large", *many("{value}")], EACH, 20, 20),
    "member of a large sorted set": Shape(["ZADD", "large", *many("{key}", "{value}")], EACH, 28, 20),
    "item of a large list": Shape(["RPUSH", "large", *many("{value}")], EACH, 100),
    "entry of a large stream": Shape(["XADD", "large", "*", "field", "{value}"], 1, 105),
    "hash of ten fields": Shape(
        ["HSET", "key:{key}", *[word for n in range(10) for word in (f"f{n}", "{value}")]], 1, 136, 10, 0.1),
    "set of ten members": Shape(["SADD", "key:{key}", *many("{value}")], 1, 116, 10, 0.1),
    "sorted set of ten members": Shape(
        ["ZADD", "key:{key}", *[word for n in range(10) for word in (str(n), "{value}")]], 1, 196, 10, 0.1),
    "list of ten items": Shape(["RPUSH", "key:{key}", *many("{value}")], 1, 116, 10, 0.1),
    "JSON document": Shape(["JSON.SET", "key:{key}", "$", DOCUMENT], 1, 16 + DOCUMENT_BYTES, 100, 0.2),
}


@dataclass
class Case:
    """Data of which a tenth stays: the numbers below a tenth of all, or, if `tail`, the last ones."""

    load: list
    each: int
    # What removes the others, or, with times, makes the tenth stay; `{at}` is when the others expire.
    change: list
    change_each: int
    scan: object
    pop: list
    tail: bool = False
    # Of other words for the server that gets the tenth alone.
    fresh: list = None
    expires: bool = False
    # Numbers from all over go, not a range of them.
    scattered: bool = False


def scan_keys(cursor):
    """The next step through the keys."""
    return ["SCAN", cursor, "COUNT", str(AT_ONCE)]


def scan_large(command):
    """The steps through a large key."""
    return lambda cursor: [command, "large", cursor, "COUNT", str(AT_ONCE)]


PAIRS = many("{key}", "{value}")
CASES = {
    "`DEL` of keys": Case(
        ["MSET", *PAIRS], EACH, ["DEL", *many("{key}")], EACH, scan_keys, ["RANDOMKEY"], scattered=True),
    "`HDEL`": Case(
        ["HSET", "large", *PAIRS], EACH, ["HDEL", "large", *many("{key}")], EACH, scan_large("HSCAN"),
        ["HGETDEL", "large", "FIELDS", "1", "{key}"]),
    "`SREM`": Case(
        ["SADD", "large", *many("member:{key}")], EACH, ["SREM", "large", *many("member:{key}")], EACH,
        scan_large("SSCAN"), ["SPOP", "large"]),
    "`ZREM`": Case(
        ["ZADD", "large", *many("{key}", "member:{same}")], EACH, ["ZREM", "large", *many("member:{key}")], EACH,
        scan_large("ZSCAN"), ["ZPOPMIN", "large"], tail=True),
    "`LPOP`": Case(
        ["RPUSH", "large", *many("{value}")], EACH, ["LPOP", "large", str(EACH)], EACH,
        ["LRANGE", "large", "0", "-1"], ["LPOP", "large"], tail=True),
    "`XDEL`": Case(
        ["XADD", "large", "{key}-1", "field", "{value}"], 1, ["XDEL", "large", *many("{key}-1")], EACH,
        ["XRANGE", "large", "-", "+"], ["XTRIM", "large", "MINID", "{key}-2"], tail=True),
    "keys expire": Case(
        ["MSETEX", str(EACH), *PAIRS, "PXAT", "{at}"], EACH, ["PERSIST", "{key}"], 1, scan_keys, ["RANDOMKEY"],
        fresh=["MSET", *PAIRS], expires=True, scattered=True),
    "fields expire": Case(
        ["HSETEX", "large", "PXAT", "{at}", "FIELDS", str(EACH), *PAIRS], EACH,
        ["HPERSIST", "large", "FIELDS", str(EACH), *many("{key}")], EACH, scan_large("HSCAN"),
        ["HGETDEL", "large", "FIELDS", "1", "{key}"], fresh=["HSET", "large", *PAIRS], expires=True),
}


class Space:
    """A server, its data and its files."""

    def __init__(self, command, folder, scale):
        memory = max(LEAST_MEMORY_MIB, int(MEMORY_MIB * min(1, scale)))
        self.generator = built("examples/load")
        self.server = Server("ours", [*command, "--binlog-enabled", "no", "--disk-reserve", "0",
                                      "--maxmemory", f"{memory}mb"], folder)
        try:
            self.server.wait_ready()
        except BaseException:
            self.server.stop()
            raise

    def run(self, words, count, each, first=0, **flags):
        """Commands for `count` numbers, each once, `each` in a command: how many were done, and their rate."""
        flags = {"keys": count, "from": first, "order": "sequential", "pipeline": DEPTH, "prefix": "", **flags}
        result = Load(self.generator, self.server, *words, requests=count // each, **flags).result()
        return result["requests"], result["rate"]

    def files(self):
        """Bytes of its files without the write-ahead log and its own log, and of the write-ahead log."""
        data = logged = 0
        for folder, _, names in os.walk(self.server.data):
            for name in names:
                if folder == self.server.data:
                    continue
                try:
                    found = os.stat(os.path.join(folder, name))
                except FileNotFoundError:
                    # A compaction has removed it since.
                    continue
                allocated = found.st_blocks * 512
                if name.endswith(".log"):
                    logged += allocated
                else:
                    # What is allocated beyond the end goes when the file is closed.
                    data += min(found.st_size, allocated)
        return data, logged

    def rest(self):
        """Has everything written to tables, and waits for compactions."""
        self.server.restart()
        self.server.settle()

    def walk(self, scan):
        """The seconds that a walk over everything takes."""
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.server.port)) as link:
            cursor = "0"
            while cursor:
                reply = asked(link, scan(cursor) if callable(scan) else scan)
                cursor = callable(scan) and reply.split(b"\r\n", 3)[2].decode()
                if cursor == "0":
                    break
        return time.monotonic() - begun


def asked(link, words):
    """The encoded reply to a command. Reading it must not take longer than making it, so it is not parsed."""
    link.sendall(encoded(words) + encoded(["PING"]))
    parts, tail = [], b""
    while not tail.endswith(END):
        data = link.recv(1 << 20)
        if not data:
            raise CaseError("the server closed the connection")
        parts.append(data)
        tail = (tail + data)[-len(END):]
    reply = b"".join(parts)
    if reply.startswith(b"-"):
        raise CaseError(reply.split(b"\r\n", 1)[0].decode())
    return reply


def at_rest(commands, folder, scale, elements):
    """Bytes on disk for each key and element: the lines of the table."""
    yield "| | count | bytes on disk for each | of user data | ratio |"
    yield "|---|---:|---:|---:|---:|"
    for name, shape in SHAPES.items():
        space = Space(commands["ours"], folder, scale)
        try:
            space.rest()
            empty = space.files()[0]
            count = int(elements * shape.share) // EACH * EACH
            space.run(shape.words, count, shape.each, value_bytes=shape.value_bytes)
            space.rest()
            each = (space.files()[0] - empty) / count
            yield f"| {name} | {count:,} | {each:,.1f} | {shape.data_bytes:,} | {each / shape.data_bytes:.2f} |"
        finally:
            space.server.stop()
    yield ""


class Watch:
    """Looks at the files of a server until they are as small as those of a fresh one."""

    def __init__(self, space, fresh_bytes, since, wait_s):
        self.space, self.fresh_bytes, self.since, self.wait_s = space, fresh_bytes, since, wait_s
        self.took, self.over = {}, threading.Event()
        self.ratio = self.logged = 0
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        """Samples the files; sends nothing."""
        while len(self.took) < len(BOUNDS) and not self.over.wait(PERIOD_S):
            passed = time.time() - self.since
            if passed < 0:
                continue
            data, self.logged = self.space.files()
            self.ratio = data / self.fresh_bytes
            for bound in BOUNDS:
                if self.ratio <= bound:
                    self.took.setdefault(bound, passed)
            if passed > self.wait_s:
                return

    def cells(self):
        """When each bound was reached, the ratio at the end, and the log's MB."""
        self.thread.join()
        times = (f"{self.took[bound]:.0f} s" if bound in self.took else f"not in {self.wait_s:.0f} s"
                 for bound in BOUNDS)
        return " | ".join((*times, f"{self.ratio:.2f}", f"{self.logged / 1e6:,.0f}"))


def speeds(space, case, elements):
    """Seconds of the first walk and of a second one, and pops in a second."""
    first, again = space.walk(case.scan), space.walk(case.scan)
    kept = elements // KEPT_PART
    begin = elements - kept if case.tail else 0
    return first, again, space.run(case.pop, kept // 2, 1, first=begin, seconds=POP_S)[1]


def fresh_figures(command, folder, scale, case, elements):
    """A server that gets the tenth alone: bytes of its files, seconds of the load, and its speeds."""
    space = Space(command, folder, scale)
    try:
        kept = elements // KEPT_PART
        begun = time.monotonic()
        space.run(case.fresh or case.load, kept, case.each, first=elements - kept if case.tail else 0)
        loaded_s = time.monotonic() - begun
        space.rest()
        return space.files()[0], loaded_s, speeds(space, case, elements)
    finally:
        space.server.stop()


def reduce(space, case, elements, loaded_s, limit_s):
    """Loads everything and has nine tenths go; returns when they are gone, Unix time, and their rate."""
    kept = elements // KEPT_PART
    at = time.time() + 3 * KEPT_PART * loaded_s + EXPIRY_EXTRA_S
    words = [str(int(at * 1000)) if word == "{at}" else word for word in case.load]
    space.run(words, elements, case.each)
    space.rest()
    spread = {"order": "scattered", "keys": elements} if case.scattered else {}
    if case.expires:
        space.run(case.change, kept, case.change_each, **spread)
        if time.time() > at:
            raise CaseError("the data took longer to load than was thought")
        return at, None
    first = 0 if case.tail or spread else kept
    gone = elements - kept
    done, rate = space.run(case.change, gone, case.change_each, first=first, seconds=limit_s, **spread)
    if done < gone // case.change_each:
        raise CaseError(f"{done * case.change_each:,} of {gone:,} were gone after {limit_s:.0f} s")
    return time.time(), rate * case.change_each


class Gone:
    """A case from its begin: a fresh server, which is measured, and one that loses nine tenths."""

    def __init__(self, command, folder, scale, case, elements):
        self.case, self.elements, self.watch = case, elements, None
        self.fresh_bytes, loaded_s, self.fresh = fresh_figures(command, folder, scale, case, elements)
        self.space = Space(command, folder, scale)
        share = min(1, scale)
        try:
            since, self.rate = reduce(self.space, case, elements, loaded_s, max(LEAST_CHANGE_S, CHANGE_S * share))
        except BaseException:
            self.space.server.stop()
            raise
        self.watch = Watch(self.space, self.fresh_bytes, since, max(LEAST_WAIT_S, WAIT_S * share))

    def files(self):
        """Cells about its files."""
        rate = f"{self.rate:,.0f}" if self.rate else "–"
        return f"{rate} | {self.fresh_bytes / 1e6:,.1f} | {self.watch.cells()}"

    def speeds(self):
        """Cells about reads and pops."""
        fresh, now = self.fresh, speeds(self.space, self.case, self.elements)
        return (f"{fresh[0] * 1e3:,.0f} | {now[0] / fresh[0]:.2f} | {now[1] / fresh[1]:.2f} | {fresh[2]:,.0f} |"
                f" {now[2] / fresh[2]:.2f}")

    def stop(self):
        """Ends its server and what looks at its files."""
        self.space.server.stop()
        self.watch.over.set()
        self.watch.thread.join()


def come_back(commands, folder, scale, elements):
    """After nine tenths have gone: the lines of the tables."""
    gone, failed = {}, {}
    try:
        for name, case in CASES.items():
            try:
                gone[name] = Gone(commands["ours"], folder, scale, case, elements)
            except CaseError as problem:
                failed[name] = problem
        yield (f"| nine tenths gone by | elements in a second | fresh, MB | ≤ {BOUNDS[0]} × after"
               f" | ≤ {BOUNDS[1]} × after | at the end | log ahead, MB |")
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for name, one in gone.items():
            yield f"| {name} | {one.files()} |"
        yield ""
        if failed:
            yield from (f"- {name}: not measured: {problem}" for name, problem in failed.items())
            yield ""
        yield "| after that | scan, fresh, ms | first scan | second scan | pops, fresh, in a second | rate |"
        yield "|---|---:|---:|---:|---:|---:|"
        for name, one in gone.items():
            yield f"| {name}, then `{one.case.pop[0]}` | {one.speeds()} |"
        yield ""
    finally:
        for one in gone.values():
            one.stop()


def report(commands, folder, scale):
    """Yields the tables' lines; `scale` of the elements, and, below 1, of the memory and of the wait."""
    if shutil.disk_usage(folder).free < DISK_BYTES * scale:
        raise CaseError(f"{folder} has less than {DISK_BYTES * scale / 1e9:.1f} GB of space")
    elements = max(LEAST_ELEMENTS, int(ELEMENTS * scale)) // 200 * 200
    yield "Values and names of elements are random bytes; numbers of keys, fields and scores have twelve digits."
    yield ""
    yield from at_rest(commands, folder, scale, elements)
    yield (f"Of {elements:,} elements nine tenths go; then the server gets no command. Compared is a fresh server"
           " that was given the tenth alone.")
    yield ""
    yield from come_back(commands, folder, scale, elements)
