"""Queries whose expected results are in `packages.Facts`."""

import hashlib
import time

# Number of packages that are checked one by one.
SAMPLE = 400


def hashes(ask, facts, rng):
    names = rng.sample(sorted(facts.fields), min(SAMPLE, len(facts.fields)))
    for name in names:
        fields = facts.fields[name]
        key = b"pkg:" + name
        yield f"HGETALL {key}", ask.hgetall(key), fields
        wanted = [b"Version", b"nosuch", b"Size", b"Version"]
        yield f"HMGET {key}", ask.hmget(key, wanted), [fields.get(f) for f in wanted]
        yield f"HSTRLEN {key}", ask.hstrlen(key, b"Description"), len(fields[b"Description"])
    pipeline = ask.pipeline(transaction=False)
    for name in facts.fields:
        pipeline.hlen(b"pkg:" + name)
    yield "HLEN of all", pipeline.execute(), [len(f) for f in facts.fields.values()]
    for name, seconds in facts.expire_at.items():
        yield f"EXPIRETIME {name}", ask.execute_command("EXPIRETIME", b"pkg:" + name), seconds


def one_huge_hash(ask, facts, rng):
    yield "HLEN versions", ask.hlen("versions"), len(facts.versions)
    yield "HGETALL versions", ask.hgetall("versions"), facts.versions
    scanned = list(ask.hscan_iter("versions", count=777))
    yield "HSCAN versions, as a set", dict(scanned), facts.versions
    yield "HSCAN versions, each once", len(scanned), len(facts.versions)
    drawn = ask.hrandfield("versions", 200)
    yield "HRANDFIELD versions", [n for n in drawn if n not in facts.versions], []
    yield "HRANDFIELD, all distinct", len(set(drawn)), min(200, len(facts.versions))


def sets(ask, facts, rng):
    popular = sorted(facts.needed_by, key=lambda n: (-len(facts.needed_by[n]), n))[:12]
    for name in popular:
        key, others = b"rdeps:" + name, facts.needed_by[name]
        yield f"SCARD {key}", ask.scard(key), len(others)
        yield f"SMEMBERS {key}", ask.smembers(key), others
        yield f"SSCAN {key}", set(ask.sscan_iter(key, count=100)), others
    for _ in range(40):
        a, b, c = rng.sample(popular, 3) if len(popular) > 2 else popular * 3
        keys = [b"rdeps:" + n for n in (a, b, c)]
        x, y, z = (facts.needed_by[n] for n in (a, b, c))
        yield f"SINTER {keys}", ask.sinter(keys), x & y & z
        yield f"SUNION {keys}", ask.sunion(keys), x | y | z
        yield f"SDIFF {keys}", ask.sdiff(keys), x - y - z
        yield f"SINTERCARD {keys}", ask.execute_command("SINTERCARD", 3, *keys), len(x & y & z)
    names = rng.sample(sorted(facts.depends), min(SAMPLE, len(facts.depends)))
    for name in names:
        yield f"SMEMBERS deps:{name}", ask.smembers(b"deps:" + name), facts.depends[name]
        yield f"SISMEMBER rdeps:{popular[0]} {name}", ask.sismember(
            b"rdeps:" + popular[0], name
        ), int(name in facts.needed_by[popular[0]])


def sorted_sets(ask, facts, rng):
    for key, sizes in (("by-size", facts.by_size), ("by-installed-size", facts.by_installed_size)):
        order = sorted(sizes.items(), key=lambda item: (item[1], item[0]))
        names = [name for name, _ in order]
        rank = {name: n for n, name in enumerate(names)}
        top = [(name, float(size)) for name, size in reversed(order[-25:])]
        yield f"ZCARD {key}", ask.zcard(key), len(order)
        yield f"ZREVRANGE {key}", ask.zrevrange(key, 0, 24, withscores=True), top
        yield f"ZRANGE {key} of all", ask.zrange(key, 0, -1), names
        for name in rng.sample(names, min(100, len(names))):
            yield f"ZSCORE {key} {name}", ask.zscore(key, name), float(sizes[name])
            yield f"ZRANK {key} {name}", ask.zrank(key, name), rank[name]
            yield f"ZREVRANK {key} {name}", ask.zrevrank(key, name), len(names) - 1 - rank[name]
        for _ in range(40):
            low, high = sorted(rng.choice(order)[1] for _ in range(2))
            inside = [name for name, size in order if low <= size <= high]
            above = [name for name, size in order if low < size <= high]
            yield f"ZCOUNT {key} {low} {high}", ask.zcount(key, low, high), len(inside)
            yield f"ZRANGEBYSCORE {key} ({low} {high}", ask.zrangebyscore(
                key, f"({low}", high, start=3, num=20
            ), above[3:23]
            first = rng.randrange(len(names))
            yield f"ZRANGE {key} {first}", ask.zrange(key, first, first + 9), names[
                first : first + 10
            ]


