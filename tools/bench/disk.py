"""Data that memory cannot hold, in a memory cgroup: reads, writes, and what they cost others."""

import os
import shutil
import time

from cgroup import Cgroup
from loads import Load, fio_reads
from server import TICKS_PER_S, CaseError, Server, built

KEYS = 2_000_000
VALUE_BYTES = 2_000
MEMORY_MIB = 512
# The server refuses to work with less; its code and threads need more than twice that.
LEAST_KEYS, LEAST_MEMORY_MIB, LEAST_CGROUP_MIB = 100_000, 32, 96
MIB = 1 << 20
SECONDS, LEAST_SECONDS = 10, 1.5
LOAD_DEPTH = 200
# Data, binlog, compactions, fio's file.
DISK_FACTOR = 4.5
HOT_KEYS, HOT_CLIENTS, COLD_CLIENTS = 100, 8, 64
ZIPF = {"order": "zipf", "exponent": 0.99}
DELAY_US = 1_000
# Collections of about a hundred blocks.
ELEMENTS, ELEMENT_BYTES, COLLECTIONS, LEAST_COLLECTIONS = 800, 1_000, 40, 10
MULTIPLES = 100
WRITE_RATES = (10_000, 15_000, 20_000)
COUNTED = 1_000
# Each on a part of the keys of its own, from the end: the last part has counters.
COUNTED_COMMANDS = (
    ("INCR", "{key}:n"), ("GET", "{key}"), ("EXISTS", "{key}"), ("TTL", "{key}"), ("DEL", "{key}"),
    ("SET", "{key}", "{value}"), ("GET", "{key}:none"), ("EXISTS", "{key}:none"), ("TTL", "{key}:none"),
    ("DEL", "{key}:none"), ("SET", "{key}:none", "{value}"), ("SADD", "{key}:none", "member"))
# It lies between keys that are there.
MISSING = "{key}:none"


class Disk:
    """A server in a cgroup with more data than memory, and the figures of it."""

    def __init__(self, command, folder, scale):
        self.folder = folder
        self.generator = built("examples/load")
        self.keys = max(LEAST_KEYS, int(KEYS * scale))
        self.memory = max(LEAST_MEMORY_MIB, int(MEMORY_MIB * scale))
        self.limit = max(LEAST_CGROUP_MIB, 2 * self.memory) * MIB
        self.seconds = max(LEAST_SECONDS, SECONDS * min(1, scale))
        self.collections = max(LEAST_COLLECTIONS, int(COLLECTIONS * scale))
        # Keys that only one of the counted commands uses.
        self.part = self.keys // 20
        self.data_bytes = self.keys * VALUE_BYTES
        if shutil.disk_usage(folder).free < DISK_FACTOR * self.data_bytes:
            raise CaseError(f"{folder} has less than {DISK_FACTOR * self.data_bytes / 1e9:.1f} GB of space")
        self.server = None
        self.cgroups = []
        enclosed = [*command, "--maxmemory", f"{self.memory}mb", "--enable-debug-command", "yes"]
        cgroup = self.cgroup()
        try:
            self.server = Server("ours", cgroup.enclosed(enclosed) if cgroup else enclosed, folder)
            self.server.wait_ready()
        except BaseException:
            self.stop()
            raise

    def cgroup(self):
        """A cgroup with the limit, or None."""
        try:
            self.cgroups.append(Cgroup(self.limit))
            return self.cgroups[-1]
        except OSError:
            return None

    def stop(self):
        """Ends the server, removes its data and the cgroups."""
        if self.server:
            self.server.stop()
        for cgroup in self.cgroups:
            cgroup.remove()

    def start(self, *words, **flags):
        """Starts the load generator; by default on all keys, with values of their size."""
        return Load(self.generator, self.server, *words,
                    **{"keys": self.keys, "value_bytes": VALUE_BYTES, "grace": 30, **flags})

    def run(self, *words, **flags):
        """The result of the load generator."""
        return self.start(*words, **flags).result()

    def gets(self, clients, **flags):
        """GETs of some clients."""
        return self.run("get", clients=clients, **{"seconds": self.seconds, "all_exist": True, **flags})

    def disk_reads(self):
        """Reads that may have waited for the disk so far; None if the build does not count."""
        reads = self.server.info("rocksdb").get("disk_reads")
        return reads and int(reads)

    def reads(self, words, requests, **flags):
        """Reads of the disk per command, over some requests one after the other."""
        self.server.settle()
        before = self.disk_reads()
        self.run(*words, requests=requests, order="scattered", **flags)
        return (self.disk_reads() - before) / requests

    def delay(self, us):
        """Makes each read take longer; False if this build cannot."""
        return self.server.ask("DEBUG", "KEDIS-DELAY-READS", str(us)) == b"+OK\r\n"

    def forget(self):
        """Drops the files of the server from the page cache."""
        for folder, _, names in os.walk(self.server.data):
            for name in names:
                try:
                    file = os.open(os.path.join(folder, name), os.O_RDONLY)
                except FileNotFoundError:
                    continue
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)

    def load(self):
        """Loads everything: collections first, as the keys after them push them out of memory."""
        began = time.monotonic()
        values = [word for n in range(ELEMENTS) for word in (f"field:{n:03}", "{value}")]
        loading = {"order": "sequential", "value_bytes": ELEMENT_BYTES, "keys": 2 * self.collections}
        self.run("HSET", "hash:{key}", *values, requests=2 * self.collections, **loading)
        self.run("RPUSH", "list:{key}", *values[1::2], requests=2 * self.collections, **loading)
        # The last keys have a counter beside them, in the same block.
        loading = {"order": "sequential", "pipeline": LOAD_DEPTH}
        self.run("set", requests=self.keys - self.part, **loading)
        self.run("MSET", "{key}", "{value}", "{same}:n", "5", requests=self.part,
                 **loading, **{"from": self.keys - self.part, "keys": self.part})
        loaded = time.monotonic() - began
        if self.server.ask("DEBUG", "RELOAD") != b"+OK\r\n":
            raise CaseError("DEBUG RELOAD failed")
        self.server.settle()
        return loaded, time.monotonic() - began - loaded


