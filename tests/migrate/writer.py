"""A client that constantly changes a server, with commands that must not be
repeated, left out, or reordered."""

import random
import threading
import time

import redis

DBS = (0, 3, 15)
# These two are swapped and flushed.
UNSTEADY = (7, 8)
SOON_MS = 400
LATER_MS = 86_400_000
UNFITTING = (
    "WRONGTYPE", "no such key", "not an integer", "objects are the same",
    "NOGROUP", "BUSYGROUP", "requires the key to exist",
)


class Writer:
    """Writes from a thread until it is stopped; survives a restart of the server."""

    def __init__(self, port, seed):
        self.port = port
        self.rng = random.Random(seed)
        self.written = 0
        self.errors = []
        self.over = threading.Event()
        self.paused = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        """Stops; returns when all short-lived keys have expired."""
        self.over.set()
        self.thread.join()
        time.sleep(SOON_MS / 1000)
        if self.errors:
            raise RuntimeError(f"the writer: {self.errors[:3]}")

    def run(self):
        connections = {}
        while not self.over.is_set():
            db = self.rng.choice(DBS + (UNSTEADY if self.rng.random() < 0.2 else ()))
            try:
                if db not in connections:
                    connections[db] = redis.Redis(port=self.port, db=db, socket_timeout=20)
                self.step(connections[db], db)
                self.written += 1
            except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
                connections.pop(db, None)
                time.sleep(0.05)
            except redis.ResponseError as error:
                # The command did not fit the existing value, so it had no effect.
                text = str(error)
                if not any(words in text for words in UNFITTING):
                    self.errors.append(text)
            time.sleep(0.0005)

    def key(self, kind):
        return f"w:{kind}:{self.rng.randrange(12)}"

    def stream(self, c):
        rng, key = self.rng, self.key("stream")
        group, consumer = rng.choice(["g", "h"]), rng.choice(["a", "b", "c"])
        seen = [entry for entry, _ in c.xrange(key, count=4)] if c.type(key) == b"stream" else []
        rng.choice([
            lambda: c.xadd(key, {b"f": rng.randbytes(rng.randrange(60))}),
            lambda: c.xadd(key, {b"f": b"v", b"g": b"w"}, maxlen=rng.randrange(400), approximate=rng.random() < 0.7),
            lambda: c.xtrim(key, maxlen=rng.randrange(300), approximate=False),
            lambda: seen and c.xdel(key, rng.choice(seen)),
            lambda: c.xgroup_create(key, group, "0", mkstream=True),
            lambda: c.xgroup_destroy(key, group) if rng.random() < 0.2 else None,
            lambda: c.xgroup_delconsumer(key, group, consumer) if rng.random() < 0.2 else None,
            lambda: c.xreadgroup(group, consumer, {key: ">"}, count=rng.randrange(1, 9)),
            lambda: c.xreadgroup(group, consumer, {key: ">"}, count=3, noack=True),
            lambda: seen and c.xack(key, group, *seen[:2]),
            lambda: seen and c.xclaim(key, group, consumer, 0, seen),
        ])()

    def step(self, c, db):
        rng = self.rng
        some = [b"%d" % rng.randrange(40) for _ in range(rng.randrange(1, 6))]
        kind = rng.choice("string number list set hash zset stream time unit name bits".split())
        if kind == "string":
            rng.choice([
                lambda: c.append(self.key(kind), rng.randbytes(rng.randrange(60))),
                lambda: c.setrange(self.key(kind), rng.randrange(30_000), b"x"),
                lambda: c.set(self.key(kind), rng.randbytes(rng.randrange(200))),
                lambda: c.delete(self.key(kind)),
            ])()
        elif kind == "number":
            rng.choice([c.incr, c.decr, lambda k: c.incrbyfloat(k, 0.25)])(self.key(kind))
        elif kind == "list":
            rng.choice([
                lambda: c.rpush(self.key(kind), *some),
                lambda: c.lpush(self.key(kind), *some),
                lambda: c.lpop(self.key(kind), rng.randrange(1, 4)),
                lambda: c.rpoplpush(self.key(kind), self.key(kind)),
                lambda: c.linsert(self.key(kind), "before", some[0], b"inserted"),
                lambda: c.lrem(self.key(kind), 1, some[0]),
                lambda: c.ltrim(self.key(kind), 0, 300),
            ])()
        elif kind == "set":
            rng.choice([
                lambda: c.sadd(self.key(kind), *some),
                lambda: c.spop(self.key(kind), 2),
                lambda: c.smove(self.key(kind), self.key(kind), some[0]),
                lambda: c.sunionstore(self.key(kind), self.key(kind), self.key(kind)),
            ])()
        elif kind == "hash":
            rng.choice([
                lambda: c.hset(self.key(kind), some[0], rng.randbytes(20)),
                lambda: c.hincrby(self.key(kind), b"n", 3),
                lambda: c.hdel(self.key(kind), *some),
            ])()
        elif kind == "zset":
            rng.choice([
                lambda: c.zadd(self.key(kind), {m: rng.randrange(100) for m in some}),
                lambda: c.zincrby(self.key(kind), 1.5, some[0]),
                lambda: c.zpopmin(self.key(kind)),
                lambda: c.zunionstore(self.key(kind), [self.key(kind), self.key(kind)]),
            ])()
        elif kind == "stream":
            self.stream(c)
        elif kind == "time":
            key = self.key(rng.choice(["string", "list", "set"]))
            rng.choice([
                lambda: c.pexpire(key, rng.randrange(1, SOON_MS)),
                lambda: c.pexpire(key, LATER_MS + rng.randrange(LATER_MS)),
                lambda: c.persist(key),
                lambda: c.set(self.key("string"), b"v", px=rng.randrange(1, SOON_MS)),
                lambda: c.set(self.key("string"), b"v", ex=LATER_MS // 1000),
            ])()
        elif kind == "unit":
            with c.pipeline(transaction=True) as unit:
                unit.incr(self.key("number")).rpush(self.key("list"), *some)
                unit.rename(self.key("list"), self.key("list"))
                unit.execute(raise_on_error=False)
        elif kind == "name":
            same = rng.choice(["string", "list", "hash", "zset"])
            rng.choice([
                lambda: c.rename(self.key(same), self.key(same)),
                lambda: c.copy(self.key(same), self.key(same), replace=True),
                lambda: c.move(self.key(same), rng.choice([d for d in DBS if d != db] or DBS)),
                lambda: db in UNSTEADY and c.swapdb(*UNSTEADY),
                lambda: db in UNSTEADY and rng.random() < 0.1 and c.flushdb(),
            ])()
        else:
            c.setbit(f"w:bits:{rng.randrange(3)}", rng.randrange(200_000), 1)
