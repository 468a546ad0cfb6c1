"""What is measured: each case's data, and the command that redis-benchmark sends.

`__rand_int__` is redis-benchmark's own placeholder: twelve digits below the
case's keyspace, drawn anew at each place of each command.
"""

import dataclasses
from typing import Callable

VALUE = "v" * 64
RAND = "__rand_int__"
TEN_KEYS = [word for _ in range(10) for word in (f"key:{RAND}", VALUE)]
HASH_FIELDS = [word for n in range(1, 6) for word in (f"field{n}", VALUE)]

KEYS = 1_000_000
# So many that most keys of a run are new ones.
MANY_KEYS = 10_000_000
COUNTERS = 100_000
HASHES = 100_000
LISTS = 10_000
LIST_LENGTH = 20
SETS = 100_000
ZSET_MEMBERS = 1_000_000
BITMAPS = 100_000
BITMAP_BYTES = 1024
# The placeholder has leading zeros, which no server takes for an offset: one
# bit in the middle of the bitmap stands for all.
BITMAP_OFFSET = BITMAP_BYTES * 4 + 1


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the result."""

    name: str
    command: list
    keyspace: int
    # Commands (lists of words) that fill the server, given a scale (1, or less
    # for --quick) and the number of requests of one run.
    load: Callable = lambda scale, requests: ()
    # Whether a run uses its data up, so that each needs the load again.
    consumes: bool = False
    # Whether --quick shrinks the keyspace with the data.
    scales: bool = True
    # Whether Redis has such commands.
    has_peer: bool = True


def strings(scale, _requests):
    """KEYS strings."""
    return (["SET", f"key:{n:012}", VALUE] for n in range(int(KEYS * scale)))


def hashes(scale, _requests):
    """HASHES hashes of five fields."""
    return (["HSET", f"hash:{n:012}", *HASH_FIELDS] for n in range(int(HASHES * scale)))


def lists(scale, _requests):
    """LISTS lists, a little longer than what LRANGE asks for."""
    return (["RPUSH", f"list:{n:012}", *[VALUE] * LIST_LENGTH] for n in range(int(LISTS * scale)))


def long_lists(scale, requests):
    """LISTS lists that last for one run of pops."""
    count = int(LISTS * scale)
    length = requests * 13 // (count * 10) + 10
    return (["RPUSH", f"list:{n:012}", *[VALUE] * length] for n in range(count))


def zset(scale, _requests):
    """One sorted set of ZSET_MEMBERS members."""
    members = int(ZSET_MEMBERS * scale)
    step = 100
    for start in range(0, members, step):
        # A stride that shares no factor with the count: the scores come unsorted.
        numbers = ((n * 7919) % members for n in range(start, start + step))
        yield ["ZADD", "zset", *[word for n in numbers for word in (str(n), f"member:{n:012}")]]


def bitmaps(scale, _requests):
    """BITMAPS bitmaps of BITMAP_BYTES."""
    last = str(BITMAP_BYTES - 1)
    return (["SETRANGE", f"bits:{n:012}", last, "x"] for n in range(int(BITMAPS * scale)))


CASES = [
    Case("PING", ["PING"], 1, scales=False),
    Case("SET", ["SET", f"key:{RAND}", VALUE], KEYS),
    Case("GET", ["GET", f"key:{RAND}"], KEYS, strings),
    Case("INCR", ["INCR", f"counter:{RAND}"], COUNTERS),
    Case("MSET10", ["MSET", *TEN_KEYS], KEYS),
    Case("MSET10NEW", ["MSET", *TEN_KEYS], MANY_KEYS, consumes=True, scales=False),
    Case("HSET5", ["HSET", f"hash:{RAND}", *HASH_FIELDS], HASHES),
    Case("HGETALL5", ["HGETALL", f"hash:{RAND}"], HASHES, hashes),
    Case("HINCRBY", ["HINCRBY", f"hash:{RAND}", "count", "1"], HASHES),
    Case("LPUSH", ["LPUSH", f"list:{RAND}", VALUE], LISTS),
    Case("RPOP", ["RPOP", f"list:{RAND}"], LISTS, long_lists, consumes=True),
    Case("LRANGE10", ["LRANGE", f"list:{RAND}", "0", "9"], LISTS, lists),
    Case("SADD", ["SADD", f"set:{RAND}", f"member:{RAND}"], SETS),
    Case("ZADD", ["ZADD", "zset", RAND, f"member:{RAND}"], ZSET_MEMBERS),
    Case("ZRANGE10", ["ZRANGE", "zset", "0", "9"], ZSET_MEMBERS, zset),
    Case("SETBIT", ["SETBIT", f"bits:{RAND}", str(BITMAP_OFFSET), "1"], BITMAPS, bitmaps, consumes=True),
]