def cells(result, *names):
    """The rate and some latencies, as cells of a table."""
    return f"{result['rate']:,.0f} | " + " | ".join(f"{result['latency_ms'][name]:.2f}" for name in names)


def machine_cpu_s():
    """CPU time of the machine so far, over all cores, waits for the disk excluded."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, *others = map(int, stat.readline().split()[1:9])
    return (user + nice + system + sum(others)) / TICKS_PER_S


def cold(disk):
    """GETs of all keys, and fio's reads beside them."""
    disk.gets(COLD_CLIENTS)
    rates = {}
    yield ("| cold `GET`, clients | in a second | p50, ms | p99, ms | p99.9, ms | cores busy in the server"
           " | in all processes |")
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for clients in (1, 64, 256):
        began, server, machine = time.monotonic(), disk.server.cpu_s(), machine_cpu_s()
        result = disk.gets(clients)
        used = (disk.server.cpu_s() - server, machine_cpu_s() - machine)
        cores = " | ".join(f"{seconds / (time.monotonic() - began):.1f}" for seconds in used)
        rates[clients] = result["rate"]
        yield f"| {clients} | {cells(result, 'p50', 'p99', 'p99.9')} | {cores} |"
    yield ""
    reads = fio_reads(disk.folder, disk.data_bytes, disk.cgroup(), disk.seconds)
    if reads is None:
        yield "fio is missing (Debian's package `fio`): nothing to compare with.\n"
        return
    yield "| random reads of 8 KiB by fio | depth 1 | depth 64 | `GET` of 1 client: ratio | of 64 clients: ratio |"
    yield "|---|---:|---:|---:|---:|"
    for way, name in (("direct", "direct"), ("cached", "through the page cache")):
        one, many = reads[way, 1], reads[way, 64]
        yield f"| {name} | {one:,.0f} | {many:,.0f} | {rates[1] / one:.2f} | {rates[64] / many:.2f} |"
    yield ""


