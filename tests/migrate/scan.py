"""Sources that refuse replicas, such as managed services: redis_to_kedis --scan."""

import random
import time
from pathlib import Path

import values
from harness import (
    DBS, DEADLINE, MARKERS, Proxy, Tool, Writer, expect, fill, kedis, redis_server, run, scratch, wait_for,
    wait_until_through)

# Commands that such services disable.
NO_PSYNC = ("--rename-command", "PSYNC", "", "--rename-command", "SYNC", "")
NO_DUMP = ("--rename-command", "DUMP", "")
NO_CONFIG = ("--rename-command", "CONFIG", "", "--rename-command", "COMMAND", "", "--rename-command", "MEMORY", "")
DEBUG = ("--enable-debug-command", "yes")
EVENTS = ("--notify-keyspace-events", "AKE")


MANY_KEYS = 100_000


def step(options):
    without_events()
    with_events(options)
    broken(options)
    flags()
    few_databases()


def differences(one, other, dbs=DBS, drift_ms=0):
    """All differences, except for the marker of a tool."""
    wrong = []
    for db in dbs:
        found = values.differences(one.connect(db), other.connect(db), drift_ms)
        wrong += [(db, *difference) for difference in found if not difference[0].startswith(MARKERS)]
    return wrong


def without_events():
    for title, taken in (("DUMP", NO_PSYNC), ("typed reads", NO_PSYNC + NO_DUMP),
                         ("few commands", NO_PSYNC + NO_DUMP + NO_CONFIG)):
        with redis_server(*taken) as source, kedis(*DEBUG) as target:
            source.start()
            target.start()
            fill(source)
            source.connect().function_load("#!lua name=mylib\nredis.register_function('f', function() return 42 end)")
            ended, said = run("redis_to_kedis", source, target)
            right = ended == 1 and "--scan" in said and target.connect().dbsize() == 0
            expect(f"scan: {title}: without it the tool names it", right, (ended, said))
            ended, said = run("redis_to_kedis", source, target, "--scan", "--exit-when-synced", "--verify")
            right = ended == 0 and "all are equal" in said and "gave no keyspace events" in said
            if "few" in title:
                right = ended == 0 and "all are equal" in said and "does not tell which keyspace events" in said
            expect(f"scan: {title}: --verify", right, (ended, said[-2500:]))
            # Reads by type know delivery times only to some ms.
            wrong = differences(source, target) if "DUMP" in title else differences_but_streams(source, target)
            keys = sum(target.connect(db).dbsize() for db in DBS)
            expect(f"scan: {title}: {keys} keys are equal", not wrong and keys > 6000, wrong[:10])
            expect(f"scan: {title}: libraries of functions", target.connect().fcall("f", 0) == 42)
            target.connect().execute_command("DEBUG", "KEDIS-CHECK")
            left = target.connect().keys(MARKERS + b"*")
            expect(f"scan: {title}: no marker is left", not left, left)

            # Again, into the existing data.
            source.connect(3).delete("plain:1")
            source.connect(3).set("plain:2", "changed")
            ended, said = run("redis_to_kedis", source, target, "--scan")
            right = ended == 0 or "few" in title
            found = target.connect(3).get("plain:2")
            if "few" not in title:
                expect(f"scan: {title}: once more", right and found == b"changed" and "stay" in said, (ended, said))


def differences_but_streams(one, other):
    return [difference for difference in differences(one, other) if b"stream" not in difference[1]]


def with_events(options):
    for title, flags in (("DUMP", NO_PSYNC + EVENTS), ("typed reads", NO_PSYNC + NO_DUMP + EVENTS),
                         ("by keys", NO_PSYNC + ("--notify-keyspace-events", "KA"))):
        with redis_server(*flags) as source, kedis(*DEBUG) as target:
            source.start()
            target.start()
            fill(source)
            writer = Writer(source.port, options.seed).start()
            dbs = ",".join(map(str, DBS))
            tool = Tool("redis_to_kedis", source, target, "--scan", "--src_db", dbs)
            wait_for("copy", lambda: "following keyspace events" in tool.said())
            time.sleep(min(options.seconds, 3))
            writer.stop()
            change_streams(source)
            wait_until_through(source, target)
            wait_until_settled(lambda: without_marks(source, target, "typed" in title))
            wrong = without_marks(source, target, "typed" in title)
            keys = sum(target.connect(db).dbsize() for db in DBS)
            expect(f"scan: events, {title}: {keys} keys, {writer.written} writes", not wrong, wrong[:10])
            ended = tool.interrupt()
            right = ended == 0 and "FLUSHDB" in tool.said() and "no moment" in tool.said()
            expect(f"scan: events, {title}: it stops and says what it cannot promise", right, (ended, tool.said()))
            ended, said = run("redis_to_kedis", source, target, "--scan", "--src_db", dbs, "--verify")
            expect(f"scan: events, {title}: --verify", ended == 0 and "all are equal" in said, (ended, said[-2500:]))
            target.connect().execute_command("DEBUG", "KEDIS-CHECK")

    with redis_server(*NO_PSYNC, "--notify-keyspace-events", "E$x") as source, kedis() as target:
        source.start()
        target.start()
        source.connect().set("k", "v")
        ended, said = run("redis_to_kedis", source, target, "--scan", "--exit-when-synced")
        right = ended == 0 and 'no events of the classes "glshzet"' in said
        expect("scan: missing classes of events are named", right, (ended, said))


def change_streams(source):
    """Adds to each stream: XREADGROUP, XACK and XCLAIM before gave no event."""
    for db in DBS:
        c = source.connect(db)
        for key in c.scan_iter(_type="stream"):
            c.xadd(key, {"the": "last"})


