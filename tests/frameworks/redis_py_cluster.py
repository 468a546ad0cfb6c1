"""redis-py's cluster client against a cluster of one node, and then with a replica.

    redis_py_cluster.py PORT
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis
import redis.asyncio
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, ResponseError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ports import free_port  # noqa: E402


def work(client):
    """Keys of many slots, pipelines, transactions, scripts, messages."""
    for n in range(300):
        assert client.set(f"k:{n}", n)
    assert [client.get(f"k:{n}") for n in range(300)] == [str(n).encode() for n in range(300)]
    assert client.mset_nonatomic({f"m:{n}": n for n in range(50)})
    assert client.mget_nonatomic([f"m:{n}" for n in range(50)]) == [str(n).encode() for n in range(50)]
    assert len(client.keys("k:*")) == 300
    assert len(list(client.scan_iter("k:*", count=50))) == 300
    assert client.dbsize() == 350
    with client.pipeline() as pipe:
        for n in range(300):
            pipe.incr(f"k:{n}")
        assert pipe.execute() == list(range(1, 301))
    assert client.delete("m:1", "m:2", "m:3") == 3
    slot = client.keyslot("{user}.a")
    assert client.cluster_keyslot("{user}.a") == slot
    assert client.mset({"{user}.a": 1, "{user}.b": 2})
    assert client.cluster_countkeysinslot(slot) == 2
    found = client.cluster_get_keys_in_slot(slot, 10)
    assert {key if isinstance(key, str) else key.decode() for key in found} == {"{user}.a", "{user}.b"}, found
    script = client.register_script("return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}")
    assert script(keys=["{user}.a", "{user}.b"]) == [b"1", b"2"]
    try:
        client.eval("return 1", 2, "a", "b")
    except (RedisClusterException, ResponseError):
        pass
    else:
        raise AssertionError("keys of two slots")
    channel = client.pubsub()
    channel.ssubscribe("news")
    assert channel.get_sharded_message(timeout=5)["type"] == "ssubscribe"
    assert client.spublish("news", "x") == 1
    found = None
    while found is None:
        found = channel.get_sharded_message(timeout=5)
    assert found["data"] == b"x", found
    channel.close()
    assert client.cluster_info()["cluster_state"] == "ok"


async def in_asyncio(port):
    """The same client without threads."""
    async with redis.asyncio.RedisCluster(host="127.0.0.1", port=port) as client:
        await client.initialize()
        values = await asyncio.gather(*(client.set(f"a:{n}", n) for n in range(50)))
        assert all(values)
        assert await client.get("a:49") == b"49"


def with_replica(port):
    """Reads go to the replica, and the client finds the new master after a failover."""
    other = free_port()
    binary = os.readlink(f"/proc/{redis.Redis(port=port).info('server')['process_id']}/exe")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--port", str(other), "--dir", folder, "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
        line = [binary, *flags, "--replicaof", f"127.0.0.1 {port}"]
        with open(Path(folder) / "log", "wb") as log:
            replica = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(lambda: redis.Redis(port=other).info("replication")["master_link_status"] == "up")
            client = RedisCluster(host="127.0.0.1", port=port, read_from_replicas=True)
            assert {node.port for node in client.get_nodes()} == {port, other}, client.get_nodes()
            assert client.set("r", 1) and client.wait(1, 5000)
            assert all(client.get("r") == b"1" for _ in range(10))
            served = redis.Redis(port=other).info("commandstats").get("cmdstat_get", {}).get("calls", 0)
            assert served > 0, "the replica served no read"
            redis.Redis(port=port).execute_command("FAILOVER")
            until(lambda: role(other) == "master")
            assert client.set("r", 2) and client.get("r") in (b"1", b"2")
            assert redis.Redis(port=other).get("r") == b"2"
            # Back, so that the server of this job is a master again.
            until(lambda: redis.Redis(port=port).info("replication")["master_link_status"] == "up")
            redis.Redis(port=other).execute_command("FAILOVER")
            until(lambda: role(port) == "master")
        finally:
            replica.kill()
            replica.wait()


def role(port):
    """What a server is."""
    return redis.Redis(port=port).info("replication")["role"]


def until(is_so):
    """Waits for a condition."""
    end = time.monotonic() + 60
    while True:
        try:
            if is_so():
                return
        except (redis.ConnectionError, redis.ResponseError, KeyError):
            pass
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.02)


def main():
    """Everything, in RESP2 and RESP3."""
    port = int(sys.argv[1])
    for protocol in (2, 3):
        client = RedisCluster(host="127.0.0.1", port=port, protocol=protocol)
        client.flushall()
        work(client)
        client.close()
    asyncio.run(in_asyncio(port))
    with_replica(port)


if __name__ == "__main__":
    main()
