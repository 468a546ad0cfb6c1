"""Resident memory against `maxmemory`, with data twenty times as large, in a cgroup that has a tenth more.

The cgroup has no room beside that tenth: whoever sets the limit of a container to `maxmemory` and a
little more has just that. Code, kernel buffers of sockets and the page cache count against the limit, too;
the kernel takes pages of files back before it kills, so the peak of the cgroup says little where
it is near the limit, and the anonymous part of the resident memory says most. A server that is killed
is started again on its data, so that the other phases can be measured. The replicas of the full
sync, and all clients, are outside.
"""

import random
import resource
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter

from cgroup import Cgroup
from loads import Load
from server import CaseError, Server, built, encoded

MIB = 1 << 20
MEMORY_MIB, LEAST_MEMORY_MIB = 256, 64
REPLICA_MIB = 64
TIMES = 20
# Of `maxmemory`: the limit of the cgroup, and those after kills.
LIMITS = (1.1, 1.25, 1.5, 2, 3)
# A process that is killed needs a moment to end after its connections.
END_S = 5
# Parts of the data, in percent, and the bytes of a value or member.
STRINGS, HASH, ZSET = (80, 2_000), (10, 200), (10, 100)
LOADERS, DEPTH = 16, 50
CLIENTS, LEAST_CLIENTS = 10_000, 500
SECONDS, LEAST_SECONDS = 30, 3
# Of `maxmemory`: a reply (100 MB of 256 MiB), and the tables of a script.
REPLY_SHARE, SCRIPT_SHARE = 100e6 / (256 * MIB), 1 / 8
PIECE, ITEM_BYTES = 1_000_000, 10_000
FAST_READERS, SLOW_READERS, READ_TIMES, SLOW_S = 4, 4, 3, 20
SLOW_PIECE = 1 << 16
SCRIPTS, SCRIPT_TIMES = 4, 5
SCRIPT = ("local t = {} for n = 1, tonumber(ARGV[1]) do t[n] = string.rep('x', 1000) .. n end "
          "table.sort(t) return #t")
SYNC_DEADLINE_S = 1_800
SAMPLE_S, INFO_S = 0.05, 0.2
# The table of the row cache and the code are there from the start.
OWNERS = {"at the start": "used_memory_startup", "memtables": "used_memory_memtables", "row cache": "row_cache_bytes",
          "rank indexes": "rank_index_bytes", "clients": "mem_clients_normal", "replicas": "mem_clients_slaves",
          "requests": "mem_unfinished_requests",
          "interpreters": "used_memory_vm_total", "scripts": "used_memory_scripts", "tables": "table_readers_bytes"}


def owners(fields):
    """The bytes that each part of the server has by its own figures, most first."""
    found = {name: int(fields.get(field, 0)) for name, field in OWNERS.items()}
    used, resident = int(fields["used_memory"]), int(fields["used_memory_rss"])
    # The figure contains what memtables reserve.
    found["blocks"] = max(0, int(fields["used_memory_block_cache"]) - found["memtables"])
    found["not named"] = used - sum(found.values())
    found["allocator and code"] = resident - used
    return sorted(found.items(), key=lambda owner: -owner[1])