def hot_beside_cold(disk):
    """GETs of hot keys alone, and beside clients that read all keys: both results, and the
    rate of the cold ones."""
    hot = {"clients": HOT_CLIENTS, "keys": HOT_KEYS, "all_exist": True}
    disk.run("get", requests=20 * HOT_KEYS, **hot)
    alone = disk.run("get", seconds=disk.seconds, **hot)
    others = disk.start("get", clients=COLD_CLIENTS, seconds=disk.seconds + 2, all_exist=True)
    try:
        time.sleep(1)
        beside = disk.run("get", seconds=disk.seconds, **hot)
        return alone, beside, others.result()["rate"]
    finally:
        others.stop()


def neighbours(disk):
    """Hot GETs beside cold ones."""
    alone, beside, others = hot_beside_cold(disk)
    yield f"| hot `GET`, {HOT_CLIENTS} clients, {HOT_KEYS} keys | in a second | p50, ms | p99, ms |"
    yield "|---|---:|---:|---:|"
    yield f"| alone | {cells(alone, 'p50', 'p99')} |"
    yield f"| beside {COLD_CLIENTS} cold clients ({others:,.0f}/s) | {cells(beside, 'p50', 'p99')} |"
    yield f"| ratio | {ratio(beside, alone)} |"
    yield ""


def ratio(beside, alone):
    """The ratios of two results, as cells."""
    latencies = (beside["latency_ms"][name] / alone["latency_ms"][name] for name in ("p50", "p99"))
    return f"{beside['rate'] / alone['rate']:.2f} | " + " | ".join(f"{latency:.1f}" for latency in latencies)


def slowed(disk):
    """The same with slow reads."""
    disk.forget()
    if not disk.delay(DELAY_US):
        yield "This build has no `DEBUG KEDIS-DELAY-READS`: slow reads are not measured.\n"
        return
    try:
        one, many = disk.gets(1), disk.gets(COLD_CLIENTS)
        alone, beside, others = hot_beside_cold(disk)
    finally:
        disk.delay(0)
    yield f"| each read {DELAY_US / 1e3:g} ms longer | in a second | p50, ms | p99, ms |"
    yield "|---|---:|---:|---:|"
    yield f"| cold `GET`, 1 client | {cells(one, 'p50', 'p99')} |"
    yield f"| {COLD_CLIENTS} clients | {cells(many, 'p50', 'p99')} |"
    yield f"| ratio | {ratio(many, one)} |"
    yield f"| hot `GET`, {HOT_CLIENTS} clients, alone | {cells(alone, 'p50', 'p99')} |"
    yield f"| beside {COLD_CLIENTS} cold clients ({others:,.0f}/s) | {cells(beside, 'p50', 'p99')} |"
    yield f"| ratio | {ratio(beside, alone)} |"
    yield ""


def multiples(disk, delayed):
    """The mean time of requests for a hundred blocks, by name, in ms; `GET` is for one. Each
    collection is read once: the second half with slow reads."""
    number = disk.collections
    once = {"from": number if delayed else 0, "keys": number, "requests": number, "order": "sequential"}
    of_collection = f", {ELEMENTS} of {ELEMENT_BYTES:,} bytes"
    pipeline = {"pipeline": MULTIPLES, "requests": 50 * MULTIPLES}
    times = {}
    for name, words, flags, requests in (
            ("`GET`", ["get"], {"requests": 500}, 1),
            (f"`MGET` of {MULTIPLES} keys", ["mget"], {"count": MULTIPLES, "requests": 50}, 1),
            (f"{MULTIPLES} `GET`s in a pipeline", ["get"], pipeline, MULTIPLES),
            (f"`HGETALL`{of_collection}", ["HGETALL", "hash:{key}"], once, 1),
            (f"`LRANGE 0 -1`{of_collection}", ["LRANGE", "list:{key}", "0", "-1"], once, 1)):
        disk.forget()
        times[name] = requests * 1e3 / disk.run(*words, **flags)["rate"]
    return times


