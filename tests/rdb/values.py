"""Values of every type and encoding, and how to compare two servers."""

import random

# Makes Redis store small collections like large ones, uncompressed.
PLAIN = {
    "hash-max-listpack-entries": 0,
    "zset-max-listpack-entries": 0,
    "set-max-intset-entries": 0,
    "set-max-listpack-entries": 0,
    "list-max-listpack-size": 4,
    "rdbcompression": "no",
}
USUAL = {
    "hash-max-listpack-entries": 128,
    "zset-max-listpack-entries": 128,
    "set-max-intset-entries": 512,
    "set-max-listpack-entries": 128,
    "list-max-listpack-size": -2,
    "rdbcompression": "yes",
}
# Makes Redis store collections of any size as small ones, uncompressed.
PACKED = {
    "hash-max-listpack-entries": 100000,
    "hash-max-listpack-value": 1 << 20,
    "zset-max-listpack-entries": 100000,
    "zset-max-listpack-value": 1 << 20,
    "set-max-intset-entries": 100000,
    "set-max-listpack-entries": 100000,
    "set-max-listpack-value": 1 << 20,
    "list-max-listpack-size": -5,
    "rdbcompression": "no",
}
CONFIGS = {"usual": USUAL, "plain": PLAIN, "packed": PACKED}
# Type numbers that each configuration leads to: in Redis 7.0, and in Redis 7.2 and
# Valkey, which pack short sets and have another version of streams.
KINDS = {
    "usual": ({0, 2, 4, 5, 11, 16, 17, 18, 19}, {0, 2, 4, 5, 11, 16, 17, 18, 20, 21}),
    "plain": ({0, 2, 4, 5, 18, 19}, {0, 2, 4, 5, 18, 21}),
    "packed": ({0, 2, 11, 16, 17, 18, 19}, {0, 11, 16, 17, 18, 20, 21}),
}


def configure(connection, config):
    """Sets the parameters that the server knows; returns whether it knows all."""
    knows_all = True
    for parameter, setting in config.items():
        if connection.config_get(parameter):
            connection.config_set(parameter, setting)
        else:
            knows_all = False
    return knows_all

BINARY = bytes(range(256))
# The limits of all integer encodings, and their neighbours.
INTEGERS = sorted(
    {
        sign * (2**bits + off)
        for bits in (0, 5, 6, 7, 8, 12, 13, 15, 16, 23, 24, 31, 32, 62)
        for off in (-1, 0, 1)
        for sign in (-1, 1)
    }
    | {2**63 - 1, -(2**63)}
)
SCORES = ["0", "-0", "1", "-1", "inf", "-inf", "0.1", "1e300", "-1.5", "3.0000000000000004", "9007199254740993"]
# Around the lengths where the encoding of a string changes.
LENGTHS = [0, 1, 20, 21, 63, 64, 65, 252, 253, 254, 255, 4095, 4096]


def text(length, seed=0):
    """Bytes that do not compress."""
    return random.Random(length * 1000 + seed).randbytes(length)