class Watch:
    """Samples the memory of a server while something runs."""

    def __init__(self, server, cgroup):
        self.server, self.cgroup, self.over = server, cgroup, threading.Event()
        self.peaks, self.largest = Counter(), {}
        # From here on the peak that the kernel keeps is that of this phase.
        with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="ascii") as refs:
            refs.write("5")
        self.threads = [threading.Thread(target=self.repeat, args=(look, pause))
                        for look, pause in ((self.look, SAMPLE_S), (self.ask, INFO_S))]
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()

    def repeat(self, look, pause):
        """Calls `look` until it is over."""
        while not self.over.is_set():
            try:
                look()
            except (OSError, ValueError):
                # It has been killed, or does not take one more client: the phase says so.
                pass
            self.over.wait(pause)

    def look(self):
        """What the kernel says."""
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            lines = dict(line.split(":", 1) for line in status.read().splitlines())
        for name in ("VmHWM", "RssAnon", "RssFile"):
            if name in lines:
                self.peaks[name] = max(self.peaks[name], int(lines[name].split()[0]) * 1024)
        if self.cgroup:
            self.peaks["cgroup"] = max(self.peaks["cgroup"], self.cgroup.used())

    def ask(self):
        """What the server says, when it has most."""
        fields = {**self.server.info("memory"), **self.server.info("rocksdb")}
        if int(fields["used_memory_rss"]) > int(self.largest.get("used_memory_rss", 0)):
            self.largest = fields

    def stop(self):
        """Ends it; returns the seconds since it began."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        return time.monotonic() - self.began


class Memory:
    """A server in a cgroup."""

    def __init__(self, command, folder, scale):
        self.command, self.folder = command, folder
        self.generator = built("examples/load")
        self.memory = max(LEAST_MEMORY_MIB, int(MEMORY_MIB * scale)) * MIB
        self.clients = max(LEAST_CLIENTS, int(CLIENTS * min(1, scale)))
        self.seconds = max(LEAST_SECONDS, SECONDS * min(1, scale))
        self.data_bytes = TIMES * self.memory
        # The number of the limit that holds.
        self.limit = 0
        self.keys = self.part(STRINGS)
        # The data, those of three replicas, an RDB file, binlogs.
        if shutil.disk_usage(folder).free < 7 * self.data_bytes:
            raise CaseError(f"{folder} has less than {7 * self.data_bytes / 1e9:.1f} GB of space")
        try:
            self.cgroup = Cgroup(int(LIMITS[0] * self.memory))
        except OSError:
            self.cgroup = None
        self.server = None
        words = [*command, "--maxmemory", str(self.memory), "--maxclients", str(2 * CLIENTS)]
        try:
            self.server = Server("ours", self.cgroup.enclosed(words) if self.cgroup else words, folder)
            self.server.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Ends the server, removes its data and the cgroup."""
        if self.server:
            self.server.stop()
        if self.cgroup:
            self.cgroup.remove()

    def part(self, share):
        """The number of elements of a part of the data."""
        percent, size = share
        return self.data_bytes * percent // 100 // size

    def run(self, *words, **flags):
        """A run of the load generator: how many replies were errors, by their first word."""
        flags = {"clients": LOADERS, "pipeline": DEPTH, "order": "sequential", **flags}
        result = Load(self.generator, self.server, *words, **flags).result(errors_allowed=True)
        errors = result["errors"]
        return Counter({(result["first_error"] or "error").split()[0]: errors} if errors else {})

    def kills(self):
        """How many processes have been killed for memory."""
        return self.cgroup.kills() if self.cgroup else 0

    def has_ended(self):
        """Whether the server has ended after a connection to it failed."""
        try:
            self.server.process.wait(END_S)
            return True
        except subprocess.TimeoutExpired:
            return False

    def start_again(self):
        """Starts the server after its end; says whether that was with a higher limit."""
        is_higher = self.cgroup is not None and self.limit + 1 < len(LIMITS)
        if is_higher:
            self.limit += 1
            self.cgroup.raise_limit(int(LIMITS[self.limit] * self.memory))
        self.server.start()
        self.server.wait_ready()
        return is_higher

    def reply_bytes(self):
        """The length of a long reply."""
        return int(self.memory * REPLY_SHARE) // PIECE * PIECE


def bulk_load(memory):
    """Strings, a hash and a sorted set."""
    found = memory.run("set", requests=memory.keys, keys=memory.keys, value_bytes=STRINGS[1])
    for words, share in ((("HSET", "hash", "{key}", "{value}"), HASH), (("ZADD", "zset", "{key}", "{value}"), ZSET)):
        count = memory.part(share)
        found += memory.run(*words, requests=count, keys=count, value_bytes=share[1], prefix="")
    return found


