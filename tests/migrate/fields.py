"""Hashes and sets whose elements have times: kept where the target knows such times, refused where it does not."""

import time
from pathlib import Path

import timed_hashes
from harness import (
    FakeSource, Process, Tool, expect, kedis, quick_redis, run, scratch, wait_for, wait_until_through)

WORDS = "had times of their own, which are not kept"


def step(options):
    made_by_hand()
    to_an_older_target()
    sets_between_two()
    for program in options.newer:
        followed(program)


def times(connection, key, *fields):
    return connection.execute_command("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)


def made_by_hand():
    now_ms = int(time.time() * 1000)
    later_ms = now_ms + 86_400_000
    # Of three fields one has expired, one does not expire, and one expires tomorrow.
    fields = [(b"over", b"a", 1000), (b"plain", b"b", 0), (b"later", b"c", later_ms)]
    left = {b"plain": b"b", b"later": b"c"}
    data = timed_hashes.rdb_file(fields)
    path = Path(scratch.name) / "timed.rdb"
    path.write_bytes(data)

    def is_right(k):
        c = k.connect()
        keys = [f"timed:{kind}" for kind, _ in timed_hashes.values(fields)]
        kept = [times(c, key, "over", "plain", "later") for key in keys]
        return [c.hgetall(key) for key in keys] == [left] * 4 and kept == [[-2, -1, later_ms]] * 4

    with kedis() as k:
        k.start()
        with FakeSource(b"$%d\r\n" % len(data) + data) as fake:
            for title, source, flags in (
                ("a file", None, ("--rdb_file", path)),
                ("a data set", fake, ("--src_from_rdb",)),
            ):
                ended, said = run("redis_to_kedis", source, k, *flags)
                right = ended == 0 and WORDS not in said and is_right(k) and k.connect().dbsize() == 104
                expect(f"fields: {title} with times of fields", right, (ended, said))
                k.connect().flushall()
        for kind, value in timed_hashes.values(fields):
            k.connect().restore(f"timed:{kind}", 0, timed_hashes.payload(kind, value))
        expect("fields: RESTORE", is_right(k))

    with kedis("--load-rdb", str(path)) as k:
        k.start()
        log = (k.dir / "log").read_text(errors="replace")
        expect("fields: --load-rdb", is_right(k) and WORDS not in log, log[-1000:])

    at_ms = now_ms + 10**8
    commands = Path(scratch.name) / "timed.aof"
    lines = [("SELECT", "0"), ("HSET", "h", "f", "v"), ("HPEXPIREAT", "h", str(at_ms), "FIELDS", "1", "f"),
             ("HSETEX", "h", "PXAT", str(at_ms), "FIELDS", "1", "g", "w")]
    commands.write_bytes(b"".join(
        b"*%d\r\n" % len(line) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in line)
        for line in lines))
    with kedis() as k:
        k.start()
        ended, said = run("redis_to_kedis", None, k, "--aof_file", commands)
        right = ended == 0 and k.connect().hgetall("h") == {b"f": b"v", b"g": b"w"}
        right = right and times(k.connect(), "h", "f", "g") == [at_ms, at_ms]
        expect("fields: a file of commands", right, (ended, said))


def to_an_older_target():
    """Redis 7.0 knows no times of fields."""
    at_ms = int(time.time() * 1000) + 10**8
    with kedis() as k, quick_redis() as target:
        k.start()
        target.start()
        c = k.connect()
        c.hset("h", mapping={"f": 1, "g": 2})
        c.execute_command("HPEXPIREAT", "h", at_ms, "FIELDS", 1, "f")
        ended, said = run("kedis_to_redis", k, target, "--exit-when-synced")
        right = ended == 1 and "--keep-going" in said
        expect("fields: an older target is an error", right, (ended, said))
        target.connect().flushall()
        ended, said = run("kedis_to_redis", k, target, "--exit-when-synced", "--keep-going")
        right = ended == 0 and f"1 elements of 1 hashes and sets {WORDS}" in said
        right = right and target.connect().hgetall("h") == {b"f": b"1", b"g": b"2"}
        expect("fields: an older target, --keep-going", right, (ended, said))
        c.delete("h")
        c.execute_command("SADDEX", "s", "PXAT", at_ms, "MEMBERS", 2, "a", "b")
        target.connect().flushall()
        ended, said = run("kedis_to_redis", k, target, "--exit-when-synced")
        expect("members: an older target is an error", ended == 1 and "--keep-going" in said, (ended, said))
        target.connect().flushall()
        ended, said = run("kedis_to_redis", k, target, "--exit-when-synced", "--keep-going")
        right = ended == 0 and f"2 elements of 1 hashes and sets {WORDS}" in said
        right = right and target.connect().smembers("s") == {b"a", b"b"}
        expect("members: an older target, --keep-going", right, (ended, said))