def hundred_blocks(disk):
    """Requests for a hundred blocks as multiples of a cold GET."""
    usual, slow = multiples(disk, False), None
    if disk.delay(DELAY_US):
        try:
            slow = multiples(disk, True)
        finally:
            disk.delay(0)
    yield f"| mean time | ms | of a `GET` | each read {DELAY_US / 1e3:g} ms longer: ms | of a `GET` |"
    yield "|---|---:|---:|---:|---:|"
    for name in usual:
        columns = (f"{times[name]:.2f} | {times[name] / times['`GET`']:.1f}" if times else "– | –"
                   for times in (usual, slow))
        yield f"| {name} | {' | '.join(columns)} |"
    yield ""


def skewed(disk):
    """GETs of all keys, uniform and Zipf."""
    yield f"| `GET`, {COLD_CLIENTS} clients | in a second | p50, ms | p90, ms | p99, ms | p99.9, ms | p99.99, ms |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, flags in (("uniform", {}), ("Zipf, 0.99", ZIPF)):
        disk.gets(COLD_CLIENTS, **flags)
        yield f"| {name} | {cells(disk.gets(COLD_CLIENTS, **flags), 'p50', 'p90', 'p99', 'p99.9', 'p99.99')} |"
    yield ""


def counted(disk):
    """Reads of the disk per command, one command at a time. The keys of each command are a
    part of all that no other command uses, a block seldom has two of them, and the server has
    been started anew. Filters are in memory after the commands that are not counted."""
    disk.server.restart()
    disk.forget()
    if disk.disk_reads() is None:
        yield "This build does not count reads: `disk_reads` is missing in `INFO`.\n"
        return
    others = disk.keys - len(COUNTED_COMMANDS) * disk.part
    disk.run("get", requests=2 * COUNTED, order="scattered", keys=others)
    disk.run("EXISTS", "{key}:none", requests=2 * COUNTED, order="scattered")
    found = {}
    for number, (name, key, *words) in enumerate(COUNTED_COMMANDS, 1):
        # Short values, so that the commands themselves cause no compaction, which reads, too.
        flags = {"from": disk.keys - number * disk.part, "keys": disk.part, "value_bytes": 100}
        found.setdefault(name, [None, None])[key == MISSING] = disk.reads([name, key, *words], COUNTED, **flags)
    yield "| reads of the disk per command | of a key on disk | of a missing key |"
    yield "|---|---:|---:|"
    for name, reads in found.items():
        yield f"| `{name}` | " + " | ".join("" if read is None else f"{read:.2f}" for read in reads) + " |"
    yield ""


def writes(disk):
    """SETs at fixed rates."""
    yield ("| `SET`, open loop, due in a second | done in a second | slowest second | p50, ms | p99, ms | p99.9, ms"
           " | not answered |")
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for rate in WRITE_RATES:
        result = disk.run("set", clients=COLD_CLIENTS, rate=rate, seconds=3 * disk.seconds, grace=1)
        slowest = min(count for count, _ in result["each_second"])
        at = result["latency_ms"]
        yield (f"| {rate:,} | {result['rate']:,.0f} | {slowest:,} | "
               + " | ".join(f"{at[name]:,.2f}" for name in ("p50", "p99", "p99.9")) + f" | {result['unanswered']:,} |")
        disk.server.settle()
    yield ""


def report(commands, folder, scale):
    """Yields the tables' lines."""
    disk = Disk(commands["ours"], folder, scale)
    try:
        loaded, settled = disk.load()
        bound = disk.cgroups and f"a cgroup (version {disk.cgroups[0].version}) of {disk.limit // MIB:,} MiB"
        yield (f"- {disk.keys:,} keys of {VALUE_BYTES:,} random bytes, `maxmemory {disk.memory}mb`,"
               f" in {bound or 'no cgroup'}.")
        if not bound:
            yield "- **The page cache was not bounded**: no memory cgroup can be made here."
        yield (f"- Loaded in {loaded:.0f} s; compactions ended {settled:.0f} s later;"
               f" {disk.server.disk() / 1e9:.2f} GB on disk.")
        yield ""
        for part in (cold, neighbours, slowed, hundred_blocks, skewed, counted, writes):
            yield from part(disk)
        yield f"- Memory of the process at the end: {disk.server.memory() // MIB:,} MiB."
    finally:
        disk.stop()
