"""Cases of `run --types`: geo, sorted ints and the types of RedisBloom, each beside a case of an older type.

The peer is a Redis with RedisBloom: it has no sorted ints, for which no peer is measured.
"""

from cases import RAND, Case

ITEMS = 100_000
GEO_MEMBERS = 100_000
BATCH = 100


def batches(count, words):
    """`words` of each number below `count`, some numbers at a time."""
    for start in range(0, count, BATCH):
        yield [word for n in range(start, min(start + BATCH, count)) for word in words(n)]


def made(create, command, words):
    """A load: `create` once, then `command` with the words of all items."""

    def load(scale, _requests):
        if create:
            yield create
        for some in batches(int(ITEMS * scale), words):
            yield [*command, *some]

    return load


def item(n):
    """An item as redis-benchmark draws it."""
    return [f"item:{n:012}"]


def counted(n):
    """An item with an increment."""
    return [f"item:{n:012}", "1"]


def places(scale, _requests):
    """Members spread over Europe."""
    words = lambda n: [f"{n * 7919 % 30000 / 1000:.3f}", f"{35 + n * 104729 % 25000 / 1000:.3f}", *item(n)]  # noqa: E731
    return (["GEOADD", "geo", *some] for some in batches(int(GEO_MEMBERS * scale), words))


zset = made(None, ["ZADD", "zset"], lambda n: [str(n * 7919 % ITEMS), *item(n)])
members = made(None, ["SADD", "set"], item)
ints = made(None, ["SIADD", "ints"], lambda n: [str(n)])
bloom = made(["BF.RESERVE", "bf", "0.01", "1000000"], ["BF.MADD", "bf"], item)
cuckoo = made(["CF.RESERVE", "cf", "1000000"], ["CF.INSERT", "cf", "ITEMS"], item)
sketch = made(["CMS.INITBYPROB", "cms", "0.001", "0.01"], ["CMS.INCRBY", "cms"], counted)
top = made(["TOPK.RESERVE", "top", "50", "2000", "7", "0.9"], ["TOPK.INCRBY", "top"], counted)
digest = made(["TDIGEST.CREATE", "td"], ["TDIGEST.ADD", "td"], lambda n: [str(n)])

ITEM = f"item:{RAND}"

TYPE_CASES = [
    Case("SADD", ["SADD", "set", ITEM], ITEMS, members),
    Case("SISMEMBER", ["SISMEMBER", "set", ITEM], ITEMS, members),
    Case("ZADD", ["ZADD", "zset", RAND, ITEM], ITEMS, zset),
    Case("ZRANGE10", ["ZRANGE", "zset", "0", "9"], ITEMS, zset),
    Case("GEOADD", ["GEOADD", "geo", "13.361", "38.116", ITEM], GEO_MEMBERS, places),
    Case("GEOPOS", ["GEOPOS", "geo", ITEM], GEO_MEMBERS, places),
    Case("GEODIST", ["GEODIST", "geo", ITEM, ITEM], GEO_MEMBERS, places),
    Case("GEORADIUS", ["GEOSEARCH", "geo", "FROMLONLAT", "15", "47", "BYRADIUS", "20", "km"], GEO_MEMBERS, places),
    Case("GEOBOX10", ["GEOSEARCH", "geo", "FROMLONLAT", "15", "47", "BYBOX", "100", "100", "km", "COUNT", "10", "ASC"],
         GEO_MEMBERS, places),
    Case("SIADD", ["SIADD", "ints", RAND], ITEMS, ints, has_peer=False),
    Case("SIEXISTS", ["SIEXISTS", "ints", RAND], ITEMS, ints, has_peer=False),
    Case("SIRANGE10", ["SIRANGEBYVALUE", "ints", "50000", "50009"], ITEMS, ints, has_peer=False),
    Case("BF.ADD", ["BF.ADD", "bf", ITEM], ITEMS, bloom),
    Case("BF.EXISTS", ["BF.EXISTS", "bf", ITEM], ITEMS, bloom),
    Case("CF.ADDNX", ["CF.ADDNX", "cf", ITEM], ITEMS, cuckoo),
    Case("CF.EXISTS", ["CF.EXISTS", "cf", ITEM], ITEMS, cuckoo),
    Case("CMS.INCRBY", ["CMS.INCRBY", "cms", ITEM, "1"], ITEMS, sketch),
    Case("CMS.QUERY", ["CMS.QUERY", "cms", ITEM], ITEMS, sketch),
    Case("TOPK.ADD", ["TOPK.ADD", "top", ITEM], ITEMS, top),
    Case("TOPK.QUERY", ["TOPK.QUERY", "top", ITEM], ITEMS, top),
    Case("TD.ADD", ["TDIGEST.ADD", "td", RAND], ITEMS, digest),
    Case("TD.QUANT", ["TDIGEST.QUANTILE", "td", "0.5", "0.99"], ITEMS, digest),
]
