"""Hashes with field expiry: the same treatment everywhere."""

import time
from pathlib import Path

import timed_hashes
from harness import (
    MARKERS, FakeSource, Process, Tool, expect, kedis, redis, run, scratch, wait_for, wait_until_through)

WORDS = "had times of their own, which are not kept"


def step(options):
    made_by_hand()
    for program in options.newer:
        followed(program)


def made_by_hand():
    now_ms = int(time.time() * 1000)
    # Of three fields one has expired, one does not expire, and one expires tomorrow.
    fields = [(b"over", b"a", 1000), (b"plain", b"b", 0), (b"later", b"c", now_ms + 86_400_000)]
    left = {b"plain": b"b", b"later": b"c"}
    data = timed_hashes.rdb_file(fields)
    path = Path(scratch.name) / "timed.rdb"
    path.write_bytes(data)
    counted = f"8 fields of 4 hashes {WORDS}"

    def is_right(k):
        c = k.connect()
        hashes = [c.hgetall(f"timed:{kind}") for kind, _ in timed_hashes.values(fields)]
        return hashes == [left] * 4 and c.dbsize() == 104

    with kedis() as k:
        k.start()
        with FakeSource(b"$%d\r\n" % len(data) + data) as fake:
            for title, source, flags in (
                ("a file", None, ("--rdb_file", path)),
                ("a data set", fake, ("--src_from_rdb",)),
            ):
                ended, said = run("redis_to_kedis", source, k, *flags)
                right = ended == 1 and "timed:2" in said and "--keep-going" in said
                expect(f"fields: {title} with times of fields is an error", right, (ended, said))
                markers = k.connect().keys(MARKERS + b"*")
                # If INFO does not report such hashes, they are found during the copy.
                begun = source is not None or k.connect().dbsize() == 0
                expect(f"fields: {title} leaves no marker", not markers and begun, (markers, k.connect().dbsize()))
                k.connect().flushall()
                ended, said = run("redis_to_kedis", source, k, *flags, "--keep-going")
                right = ended == 0 and counted in said and is_right(k)
                expect(f"fields: {title}, --keep-going", right, (ended, said))
                k.connect().flushall()

        for kind, value in timed_hashes.values(fields):
            k.connect().restore(f"timed:{kind}", 0, timed_hashes.payload(kind, value))
        found = [k.connect().hgetall(f"timed:{kind}") for kind in (22, 23, 24, 25)]
        counter = k.connect().info("stats")["field_times_not_kept"]
        expect("fields: RESTORE takes and counts them", found == [left] * 4 and counter == 8, (found, counter))
        log = k.dir / "log"
        wait_for("warning", lambda: counted in log.read_text(errors="replace"), 10)
        expect("fields: the log says so", "so far, in RESTORE and from masters" in log.read_text(errors="replace"))

    with kedis("--load-rdb", str(path)) as k:
        k.start()
        log = (k.dir / "log").read_text(errors="replace")
        expect("fields: --load-rdb says the same", is_right(k) and counted in log, log[-1000:])

    commands = Path(scratch.name) / "timed.aof"
    lines = [("SELECT", "0"), ("HSET", "h", "f", "v"), ("HPEXPIREAT", "h", str(now_ms + 10**8), "FIELDS", "1", "f"),
             ("HSETEX", "h", "PXAT", str(now_ms + 10**8), "FIELDS", "1", "g", "w")]
    commands.write_bytes(b"".join(
        b"*%d\r\n" % len(line) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in line)
        for line in lines))
    with kedis() as k:
        k.start()
        ended, said = run("redis_to_kedis", None, k, "--aof_file", commands)
        right = ended == 1 and "HPEXPIREAT" in said and k.connect().dbsize() == 0
        expect("fields: a file of commands is looked at before", right, (ended, said))
        ended, said = run("redis_to_kedis", None, k, "--aof_file", commands, "--keep-going")
        right = ended == 0 and f"2 fields of 2 hashes {WORDS}" in said
        right = right and k.connect().hgetall("h") == {b"f": b"v", b"g": b"w"}
        expect("fields: a file of commands, --keep-going", right, (ended, said))


def followed(program):
    """A newer server, live."""
    name = Path(program).name
    with Process(program, "--save", "") as source, kedis() as k:
        source.start()
        k.start()
        c, there = source.connect(3), k.connect(3)
        c.hset("small", mapping={"f": 1, "g": 2})
        c.hset("large", mapping={f"field-{n}": "x" * 100 for n in range(1000)})
        c.execute_command("HPEXPIRE", "small", 86_400_000, "FIELDS", 1, "f")
        c.execute_command("HPEXPIRE", "large", 86_400_000, "FIELDS", 2, "field-1", "field-2")
        c.set("plain", "x")
        for flags in ((), ("--scan",)):
            ended, said = run("redis_to_kedis", source, k, *flags, "--exit-when-synced")
            right = ended == 1 and "fields of 2 hashes" in said and "nothing was copied" in said
            right = right and k.connect().info("keyspace") == {}
            expect(f"fields: {name} {flags} is refused before the copy", right, (ended, said))

        tool = Tool("redis_to_kedis", source, k, "--keep-going")
        wait_for("copy", lambda: there.hlen("large") == 1000 and "following" in tool.said())
        c.execute_command("HPEXPIRE", "small", 500, "FIELDS", 1, "g")
        c.execute_command("HSETEX", "late", "EX", 1000, "FIELDS", 2, "a", "1", "b", "2")
        wait_for("end of a field", lambda: c.hkeys("small") == [b"f"])
        wait_until_through(source, k)
        wait_for("its end at the target", lambda: there.hkeys("small") == [b"f"])
        right = there.hgetall("late") == {b"a": b"1", b"b": b"2"}
        ended = tool.interrupt()
        said = tool.said()
        right = right and ended == 0 and WORDS in said and "6 fields of 4 hashes" in said
        expect(f"fields: {name} is followed without times of fields", right, (ended, said))
        ended, said = run("redis_to_kedis", source, k, "--verify", "--keep-going")
        right = ended == 0 and "all are equal" in said and "were not compared" in said
        expect(f"fields: {name}, --verify --keep-going", right, (ended, said))
        ended, said = run("redis_to_kedis", source, k, "--verify")
        right = ended == 1 and "3 differ" in said
        expect(f"fields: {name}, --verify says which differ", right, (ended, said))

        for user in ("", "nodump"):
            flags = ()
            if user:
                c.execute_command("ACL", "SETUSER", user, "on", ">word", "~*", "&*", "+@all", "-dump")
                flags = ("--src_user", user, "--src_password", "word")
            k.connect().flushall()
            ended, said = run("redis_to_kedis", source, k, "--scan", "--keep-going", "--exit-when-synced", "--verify",
                              *flags)
            right = ended == 0 and f"5 fields of 3 hashes {WORDS}" in said and "all are equal" in said
            expect(f"fields: {name} --scan {user}", right, (ended, said))