def commands():
    """(key, [command …]): small enough to be kept as fixtures."""
    yield b"string", [("SET", b"hello")]
    yield b"string:empty", [("SET", b"")]
    yield b"string:binary", [("SET", BINARY)]
    yield b"string:long-run", [("SET", b"ab" * 3000)]
    yield b"string:like-a-number", [("SET", b"007")]
    for n in (0, 127, -128, 128, 32767, -32769, 2**31 - 1, -(2**31), 2**31, 2**63 - 1):
        yield b"string:%d" % n, [("SET", b"%d" % n)]
    for n in (63, 64, 16384):
        yield b"string:len-%d" % n, [("SET", text(n))]
    yield b"list", [("RPUSH", b"a", b"", b"a", BINARY, b"12", b"-5000")]
    yield b"list:integers", [("RPUSH", *(b"%d" % n for n in INTEGERS))]
    yield b"list:lengths", [("RPUSH", *(text(n) for n in LENGTHS))]
    yield b"list:nodes", [("RPUSH", *(b"item-%d" % n for n in range(1500)))]
    yield b"set:integers", [("SADD", *(b"%d" % n for n in range(-50, 50, 7)))]
    yield b"set:wide", [("SADD", *(b"%d" % n for n in INTEGERS))]
    yield b"set:int32", [("SADD", b"1", b"-70000", b"70000")]
    yield b"set", [("SADD", b"a", b"", BINARY, b"7", b"x" * 100)]
    yield b"set:short", [("SADD", b"a", b"", b"7", b"-300", b"x" * 60)]
    yield b"set:many", [("SADD", *(b"member-%d" % n for n in range(700)))]
    yield b"hash", [("HSET", b"f", b"v", b"", b"empty field", b"empty value", b"", b"n", b"42", b"bin", BINARY[:60])]
    yield b"hash:integers", [("HSET", *(x for n in INTEGERS[:60] for x in (b"%d" % n, b"%d" % -n)))]
    yield b"hash:long", [("HSET", b"f", text(300), text(70), b"v")]
    yield b"hash:many", [("HSET", *(x for n in range(300) for x in (b"field-%d" % n, b"value-%d" % n)))]
    yield b"zset", [("ZADD", *(x for s in SCORES for x in (s, b"m" + s.encode())))]
    yield b"zset:integers", [("ZADD", *(x for n in INTEGERS for x in (n, b"%d" % n)))]
    yield b"zset:long", [("ZADD", 1, text(200), 2, b"", 3, BINARY)]
    yield b"zset:many", [("ZADD", *(x for n in range(300) for x in (n / 7, b"member-%d" % n)))]
    yield b"geo", [("GEOADD", 13.361389, 38.115556, b"Palermo", 15.087269, 37.502669, b"Catania")]
    yield b"stream", [
        ("XADD", b"1-1", b"f", b"v"),
        ("XADD", b"1-2", b"f", b"70000"),
        ("XADD", b"1-7", b"other", b"1", b"", BINARY[:60]),
        ("XADD", b"2-0", b"f", text(300)),
    ]
    yield b"stream:many", [
        *(("XADD", b"%d-%d" % (n, n % 3), b"f", b"%d" % n, b"g", b"x" * (n % 50)) for n in range(1, 260)),
        ("XTRIM", b"MAXLEN", b"200"),
        *(("XDEL", b"%d-%d" % (n, n % 3)) for n in range(100, 260, 9)),
    ]
    yield b"stream:groups", [
        *(("XADD", b"%d-0" % n, b"f", b"%d" % n) for n in range(1, 9)),
        ("XGROUP CREATE", b"g", b"0"),
        ("XGROUP CREATE", b"h", b"$"),
        ("XREADGROUP GROUP g b COUNT 3 STREAMS", b">"),
        ("XREADGROUP GROUP g a COUNT 2 STREAMS", b">"),
        ("XACK", b"g", b"2-0"),
        ("XCLAIM", b"g", b"a", b"0", b"3-0", b"TIME", b"1600000000000", b"RETRYCOUNT", b"7"),
        ("XGROUP CREATECONSUMER", b"h", b"idle"),
    ]
    yield b"stream:empty", [("XGROUP CREATE", b"g", b"5-5", b"MKSTREAM"), ("XSETID", b"9-9")]
    yield b"hll", [("PFADD", *(b"%d" % n for n in range(100)))]


def large():
    """More of the same, too large for fixtures."""
    yield b"large:string", [("SET", text(3 << 20))]
    yield b"large:sparse", [("SETBIT", 40_000_000, 1)]
    yield b"large:string-run", [("SET", b"x" * (20 << 20))]
    rng = random.Random(5)
    for start in range(0, 50_000, 5000):
        many = range(start, start + 5000)
        yield b"large:hash", [("HSET", *(x for n in many for x in (b"field-%d" % n, rng.randbytes(rng.randrange(90)))))]
        yield b"large:list", [("RPUSH", *(rng.randbytes(rng.randrange(200)) for _ in many))]
        yield b"large:set", [("SADD", *(b"member-%d" % n for n in many))]
        yield b"large:zset", [("ZADD", *(x for n in many for x in (rng.uniform(-1e6, 1e6), b"member-%d" % n)))]
    for n in range(40_000):
        yield b"large:stream", [("XADD", b"%d-1" % (n + 1), b"field", rng.randbytes(n % 120))]
    yield b"large:stream", [
        ("XGROUP CREATE", b"g", b"0"),
        ("XREADGROUP GROUP g a COUNT 9000 STREAMS", b">"),
        ("XREADGROUP GROUP g b COUNT 9000 STREAMS", b">"),
    ]
    yield b"large:items", [("RPUSH", *(text(1 << 20, n) for n in range(8)), b"small")]