def sets_between_two():
    """Sets whose members have times, from one Kedis to another: the data set, the stream, and with commands."""
    at_ms = int(time.time() * 1000) + 10**8
    with kedis() as source, kedis() as target:
        source.start()
        target.start()
        c, there = source.connect(), target.connect()
        c.sadd("small", "a", "b")
        c.sadd("large", *(f"m{n}" for n in range(3000)))
        for key, member in (("small", "a"), ("large", "m7")):
            c.execute_command("SPEXPIREAT", key, at_ms, "MEMBERS", 1, member)

        def is_right():
            asked = (("small", "a", "b"), ("large", "m7", "m8"), ("late", "a", "b"))
            kept = [there.execute_command("SPEXPIRETIME", key, "MEMBERS", 2, *names) for key, *names in asked]
            return kept == [[at_ms, -1], [at_ms, -1], [at_ms, -1]] and there.scard("large") == 3000

        tool = Tool("kedis_port", source, target)
        wait_for("copy", lambda: there.scard("large") == 3000 and "following" in tool.said())
        c.sadd("late", "b")
        c.execute_command("SADDEX", "late", "PXAT", at_ms, "MEMBERS", 1, "a")
        wait_until_through(source, target)
        right, ended = is_right(), tool.interrupt()
        expect("members: kedis_port follows", right and ended == 0, (ended, tool.said()))
        ended, said = run("kedis_port", source, target, "--verify")
        expect("members: kedis_port --verify", ended == 0 and "all are equal" in said, (ended, said))
        there.flushall()
        ended, said = run("kedis_port", source, target, "--scan", "--exit-when-synced", "--verify")
        expect("members: kedis_port --scan", ended == 0 and "all are equal" in said and is_right(), (ended, said))


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

        def is_right():
            return all(times(c, key, *fields) == times(there, key, *fields) for key, fields in (
                ("small", ("f", "g")), ("large", ("field-1", "field-2", "field-3")), ("late", ("a", "b"))))

        tool = Tool("redis_to_kedis", source, k)
        wait_for("copy", lambda: there.hlen("large") == 1000 and "following" in tool.said())
        c.execute_command("HPEXPIRE", "small", 500, "FIELDS", 1, "g")
        c.execute_command("HSETEX", "late", "EX", 1000, "FIELDS", 2, "a", "1", "b", "2")
        wait_for("end of a field", lambda: c.hkeys("small") == [b"f"])
        wait_until_through(source, k)
        wait_for("its end at the target", lambda: there.hkeys("small") == [b"f"])
        right = there.hgetall("late") == {b"a": b"1", b"b": b"2"} and is_right()
        ended = tool.interrupt()
        said = tool.said()
        right = right and ended == 0 and WORDS not in said
        expect(f"fields: {name} is followed with times of fields", right, (ended, said))
        ended, said = run("redis_to_kedis", source, k, "--verify")
        expect(f"fields: {name}, --verify", ended == 0 and "all are equal" in said, (ended, said))

        for user in ("", "nodump"):
            flags = ()
            if user:
                c.execute_command("ACL", "SETUSER", user, "on", ">word", "~*", "&*", "+@all", "-dump")
                flags = ("--src_user", user, "--src_password", "word")
            k.connect().flushall()
            ended, said = run("redis_to_kedis", source, k, "--scan", "--exit-when-synced", "--verify", *flags)
            right = ended == 0 and WORDS not in said and "all are equal" in said and is_right()
            expect(f"fields: {name} --scan {user}", right, (ended, said))
