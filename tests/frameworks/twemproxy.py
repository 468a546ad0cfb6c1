"""twemproxy before two servers, with the configuration file of the manual: keys on both, pipelines, parts of
keys in braces, what is refused, a server that goes away and comes back, and a replica that takes its place.

    twemproxy.py PORT

The first server is there, the second one and its replica are started here. KEDIS_NUTCRACKER is the
program, and KEDIS_SERVER that of the servers.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import manual
import redis
from ports import free_ports
from redis.backoff import NoBackoff
from redis.retry import Retry

PORT = int(sys.argv[1])
WAIT_S = 30
PAGE = "more-machines.md"


def wait_for(what, condition):
    """Polls until the condition holds; its value."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            value = condition()
        except redis.RedisError:
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        time.sleep(0.01)


class Process:
    """A program with a log."""

    all = []

    def __init__(self, name, command, port):
        self.log, self.command, self.port, self.process = Path(f"{name}.log"), command, port, None
        Process.all.append(self)
        self.start()

    def start(self):
        """Starts it, and waits until it answers."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        client = connect(self.port)
        wait_for(f"{self.log.stem} to answer", client.ping)

    def kill(self):
        """Ends it without a word."""
        self.process.kill()
        self.process.wait()


def connect(port, **more):
    """A client that greets with nothing that twemproxy does not know, and shows each error."""
    return redis.Redis(port=port, protocol=2, driver_info=None, socket_timeout=WAIT_S, retry=Retry(NoBackoff(), 0),
                       **more)


def server(name, port):
    """Another server."""
    folder = Path(name)
    folder.mkdir()
    return Process(name, [os.environ["KEDIS_SERVER"], "--port", str(port), "--bind", "127.0.0.1", "--dir", name], port)


def configuration(first, second, store, cache):
    """The file of the manual with these ports."""
    addresses = {"192.0.2.1:6379": f"127.0.0.1:{first}", "192.0.2.2:6379": f"127.0.0.1:{second}",
                 "127.0.0.1:22121": f"127.0.0.1:{store}", "127.0.0.1:22122": f"127.0.0.1:{cache}"}
    lines = manual.replaced(manual.block(PAGE, "auto_eject_hosts"), addresses)
    path = Path("nutcracker.yml")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program = os.environ["KEDIS_NUTCRACKER"]
    subprocess.run([program, "--test-conf", "--conf-file", path], check=True, stderr=subprocess.DEVNULL)
    stats = free_ports(1)[0]
    return [program, "--conf-file", str(path), "--output", "nutcracker.log", "--stats-addr", "127.0.0.1",
            "--stats-port", str(stats)]


def refused(call, *words):
    """Checks that a request ends the connection or gives an error; the error."""
    try:
        raise AssertionError(f"{words}: {call(*words)}")
    except redis.RedisError as error:
        return error


def sharding(store, servers):
    """Keys are on both servers, and requests for many keys reach both."""
    pairs = {f"key:{n}": f"value {n}" for n in range(1000)}
    assert store.mset(pairs)
    keys = list(pairs)
    random.shuffle(keys)
    assert store.mget(keys + ["none"]) == [pairs[key].encode() for key in keys] + [None]
    sizes = [link.dbsize() for link in servers]
    assert sum(sizes) == 1000 and min(sizes) > 200, sizes
    for link in servers:
        for key in link.scan_iter():
            assert link.get(key) == store.get(key) == pairs[key.decode()].encode()
    assert store.touch(*keys[:300], "none") == 300
    # Only the server of the first key is asked.
    assert store.exists(*keys) == next(size for link, size in zip(servers, sizes) if link.exists(keys[0]))
    assert store.delete(*keys[:500]) == 500 and store.unlink(*keys[500:900], "none") == 400
    assert sum(link.dbsize() for link in servers) == 100
    assert sorted(store.mget(keys[900:])) == sorted(pairs[key].encode() for key in keys[900:])
    large = random.randbytes(3 << 20)
    assert store.set("large", large) and store.get("large") == large


def pipelines(store):
    """Replies come in the order of the requests, whichever server is the faster one."""
    pipe = store.pipeline(transaction=False)
    expected = []
    for n in range(1000):
        key = f"pipe:{n % 100}"
        pipe.rpush(key, n)
        pipe.lrange(key, 0, -1)
        pipe.get("none")
        values = [b"%d" % m for m in range(n % 100, n + 1, 100)]
        expected += [len(values), values, None]
    assert pipe.execute() == expected
    pipe = store.pipeline(transaction=False)
    pipe.hset("h", mapping={"a": 1, "b": 2}).lpush("h", "x").hgetall("h").zadd("z", {"a": 1.5}).zrange("z", 0, -1)
    found = pipe.execute(raise_on_error=False)
    assert "WRONGTYPE" in str(found[1])
    assert [found[n] for n in (0, 2, 3, 4)] == [2, {b"a": b"1", b"b": b"2"}, 1, [b"a"]]


def tags(store, servers):
    """Keys with the same part in braces are together; others may be apart, and then nobody says so."""
    for n in range(50):
        for part in "abc":
            store.sadd(f"{{user:{n}}}.{part}", n, part)
        assert len([link for link in servers if link.exists(*(f"{{user:{n}}}.{part}" for part in "abc"))]) == 1
        assert store.sinter(f"{{user:{n}}}.a", f"{{user:{n}}}.b") == {b"%d" % n}
        assert store.sunionstore(f"{{user:{n}}}.all", f"{{user:{n}}}.a", f"{{user:{n}}}.b") == 3
        script = "return redis.call('SCARD', KEYS[1]) + redis.call('SCARD', KEYS[2])"
        assert store.eval(script, 2, f"{{user:{n}}}.a", f"{{user:{n}}}.b") == 4
    apart = [next(key for key in (f"set:{n}" for n in range(1000)) if place(store, servers, key) == wanted)
             for wanted in range(2)]
    assert store.sinter(*apart) == set(), "the server of the first key has the second one, too"
    assert store.smembers(apart[0]) == store.smembers(apart[1]) == {b"x"}


def place(store, servers, key):
    """Which server has a key, after it was made a set with one member."""
    store.sadd(key, "x")
    return next(number for number, link in enumerate(servers) if link.exists(key))


def refusals(port):
    """What twemproxy does not know it does not send: it closes the connection."""
    for words in (("MULTI",), ("WATCH", "a"), ("SUBSCRIBE", "a"), ("PUBLISH", "a", "b"), ("SELECT", "1"), ("KEYS", "*"),
                  ("SCAN", "0"), ("BLPOP", "a", "1"), ("RENAME", "a", "b"), ("MSETNX", "a", "1", "b", "2"), ("INFO",),
                  ("XADD", "a", "*", "b", "c"), ("JSON.SET", "a", "$", "1"), ("HELLO", "3"), ("CLIENT", "ID")):
        with connect(port) as client:
            error = refused(client.execute_command, *words)
            assert isinstance(error, redis.ConnectionError), (words, error)


def without_ejection(store, second, here, there):
    """A server that is gone: its keys give errors, the others work; all is there when it is back."""
    store.mset({key: "before" for key in here + there})
    second.kill()
    for key in here:
        assert store.get(key) == b"before" and store.set(key, "after")
    for key in there:
        refused(store.get, key)
        refused(store.set, key, "after")
    refused(store.mget, here + there)
    second.start()
    wait_for("the server that is back", lambda: store.get(there[0]))
    assert store.mget(there) == [b"before"] * len(there)
    assert store.mget(here) == [b"after"] * len(here)


def with_ejection(cache, servers, second, here, there):
    """The other server takes its keys over; when it is back, it has what it had."""
    cache.mset({key: "before" for key in here + there})
    assert [link.dbsize() for link in servers] == [len(here), len(there)]
    second.kill()
    # One request of the client fails for each failure that twemproxy waits for.
    wait_for("the ejection of a server", lambda: cache.set(there[0], "meanwhile"))
    # Now and then twemproxy tries the server again, and then a request fails, too.
    wait_for("keys that are where they were", lambda: cache.mget(here) == [b"before"] * len(here))
    wait_for("a key that was written meanwhile", lambda: cache.get(there[0]) == b"meanwhile")
    wait_for("keys that are gone", lambda: cache.mget(there[1:]) == [None] * (len(there) - 1))
    assert servers[0].get(there[0]) == b"meanwhile"
    second.start()
    wait_for("the return of a server", lambda: cache.get(there[1]))
    assert cache.mget(there) == [b"before"] * len(there)
    assert servers[0].get(there[0]) == b"meanwhile", "what was written meanwhile stays where it is"


def replica(store, second, proxy, ports):
    """A replica becomes the master of its part: another address, the same name, the same keys."""
    before = {key: store.get(key) for key in (f"moved:{n}" for n in range(100)) if store.set(key, key)}
    other = server("replica", free_ports(1)[0])
    link = connect(other.port)
    link.replicaof("127.0.0.1", str(second.port))
    wait_for("the replica", lambda: link.info("replication").get("master_link_status") == "up")
    wait_for("what the master has", lambda: link.dbsize() == connect(second.port).dbsize())
    assert connect(second.port).wait(1, WAIT_S * 1000) == 1
    second.kill()
    link.replicaof("NO", "ONE")
    proxy.kill()
    proxy.command = configuration(PORT, other.port, *ports)
    proxy.start()
    assert {key: store.get(key) for key in before} == before
    assert store.mset({key: "new" for key in before}) and store.mget(before) == [b"new"] * 100


def main():
    """Starts all, and ends it."""
    ports = free_ports(2)
    try:
        second = server("second", free_ports(1)[0])
        proxy = Process("nutcracker", configuration(PORT, second.port, *ports), ports[0])
        store, cache = map(connect, ports)
        servers = [connect(port) for port in (PORT, second.port)]
        sharding(store, servers)
        pipelines(store)
        tags(store, servers)
        refusals(ports[0])
        places = [[key for key in (f"set:{n}" for n in range(100)) if place(store, servers, key) == number]
                  for number in range(2)]
        assert min(map(len, places)) > 20
        store.delete(*places[0], *places[1])
        without_ejection(store, second, *places)
        with_ejection(cache, [connect(port, db=1) for port in (PORT, second.port)], second, *places)
        replica(store, second, proxy, ports)
    except BaseException:
        for process in Process.all:
            print(f"--- {process.log.stem}", process.log.read_text(errors="replace")[-3000:], sep="\n")
        raise
    finally:
        for process in Process.all:
            process.kill()


main()