def wait_until_settled(found):
    """Waits until nothing differs; otherwise the comparison that follows reports it."""
    end = time.monotonic() + 30
    while found() and time.monotonic() < end:
        time.sleep(0.2)


def without_marks(source, target, is_typed):
    return (differences_but_streams if is_typed else differences)(source, target)


def broken(options):
    """Whichever process is killed, in the end the target equals the source."""
    rng = random.Random(options.seed)
    kept = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(*NO_PSYNC, *EVENTS, *kept) as source, kedis() as target, Proxy(source) as way:
        source.start()
        target.start()
        fill(source)
        source.connect(9).execute_command("DEBUG", "POPULATE", MANY_KEYS, "key", 100)
        resume = Path(scratch.name) / "scan.checkpoint"
        dbs = ",".join(map(str, (*DBS, 9)))
        tool = Tool("redis_to_kedis", way, target, "--scan", "--src_db", dbs, "--resume", resume,
                    "--network_limit", "15")
        writer = Writer(source.port, rng.random()).start()

        def until(keys):
            wait_for("copy", lambda: target.connect(9).dbsize() >= keys or "following" in tool.said())

        until(MANY_KEYS // 8)
        tool.kill()
        source.connect(9).delete("key:1", "key:2")
        source.connect(9).set("while nobody was there", "1")
        tool.start()
        until(MANY_KEYS // 4)
        went_on = "going on with the copy in DB" in tool.said()
        expect("scan: a killed tool goes on where it was", went_on, tool.said())
        way.cut()
        until(MANY_KEYS // 3)
        target.process.kill()
        target.process.wait()
        target.start()
        until(MANY_KEYS // 2)
        ended = tool.interrupt()
        left = target.connect().keys(MARKERS + b"*")
        expect("scan: interrupted in the middle", ended == 1 and not left, (ended, left, tool.said()))
        tool.start()
        wait_for("following", lambda: "following keyspace events" in tool.said(), 2 * DEADLINE)
        before = tool.said().count("following keyspace events")
        way.cut()
        source.connect(9).delete("key:3")
        writer.stop()
        change_streams(source)
        again = lambda: tool.said().count("following keyspace events") > before  # noqa: E731
        wait_for("following once more", again, 2 * DEADLINE)
        wait_until_through(source, target)
        every = (*DBS, 9)
        wait_for("the rest", lambda: source.connect(9).dbsize() == target.connect(9).dbsize(), 2 * DEADLINE)
        wait_until_settled(lambda: differences(source, target))
        wrong = differences(source, target, every)
        expect(f"scan: {MANY_KEYS} keys after deaths, {writer.written} writes", not wrong, wrong[:10])
        ended = tool.interrupt()
        expect("scan: it stops when interrupted", ended == 0, (ended, tool.said()[-2000:]))


def flags():
    with redis_server(*NO_PSYNC, *EVENTS) as source, kedis() as target:
        source.start()
        target.start()
        c = source.connect(3)
        c.mset({f"user:{n}": n for n in range(500)})
        c.mset({f"xuser:{n}": n for n in range(500)})
        mapped = ("--scan", "--src_db", "3", "--dst_db", "5", "--prefix", "user:", "--rename-prefix", "user:=member:")
        target.connect(5).set("own", "key")
        tool = Tool("redis_to_kedis", source, target, *mapped)
        there = target.connect(5)
        wait_for("following", lambda: "following keyspace events" in tool.said())
        c.delete("user:1", "xuser:1")
        c.rename("user:2", "user:new")
        c.rename("user:3", "outside")
        c.rename("xuser:4", "user:inside")
        c.set("user:5", "x", px=50)
        c.set("user:mark", 1)
        wait_for("mark", lambda: there.get("member:mark") and not there.exists("member:5"))
        found = [there.get(f"member:{name}") for name in ("1", "2", "3", "new", "inside")]
        right = found == [None, None, None, b"2", b"4"] and there.get("own") == b"key"
        size = len([key for key in there.keys() if not key.startswith(MARKERS)])
        expect("scan: a prefix, renamed, of one DB", right and size == 500, (found, size, tool.said()))
        ended = tool.interrupt()
        expect("scan: it ends", ended == 0, (ended, tool.said()))
        ended, said = run("redis_to_kedis", source, target, *mapped, "--verify")
        right = ended == 0 and "all are equal" in said
        expect("scan: a prefix, --verify", right, (ended, said))
        c.set("big", random.Random(1).randbytes(3_000_000))
        started = time.monotonic()
        ended, said = run("redis_to_kedis", source, target, "--scan", "--exit-when-synced", "--src_db", "3",
                          "--prefix", "big", "--network_limit", "1")
        took = time.monotonic() - started
        expect("scan: 3 MB at 1 MB/s take 3 s or more", ended == 0 and 2.9 <= took < 30, (ended, took, said))


def few_databases():
    """A DB that the target does not have: none of its keys may be written to another DB."""
    with redis_server(*NO_PSYNC, *EVENTS) as source, kedis("--databases", "4") as target:
        source.start()
        target.start()
        source.connect(0).set("here", "1")
        tool = Tool("redis_to_kedis", source, target, "--scan")
        wait_for("following", lambda: "following keyspace events" in tool.said())
        source.connect(9).set("nine", "1")
        ended = tool.wait()
        right = ended == 1 and "SELECT 9" in tool.said() and "16 databases and the target 4" in tool.said()
        expect("scan: a DB too many among the changes", right, (ended, tool.said()))
        ended, said = run("redis_to_kedis", source, target, "--scan")
        right = ended == 1 and "SELECT 9" in said and "nothing was copied" in said
        expect("scan: a DB too many is noticed before", right, (ended, said))
        found = target.connect().keys()
        expect("scan: only what belongs there is there", found == [b"here"], found)
