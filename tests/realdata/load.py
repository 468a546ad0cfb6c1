"""Writes the index into the server, with pipelines of redis-py."""

import time

import redis

# Commands in one pipeline.
BATCH = 500
# Bytes of the text that one APPEND or SETRANGE carries.
PIECE = 256 << 10
# Time to live of the keys that have expired before the second run of the queries.
FLEETING_MS = 1500
FLEETING = 2000


class Loader:
    """A pipeline that is sent in batches, and counts its commands."""

    def __init__(self, connection):
        self.pipeline = connection.pipeline(transaction=False)
        self.sent = 0

    def __call__(self, *command):
        self.pipeline.execute_command(*command)
        self.sent += 1
        if len(self.pipeline) >= BATCH:
            self.pipeline.execute()

    def finish(self):
        self.pipeline.execute()
        return self.sent


def hashes(put, facts, _rng):
    for name, fields, _ in facts.index:
        put("HSET", b"pkg:" + name, *(item for pair in fields.items() for item in pair))
    for name, seconds in facts.expire_at.items():
        put("EXPIREAT", b"pkg:" + name, seconds)


def one_huge_hash(put, facts, _rng):
    for name, version in facts.versions.items():
        put("HSET", "versions", name, version)


def sets(put, facts, _rng):
    for name, others in facts.depends.items():
        put("SADD", b"deps:" + name, *others)
        for other in others:
            put("SADD", b"rdeps:" + other, name)


def sorted_sets(put, facts, _rng):
    for name, size in facts.by_size.items():
        put("ZADD", "by-size", size, name)
    for name, size in facts.by_installed_size.items():
        put("ZADD", "by-installed-size", size, name)


def lists(put, facts, _rng):
    for name, fields, _ in facts.index:
        put("RPUSH", b"maintainer:" + fields[b"Maintainer"], name)


def bitmaps(put, facts, _rng):
    for section, numbers in facts.in_section.items():
        for number in numbers:
            put("SETBIT", b"section:" + section, number, 1)


def one_long_string(put, facts, rng):
    """The first half is appended in order, the second half set in random order."""
    text = facts.archive
    half = len(text) // 2
    for start in range(0, half, PIECE):
        put("APPEND", "archive", text[start : min(start + PIECE, half)])
    starts = list(range(half, len(text), PIECE))
    rng.shuffle(starts)
    for start in starts:
        put("SETRANGE", "archive", start, text[start : start + PIECE])


def fleeting_keys(put, _facts, _rng):
    for number in range(FLEETING):
        put("SET", f"fleeting:{number}", "x", "PX", FLEETING_MS)


PHASES = [
    hashes,
    one_huge_hash,
    sets,
    sorted_sets,
    lists,
    bitmaps,
    one_long_string,
    fleeting_keys,
]


def load_all(connection, facts, rng, report):
    """Loads everything and records the time of each phase."""
    commands, seconds = 0, 0.0
    for phase in PHASES:
        started = time.monotonic()
        put = Loader(connection)
        phase(put, facts, rng)
        sent = put.finish()
        took = time.monotonic() - started
        commands, seconds = commands + sent, seconds + took
        name = phase.__name__.replace("_", " ")
        report.append((f"load {name}", f"{sent:,} commands, {took:.1f} s, {sent / took:,.0f}/s"))
        print(*report[-1], flush=True)
    rate = commands / seconds
    report.append(("load altogether", f"{commands:,} commands, {seconds:.1f} s, {rate:,.0f}/s"))


def write_until_killed(process):
    """Kills the server while a counter is incremented; returns the last acknowledged value."""
    connection = process.connect()
    last = 0

    def count():
        nonlocal last
        pipeline = connection.pipeline(transaction=False)
        for _ in range(50):
            pipeline.incr("kill-counter")
        last = pipeline.execute()[-1]

    process.kill_during(count, redis.ConnectionError)
    return last
