"""Dramatiq with the server as its broker, result backend and rate limiter: single tasks, delays,
retries, dead messages, a pipeline, a group with a callback, and what a killed worker had begun.

    dramatiq_jobs.py PORT
"""

import os
import subprocess
import sys
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend as Limits
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from dramatiq.results.errors import ResultFailure

PORT = int(os.environ.get("KEDIS_PORT") or sys.argv[1])
WAIT_MS = 30_000
client = redis.Redis(port=PORT)
limits = Limits(client=redis.Redis(port=PORT))
# A worker counts as dead after two seconds, and each command looks for dead ones.
broker = RedisBroker(port=PORT, heartbeat_timeout=2000, maintenance_chance=1_000_000)
broker.add_middleware(Results(backend=RedisBackend(client=redis.Redis(port=PORT)), store_results=True))
broker.add_middleware(GroupCallbacks(limits))
dramatiq.set_broker(broker)
often = {"min_backoff": 10, "max_backoff": 20}


@dramatiq.actor
def add(a, b):
    """A sum."""
    return a + b


@dramatiq.actor
def now():
    """The time at which it runs."""
    return time.time()


@dramatiq.actor(max_retries=5, **often)
def stubborn(key):
    """Succeeds at the third attempt."""
    tries = client.incr(key)
    if tries < 3:
        raise RuntimeError("not yet")
    return tries


@dramatiq.actor(max_retries=1, **often)
def broken():
    """Always fails."""
    client.incr("broken")
    raise ValueError("as it should")


@dramatiq.actor
def finished(key):
    """What a group calls at its end."""
    client.rpush(key, "all")


@dramatiq.actor
def alone(n):
    """Runs in one thread of all workers at a time."""
    mutex = ConcurrentRateLimiter(limits, "alone", limit=1)
    while True:
        with mutex.acquire(raise_on_failure=False) as acquired:
            if acquired:
                assert client.incr("inside") == 1
                assert client.decr("inside") == 0
                return n


@dramatiq.actor(queue_name="long")
def hangs():
    """Runs as long as nobody kills the worker, but only the first time."""
    if client.incr("hangs") == 1:
        client.rpush("hanging", os.getpid())
        client.blpop("never", 60)
    return "done"


def worker(*queues):
    """A process as users start it."""
    command = [sys.executable, "-m", "dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", "4"]
    return subprocess.Popen([*command, "--queues", *queues], env=dict(os.environ, KEDIS_PORT=str(PORT)))


def result(message):
    """What a task returns."""
    return message.get_result(block=True, timeout=WAIT_MS)


def tasks():
    """What one worker does."""
    sums = [add.send(n, n) for n in range(100)]
    assert [result(message) for message in sums] == [2 * n for n in range(100)]
    before = time.time()
    late = [now.send_with_options(delay=delay) for delay in (400, 200)]
    for message, delay in zip(late, (0.4, 0.2)):
        # The broker counts in whole milliseconds.
        assert result(message) >= before + delay - 0.001
    assert result(stubborn.send("tries")) == 3
    failing = broken.send()
    try:
        raise AssertionError(f"returned {result(failing)}")
    except ResultFailure as failure:
        assert failure.orig_exc_type == "ValueError" and "as it should" in str(failure)
    assert client.get("broken") == b"2"


def compositions():
    """Tasks that depend on others, and limits."""
    pipeline = (add.message(1, 2) | add.message(3) | add.message(4)).run()
    assert pipeline.get_result(block=True, timeout=WAIT_MS) == 10
    group = dramatiq.group(add.message(n, 1) for n in range(20))
    group.add_completion_callback(finished.message("ended"))
    assert list(group.run().get_results(block=True, timeout=WAIT_MS)) == list(range(1, 21))
    assert client.blpop("ended", 30) == (b"ended", b"all")
    turns = dramatiq.group(alone.message(n) for n in range(20)).run()
    assert sorted(turns.get_results(block=True, timeout=WAIT_MS)) == list(range(20))
    window = WindowRateLimiter(limits, "window", limit=3, window=600)
    allowed = []
    for _ in range(5):
        with window.acquire(raise_on_failure=False) as acquired:
            allowed.append(acquired)
    assert allowed == [True] * 3 + [False] * 2, allowed


def killed():
    """A message that a killed worker had taken goes to the next one."""
    first = worker("long")
    message = hangs.send()
    begun = client.blpop("hanging", 30)
    assert begun, "the worker has not begun after 30 s"
    os.kill(int(begun[1]), 9)
    # The process that has started it ends then, too.
    assert first.wait(30) != 0
    second = worker("long")
    assert result(message) == "done"
    second.terminate()
    assert second.wait(30) == 0
    assert client.get("hangs") == b"2"


def main():
    """Runs all, and looks at what is left in the server."""
    process = worker("default")
    tasks()
    compositions()
    broker.join("default", timeout=WAIT_MS)
    process.terminate()
    assert process.wait(30) == 0
    assert client.zcard("dramatiq:default.XQ") == client.hlen("dramatiq:default.XQ.msgs") == 1
    assert client.llen("dramatiq:default") == client.llen("dramatiq:default.DQ") == 0
    killed()


if __name__ == "__main__":
    main()
