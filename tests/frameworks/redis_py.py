"""redis-py, sync and asyncio: pipelines, transactions, WATCH loops, messages, locks, scripts.

    redis_py.py PORT
"""

import asyncio
import sys
import threading

import redis
import redis.asyncio

THREADS, ROUNDS = 8, 50
COMPARE_AND_DELETE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def count_with_watch(client, key):
    """Increments a shared counter, which is read under WATCH."""
    for _ in range(ROUNDS):
        client.transaction(lambda pipe: add_one(pipe, key), key)


def add_one(pipe, key):
    """The body of a transaction: watched keys are read before MULTI."""
    value = int(pipe.get(key) or 0)
    pipe.multi()
    pipe.set(key, value + 1)


def count_with_lock(client, key):
    """The same with a lock."""
    for _ in range(ROUNDS):
        with client.lock(f"lock:{key}", timeout=30, sleep=0.001):
            client.set(key, int(client.get(key) or 0) + 1)


def together(work, *args):
    """Runs `work` on several threads."""
    failures = []

    def run():
        try:
            work(*args)
        except Exception as failure:  # The main thread raises it.
            failures.append(failure)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def in_threads(client):
    """Everything through the blocking client."""
    with client.pipeline(transaction=False) as pipe:
        for n in range(2000):
            pipe.set(f"p:{n}", n).get(f"p:{n}")
        replies = pipe.execute()
    assert replies[1::2] == [str(n) for n in range(2000)]
    with client.pipeline() as pipe:
        pipe.rpush("l", 1).incr("l").llen("l")
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] == 1 and isinstance(replies[1], redis.ResponseError) and replies[2] == 1
    together(count_with_watch, client, "watched")
    assert client.get("watched") == str(THREADS * ROUNDS)
    together(count_with_lock, client, "locked")
    assert client.get("locked") == str(THREADS * ROUNDS)
    lock = client.lock("short", timeout=2)
    assert lock.acquire() and not client.lock("short").acquire(blocking=False)
    assert client.lock("short").acquire(blocking_timeout=60)
    try:
        lock.release()
        raise AssertionError("a lock that somebody else has was released")
    except redis.exceptions.LockNotOwnedError:
        pass
    script = client.register_script(COMPARE_AND_DELETE)
    client.script_flush()
    client.set("mine", "a")
    assert script(keys=["mine"], args=["b"]) == 0 and script(keys=["mine"], args=["a"]) == 1
    client.function_load("#!lua name=lib\nredis.register_function('twice', function(k, a) return 2 * a[1] end)")
    assert client.fcall("twice", 0, 21) == 42
    messages = client.pubsub()
    messages.subscribe("news")
    messages.psubscribe("n*")
    # The publisher is another connection, so the subscriptions must exist first.
    got = [messages.get_message(timeout=10)["type"] for _ in range(2)]
    assert got == ["subscribe", "psubscribe"], got
    client.publish("news", "hello")
    got = [messages.get_message(timeout=10)["type"] for _ in range(2)]
    assert sorted(got) == ["message", "pmessage"], got


async def add_forever(client, key):
    """The WATCH loop by hand."""
    for _ in range(ROUNDS):
        async with client.pipeline() as pipe:
            while True:
                try:
                    await pipe.watch(key)
                    value = int(await pipe.get(key) or 0)
                    pipe.multi()
                    pipe.set(key, value + 1)
                    await pipe.execute()
                    break
                except redis.WatchError:
                    continue


async def lock_and_add(client, key):
    """The lock, by tasks."""
    for _ in range(ROUNDS // 5):
        async with client.lock(f"lock:{key}", timeout=30, sleep=0.001):
            await client.set(key, int(await client.get(key) or 0) + 1)


async def listen(client, wanted):
    """Subscribes, and collects `wanted` messages."""
    async with client.pubsub() as messages:
        await messages.subscribe("async")
        got = []
        async for message in messages.listen():
            if message["type"] == "message":
                got.append(int(message["data"]))
                if len(got) == wanted:
                    return got


async def in_tasks(port, protocol):
    """Everything through the client for asyncio."""
    client = redis.asyncio.Redis(port=port, protocol=protocol, decode_responses=True)
    await client.flushall()
    listeners = [asyncio.create_task(listen(client, 100)) for _ in range(3)]
    while (await client.pubsub_numsub("async"))[0][1] < 3:
        await asyncio.sleep(0.001)
    await asyncio.gather(*(add_forever(client, "watched") for _ in range(THREADS)))
    assert await client.get("watched") == str(THREADS * ROUNDS)
    await asyncio.gather(*(lock_and_add(client, "locked") for _ in range(THREADS)))
    assert await client.get("locked") == str(THREADS * (ROUNDS // 5))
    for n in range(100):
        assert await client.publish("async", n) == 3
    assert await asyncio.gather(*listeners) == [list(range(100))] * 3
    waiting = asyncio.create_task(client.blpop("queue", timeout=10))
    await client.rpush("queue", "x")
    assert list(await waiting) == ["queue", "x"]
    script = client.register_script(COMPARE_AND_DELETE)
    await client.set("mine", "a")
    assert await script(keys=["mine"], args=["a"]) == 1
    await client.aclose()


def main():
    """Runs both clients in both protocols."""
    port = int(sys.argv[1])
    for protocol in (2, 3):
        client = redis.Redis(port=port, protocol=protocol, decode_responses=True)
        client.flushall()
        client.function_flush()
        in_threads(client)
        client.close()
        asyncio.run(in_tasks(port, protocol))


main()