# Fields that servers report from Redis 8.6 on: zero or a default in what older ones can hold.
NEWER = ("idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added", "iids-duplicates",
         "nacked-count")
# Fields that are not in payloads, or that are derived.
UNSTEADY = ("radix-tree-keys", "radix-tree-nodes", "seen-time", "active-time", "lag", *NEWER)
# The replication stream of Redis does not contain the number of entries that a group has read.
UNTOLD = (*UNSTEADY, "entries-read")


def info_of(found, unsteady=UNSTEADY):
    """The reply of XINFO STREAM FULL without some fields."""
    if isinstance(found, dict):
        return {name: info_of(value, unsteady) for name, value in found.items() if name not in unsteady}
    if isinstance(found, list):
        return [info_of(value, unsteady) for value in found]
    return found


def pairs_of(found):
    """A reply of pairs in either protocol, converted to nested dictionaries."""
    if isinstance(found, dict):
        return {name.decode(): pairs_of(value) for name, value in found.items()}
    if isinstance(found, list):
        named = len(found) >= 8 and len(found) % 2 == 0 and found[0] in (b"length", b"name")
        if named:
            return {found[i].decode(): pairs_of(found[i + 1]) for i in range(0, len(found), 2)}
        return [pairs_of(value) for value in found]
    return found


def fill(connection, pairs):
    for key, lines in pairs:
        for name, *args in lines:
            connection.execute_command(name, key, *args)


READS = {
    "string": lambda pipe, key: pipe.get(key),
    "list": lambda pipe, key: pipe.lrange(key, 0, -1),
    "set": lambda pipe, key: pipe.smembers(key),
    "hash": lambda pipe, key: pipe.hgetall(key),
    # Scores as numbers, since their text differs between versions.
    "zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    # With split arguments, so that the library does not parse the reply.
    "stream": lambda pipe, key: pipe.execute_command("XINFO", b"STREAM", key, "FULL", "COUNT", 0),
}


def looks(connection, keys):
    """(type, value, expiry) of each key, in a comparable form."""
    with connection.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        kinds = [kind.decode() for kind in pipe.execute()]
        for kind, key in zip(kinds, keys):
            READS.get(kind, lambda pipe, key: pipe.exists(key))(pipe, key)
        found = pipe.execute(raise_on_error=False)
        for key in keys:
            pipe.pexpiretime(key)
        for at, (kind, key) in enumerate(zip(kinds, keys)):
            if kind == "stream":
                # Streams that are written to during the migration.
                found[at] = info_of(pairs_of(found[at]), UNTOLD if key.startswith(b"w:") else UNSTEADY)
        return list(zip(kinds, found, pipe.execute()))


def value(connection, key):
    """Type and value of a key."""
    [(kind, found, _)] = looks(connection, [key])
    return kind, sorted(found) if kind == "set" else found


def differences(one, other, drift_ms=0):
    """Keys of two connections' DBs whose values or times differ."""
    here, there = set(one.keys("*")), set(other.keys("*"))
    wrong = [(name, "is on this side only") for name in here - there]
    wrong += [(name, "is on the other side only") for name in there - here]
    both = sorted(here & there)
    for start in range(0, len(both), 500):
        keys = both[start : start + 500]
        for key, a, b in zip(keys, looks(one, keys), looks(other, keys)):
            if a[:2] != b[:2]:
                wrong.append((key, "differs"))
            elif abs(a[2] - b[2]) > drift_ms:
                wrong.append((key, "expires at another time"))
    return wrong