def lists(ask, facts, rng):
    for maintainer, names in facts.maintained.items():
        if len(names) < 500 and rng.random() > 0.05:
            continue
        key = b"maintainer:" + maintainer
        yield f"LLEN {key}", ask.llen(key), len(names)
        yield f"LRANGE {key}", ask.lrange(key, 0, -1), names
        at = rng.randrange(len(names))
        yield f"LINDEX {key} {at}", ask.lindex(key, at), names[at]
        yield f"LINDEX {key} {-at - 1}", ask.lindex(key, -at - 1), names[-at - 1]
        yield f"LPOS {key}", ask.lpos(key, names[at]), at
    maintainer = max(facts.maintained, key=lambda m: len(facts.maintained[m]))
    sizes = [(facts.by_size.get(n, 0), n) for n in facts.maintained[maintainer]]
    top = sorted(sizes, key=lambda item: (item[0], item[1]), reverse=True)[:10]
    wanted = [item for _, n in top for item in (n, facts.versions[n])]
    yield "SORT by a field of hashes", ask.sort(
        b"maintainer:" + maintainer,
        by="pkg:*->Size",
        get=["#", "pkg:*->Version"],
        desc=True,
        start=0,
        num=10,
    ), wanted


def strings(ask, facts, rng):
    yield "STRLEN archive", ask.strlen("archive"), len(facts.archive)
    for name in rng.sample(sorted(facts.place), min(SAMPLE, len(facts.place))):
        start, length = facts.place[name]
        stanza = facts.archive[start : start + length]
        yield f"GETRANGE {name}", ask.getrange("archive", start, start + length - 1), stanza
    yield "GETRANGE from the end", ask.getrange("archive", -1000, -1), facts.archive[-1000:]
    whole = hashlib.sha256(ask.get("archive")).hexdigest()
    yield "GET archive", whole, hashlib.sha256(facts.archive).hexdigest()


def bitmaps(ask, facts, rng):
    keys = [b"section:" + section for section in facts.in_section]
    for section, numbers in facts.in_section.items():
        key = b"section:" + section
        yield f"BITCOUNT {key}", ask.bitcount(key), len(numbers)
        yield f"BITPOS {key}", ask.bitpos(key, 1), min(numbers)
        yield f"STRLEN {key}", ask.strlen(key), max(numbers) // 8 + 1
        at = rng.randrange(len(facts.index))
        yield f"GETBIT {key} {at}", ask.getbit(key, at), int(at in numbers)
    length = (len(facts.index) + 7) // 8
    yield "BITOP OR of all sections", ask.bitop("OR", "all-sections", *keys), length
    yield "BITCOUNT of the union", ask.bitcount("all-sections"), len(facts.index)
    yield "BITOP AND of two sections", ask.bitop("AND", "none", *keys[:2]) <= length, True
    yield "BITCOUNT of what no package is in", ask.bitcount("none"), 0
    yield "DEL of both", ask.delete("all-sections", "none"), 2


def keys(ask, facts, rng):
    prefixes = [b"python3-", b"lib", b"zz", b"golang-github-"]
    for prefix in prefixes:
        wanted = {b"pkg:" + n for n in facts.fields if n.startswith(prefix)}
        pattern = b"pkg:" + prefix + b"*"
        yield f"SCAN MATCH {pattern}", set(ask.scan_iter(match=pattern, count=500)), wanted
    yield "SCAN TYPE zset", set(ask.scan_iter(_type="zset", count=1000)), {
        b"by-size",
        b"by-installed-size",
    }
    fleeting = [key for key in ask.scan_iter(match="fleeting:*", count=1000)]
    yield "SCAN, each key once", len(fleeting), len(set(fleeting))


ALL = [hashes, one_huge_hash, sets, sorted_sets, lists, strings, bitmaps, keys]


def shown(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def ask_all(connection, facts, rng):
    """Runs all queries; returns their number, and the wrong results."""
    asked, wrong = 0, []
    for family in ALL:
        for question, answer, right in family(connection, facts, rng):
            asked += 1
            if answer != right:
                wrong.append(f"{question}: got {shown(answer)}, right is {shown(right)}")
    return asked, wrong


def within(seconds, condition):
    """Waits for a condition; returns whether it became true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def complain(text):
    print(f"WRONG {text}", flush=True)
    return 1


def check_last(connection, last):
    """Checks the counter that was incremented when the server was killed."""
    kept = int(connection.get("kill-counter") or 0)
    if kept < last:
        return complain(f"acknowledged {last} before kill -9, kept {kept}")
    connection.delete("kill-counter")
    return 0


def check_expired(connection):
    """The short-lived keys are gone, and not counted."""
    if not within(20, lambda: not list(connection.scan_iter(match="fleeting:*", count=1000))):
        return complain("keys outlive their time")
    return 0


def check_removal(connection, facts, report):
    """DBSIZE is exact before and after; removing a huge hash takes no time."""
    failures = 0
    if not within(20, lambda: connection.dbsize() == facts.key_count()):
        failures += complain(f"DBSIZE {connection.dbsize()}, right is {facts.key_count()}")
    started = time.monotonic()
    connection.delete("versions")
    took = time.monotonic() - started
    report.append((f"DEL of {len(facts.versions):,} fields", f"{took * 1000:.1f} ms"))
    return failures


def check_size_after_removal(connection, facts):
    """The count survived a restart."""
    size = connection.dbsize()
    if size != facts.key_count() - 1:
        return complain(f"DBSIZE {size} after a restart, right is {facts.key_count() - 1}")
    return 0