def full_syncs(memory):
    """Three replicas at once."""
    replicas = []
    try:
        for _ in range(3):
            replicas.append(Server("replica", [*memory.command, "--maxmemory", f"{REPLICA_MIB}mb", "--replicaof",
                                               f"127.0.0.1 {memory.server.port}"], memory.folder))
        for replica in replicas:
            replica.wait_ready()
        deadline = time.monotonic() + SYNC_DEADLINE_S
        while any(replica.info("replication").get("master_link_status") != "up" for replica in replicas):
            memory.server.check()
            if time.monotonic() > deadline:
                raise CaseError(f"not in sync after {SYNC_DEADLINE_S} s")
            time.sleep(0.5)
        return Counter()
    finally:
        for replica in replicas:
            replica.stop()


def copy(memory, *words):
    """A copy of the database by a command, until it ends."""
    reply = memory.server.ask(*words)
    if reply.startswith(b"-"):
        return Counter([reply.split()[0][1:].decode()])
    while memory.server.info("persistence")["rdb_bgsave_in_progress"] != "0":
        memory.server.check()
        time.sleep(0.2)
    failed = memory.server.info("persistence")["rdb_last_bgsave_status"] != "ok"
    return Counter(["failed"] if failed else [])


def many_clients(memory):
    """GETs of all keys by many clients."""
    return memory.run("get", clients=memory.clients, pipeline=1, order="uniform", keys=memory.keys,
                      seconds=memory.seconds, grace=120)


def at_once(memory, jobs):
    """Runs jobs beside each other; each gets a connection and counts in what it returns."""
    found = []

    def run(job):
        try:
            with socket.create_connection(("127.0.0.1", memory.server.port)) as link:
                found.append(job(link))
        except OSError as problem:
            found.append(Counter([f"not connected: {problem.strerror}"]))

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory.server.check()
    return sum(found, Counter())


def read_reply(link, words, expected, piece, pause):
    """Reads a reply of `expected` bytes in pieces with a pause after each: what went wrong."""
    try:
        link.sendall(encoded(words))
        done = 0
        while done < expected:
            data = link.recv(min(piece, expected - done))
            if not data:
                return Counter(["disconnected"])
            if done == 0 and data.startswith(b"-"):
                return Counter([data.split()[0][1:].decode()])
            done += len(data)
            time.sleep(pause)
    except (ConnectionResetError, BrokenPipeError):
        return Counter(["disconnected"])
    return Counter()


def long_replies(memory):
    """A string and a list, read whole by several clients at once, of which some are slow."""
    length = memory.reply_bytes()
    pieces, items = length // PIECE, length // ITEM_BYTES
    memory.server.ask("DEL", "long", "items")
    made = memory.run("APPEND", "long", "{value}", requests=pieces, clients=1, pipeline=1, value_bytes=PIECE)
    made += memory.run("RPUSH", "items", "{value}", requests=items, value_bytes=ITEM_BYTES)
    replies = ((["GET", "long"], len(f"${length}\r\n") + length + 2),
               (["LRANGE", "items", "0", "-1"],
                len(f"*{items}\r\n") + items * (len(f"${ITEM_BYTES}\r\n") + ITEM_BYTES + 2)))

    def fast(number):
        words, expected = replies[number % 2]
        return lambda link: next(filter(None, (read_reply(link, words, expected, MIB, 0)
                                               for _ in range(READ_TIMES))), Counter())

    def slow(number):
        words, expected = replies[number % 2]
        return lambda link: read_reply(link, words, expected, SLOW_PIECE, SLOW_S * SLOW_PIECE / expected)

    return made + at_once(memory, [*map(fast, range(FAST_READERS)), *map(slow, range(SLOW_READERS))])


