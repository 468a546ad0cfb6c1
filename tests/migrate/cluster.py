"""A server with slots, a cluster of one node, and servers without: kedis_port copies both ways and follows."""

import random
import threading
import time
from pathlib import Path

import values
from harness import DEADLINE, MARKERS, Tool, expect, kedis, run, scratch, wait_for

CLUSTER = ("--cluster-enabled", "yes", "--enable-debug-command", "yes")
PLAIN = ("--enable-debug-command", "yes")


def step(options):
    there_and_back(options)
    other_dbs()


def fill(server):
    """Every value, in DB 0."""
    c = server.connect()
    for key, commands in values.commands():
        for name, *args in commands:
            c.execute_command(name, key, *args)
    with c.pipeline(transaction=False) as pipe:
        for n in range(3000):
            pipe.set(b"plain:%d" % n, b"value-%d" % n)
            pipe.hset(b"{tag}:%d" % (n % 200), b"field-%d" % n, values.text(n % 50))
        pipe.execute()


class Load:
    """Commands and transactions on keys of several slots, unless the server refuses them."""

    def __init__(self, server, seed):
        self.client, self.rng, self.written = server.connect(), random.Random(seed), 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            a, b = (f"load:{self.rng.randrange(100)}" for _ in range(2))
            with self.client.pipeline(transaction=True) as pipe:
                pipe.incr(f"counter:{a}")
                pipe.set(a, self.written)
                pipe.set(b, self.written)
                pipe.execute()
            self.client.mset({a: 1, b: 2})
            self.client.sunionstore(f"set:{a}", "set:1", "set:2")
            self.client.eval("redis.call('SADD', KEYS[1], ARGV[1])", 1, "set:1", self.written % 50)
            self.written += 1

    def stop(self):
        self.over.set()
        self.thread.join()
        return self.written


def equal(title, one, other):
    def same():
        a, b = one.connect(), other.connect()
        found = values.differences(a, b, 0)
        return [key for key, *_ in found if not key.startswith(MARKERS)]

    end = time.monotonic() + DEADLINE
    while same() and time.monotonic() < end:
        time.sleep(0.2)
    wrong = same()
    expect(f"cluster: {title}: {other.connect().dbsize()} keys are equal", not wrong, wrong[:10])
    other.connect().execute_command("DEBUG", "KEDIS-CHECK")


def there_and_back(options):
    with kedis(*PLAIN) as plain, kedis(*CLUSTER) as cluster, kedis(*PLAIN) as back:
        for server in (plain, cluster, back):
            server.start()
        fill(plain)
        load = Load(plain, options.seed)
        checkpoint = Path(scratch.name) / "cluster.checkpoint"
        there = Tool("kedis_port", plain, cluster, "--resume", checkpoint)
        wait_for("copy", lambda: cluster.connect().dbsize() > 3000)
        away = Tool("kedis_port", cluster, back)
        time.sleep(min(options.seconds, 3))
        # It goes on from its marker, which stands in a slot of its own.
        there.kill()
        time.sleep(0.5)
        there.start()
        time.sleep(min(options.seconds, 3))
        written = load.stop()
        plain.connect().set("mark", "end")
        wait_for("mark", lambda: back.connect().get("mark") == b"end")
        equal(f"to slots, {written} transactions", plain, cluster)
        equal("and back", cluster, back)
        slot = cluster.connect().execute_command("CLUSTER", "KEYSLOT", "{tag}")
        count = cluster.connect().execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
        expect("cluster: the keys of a slot are counted", count == 200, count)
        for tool in (there, away):
            ended = tool.interrupt()
            expect(f"cluster: {tool.name} stops when interrupted", ended == 0, (ended, tool.said()[-600:]))
        for source, target in ((plain, cluster), (cluster, back)):
            ended, said = run("kedis_port", source, target, "--verify")
            expect("cluster: --verify", ended == 0 and "all are equal" in said, (ended, said[-600:]))


def other_dbs():
    """A cluster has DB 0 only."""
    with kedis() as plain, kedis(*CLUSTER) as cluster:
        plain.start()
        cluster.start()
        plain.connect(3).set("a", 1)
        ended, said = run("kedis_port", plain, cluster, "--exit-when-synced")
        right = ended == 1 and "SELECT is not allowed in cluster mode" in said and "nothing was copied" in said
        expect("cluster: other DBs are refused", right, (ended, said[-600:]))
        ended, said = run("kedis_port", plain, cluster, "--exit-when-synced", "--src_db", "3", "--dst_db", "0")
        right = ended == 0 and cluster.connect().get("a") == b"1"
        expect("cluster: one of them can become DB 0", right, (ended, said[-600:]))