def long_scripts(memory):
    """Scripts that build long tables."""
    count = str(int(memory.memory * SCRIPT_SHARE) // 1_000)

    def runs(link):
        """Scripts one after the other."""
        found, reader = Counter(), link.makefile("rb")
        for _ in range(SCRIPT_TIMES):
            # A key of its own, so that they run side by side.
            link.sendall(encoded(["EVAL", SCRIPT, "1", f"script:{random.getrandbits(32)}", count]))
            reply = reader.readline()
            if not reply.startswith(b":"):
                found["disconnected" if not reply else reply[1:].split(b" ", 1)[0].decode()] += 1
        return found

    return at_once(memory, [runs] * SCRIPTS)


PHASES = {
    "bulk load": bulk_load,
    "full sync of three replicas": full_syncs,
    "`BGSAVE`": lambda memory: copy(memory, "BGSAVE"),
    "`BGSAVE RDB`": lambda memory: copy(memory, "BGSAVE", "RDB"),
    "`GET`s of many clients": many_clients,
    "long replies": long_replies,
    "long scripts": long_scripts,
}


def measured(memory, phase):
    """Runs a phase: the seconds, the peaks, what was counted, and how many kills there were."""
    before = memory.kills()
    watch = Watch(memory.server, memory.cgroup)
    try:
        found = phase(memory)
    except (CaseError, OSError) as problem:
        ended = memory.has_ended() and f"server ended ({memory.server.process.returncode})"
        found = Counter([ended or f"failed: {str(problem).splitlines()[-1]}"])
    finally:
        seconds = watch.stop()
    return seconds, watch, found, memory.kills() - before


def row(memory, name, phase):
    """Runs a phase: a line of the table."""
    seconds, watch, found, kills = measured(memory, phase)
    peaks = " | ".join(f"{watch.peaks[part] / MIB:,.0f}" for part in ("VmHWM", "RssAnon", "RssFile"))
    cgroup = f"{watch.peaks['cgroup'] / MIB:,.0f} of {LIMITS[memory.limit]} ×" if memory.cgroup else "–"
    errors = ", ".join(f"{count:,} × {word}" for word, count in found.items()) or "none"
    top = owners(watch.largest)[:3] if watch.largest else []
    return (f"| {name} | {seconds:.0f} | {peaks} | {watch.peaks['VmHWM'] / memory.memory:.2f} | {cgroup} | {kills} |"
            f" {errors} | " + ", ".join(f"{owner} {size / MIB:,.0f}" for owner, size in top) + " |")


def rows(memory, name, phase):
    """The lines of a phase: one, and more where the server is killed and gets more."""
    while True:
        yield row(memory, name, phase)
        if memory.server.process.poll() is None or not memory.start_again():
            return


def raise_open_files():
    """Allows as many open files as the clients need, here and in what is started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2 * CLIENTS, hard)), hard))


def report(commands, folder, scale):
    """Yields the tables' lines; `scale` of the memory and, below 1, of the clients."""
    raise_open_files()
    memory = Memory(commands["ours"], folder, scale)
    try:
        bound = memory.cgroup and (f"in a cgroup (version {memory.cgroup.version}) of"
                                   f" {LIMITS[0] * memory.memory / MIB:,.0f} MiB")
        yield (f"`maxmemory` {memory.memory // MIB} MiB, {bound or 'in no cgroup: **the kernel bounds nothing**'};"
               f" {memory.data_bytes / 1e9:.1f} GB of data; {memory.clients:,} clients; replies of"
               f" {memory.reply_bytes() / 1e6:,.0f} MB; peaks in MiB.")
        yield ""
        yield ("| phase | s | resident | anonymous | of files | resident of `maxmemory` | cgroup | killed | errors"
               " | who had most, by `INFO` |")
        yield "|---|---:|---:|---:|---:|---:|---:|---:|---|---|"
        for name, phase in PHASES.items():
            yield from rows(memory, name, phase)
        yield ""
    finally:
        memory.stop()
