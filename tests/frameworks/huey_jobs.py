"""Huey with its three kinds of storage: tasks, retries, the schedule, periodic tasks, locks, limits,
pipelines, a chord and priorities, by consumer processes.

    huey_jobs.py PORT
"""

import os
import signal
import subprocess
import sys
import threading
import time

import redis
from huey import PriorityRedisExpireHuey, RedisHuey, chord
from huey.exceptions import ResultTimeout, TaskException

PORT = int(os.environ.get("KEDIS_PORT") or sys.argv[1])
WAIT_S = 30
client = redis.Redis(port=PORT)
huey = RedisHuey("jobs", port=PORT, notify_result=True, store_intermediate_errors=False)
# Its queue is a sorted set, and its results are keys of their own that expire.
ranked = PriorityRedisExpireHuey("ranked", port=PORT, notify_result=True, expire_time=300)


@huey.task()
def add(a, b):
    """A sum."""
    return a + b


@huey.task()
def total(numbers):
    """The body of a chord."""
    return sum(numbers)


@huey.task()
def now():
    """The time at which it runs."""
    return time.time()


@huey.task()
def mark(key):
    """Records that it was called."""
    client.incr(key)


@huey.task(retries=3)
def stubborn(key):
    """Succeeds at the third attempt."""
    tries = client.incr(key)
    if tries < 3:
        raise RuntimeError("not yet")
    return tries


@huey.task()
def broken():
    """Always fails."""
    raise ValueError("as it should")


@huey.task()
@huey.lock_task("one")
def holds(n):
    """Says that it has the lock, and keeps it until it is told to go on."""
    client.rpush("has the lock", n)
    client.blpop(f"go on {n}", WAIT_S)
    return n


@huey.periodic_task(lambda when: True)
def periodic():
    """The scheduler sends it once at its start, and then once a minute."""
    client.rpush("periodic", os.getpid())


@ranked.task()
def note(n):
    """Records its call."""
    client.rpush("order", n)
    return n


def consumer(name, workers):
    """A process as users start it."""
    command = [sys.executable, "-m", "huey.bin.huey_consumer", f"huey_jobs.{name}", "--quiet"]
    return subprocess.Popen([*command, "--workers", str(workers), "--scheduler-interval", "1"], env=dict(os.environ, KEDIS_PORT=str(PORT)))


def stop(process):
    """Lets a consumer end what it does."""
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 0, process.returncode


def value(result):
    """What a task returns."""
    return result.get(blocking=True, timeout=WAIT_S)


def wait_for(what, condition):
    """Polls until the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        time.sleep(0.01)


def fails(result):
    """The error of a failed task."""
    try:
        raise AssertionError(f"returned {value(result)}")
    except TaskException as failure:
        return str(failure)


def tasks():
    """Plain tasks and their results, waited for by many threads at once."""
    results = [add(n, n) for n in range(100)]
    found = {}
    waiters = [threading.Thread(target=lambda n=n: found.update({n: value(results[n])})) for n in range(100)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join()
    assert found == {n: 2 * n for n in range(100)}, found
    assert value(stubborn("tries")) == 3
    assert "as it should" in fails(broken())
    pipeline = huey.enqueue(add.s(1, 2).then(add, 3).then(add, 4))
    assert [value(result) for result in pipeline] == [3, 6, 10]
    assert value(huey.enqueue(chord([add.s(n, n) for n in range(20)], total.s()))) == 380


def schedule():
    """Tasks that wait; one of them is taken back, and one is far away."""
    before = time.time()
    late = now.schedule(delay=1)
    mark.schedule(("revoked",), delay=1).revoke()
    far = add.schedule((2, 2), delay=3600)
    assert value(late) >= before + 1
    assert value(now.schedule(delay=1)) >= before + 2
    wait_for("one scheduled task", lambda: huey.scheduled_count() == 1)
    assert [task.args for task in huey.scheduled()] == [(2, 2)] and far.get() is None
    assert client.blpop("periodic", WAIT_S), f"no periodic task in {WAIT_S} s"


def locks():
    """A lock that another task or process has makes a task fail."""
    first = holds(1)
    assert client.blpop("has the lock", WAIT_S) == (b"has the lock", b"1")
    assert huey.is_locked("one")
    assert "unable to acquire lock" in fails(holds(2))
    client.rpush("go on 1", "x")
    assert value(first) == 1
    second = holds(3)
    assert client.blpop("has the lock", WAIT_S) == (b"has the lock", b"3")
    client.rpush("go on 3", "x")
    assert value(second) == 3
    assert not huey.is_locked("one")
    # A lock that ends by itself: with fields that expire, for servers that say that they have them.
    for kind in (ranked, huey) if huey.storage.supports_hash_ttl else (ranked,):
        lock = kind.lock_task("short", ttl=1)
        lock.acquire()
        wait_for("the end of a lock of one second", lambda: not lock.is_locked())


def priorities():
    """A consumer with one worker takes what matters most, and equals as they came."""
    given = [(n, priority) for n, priority in enumerate([1, 3, 2, 3, 1, 0])]
    results = [note.schedule((n,), delay=0, priority=priority) for n, priority in given]
    process = consumer("ranked", 1)
    assert [value(result) for result in results] == list(range(6))
    stop(process)
    assert client.lrange("order", 0, -1) == [b"1", b"3", b"2", b"0", b"4", b"5"]
    # They stay until they expire.
    kept = client.keys("huey.r.ranked.*")
    assert len([key for key in kept if 0 < client.ttl(key) <= 300]) == 6, kept


def main():
    """Runs all, and looks at what is left in the server."""
    process = consumer("huey", 4)
    tasks()
    schedule()
    locks()
    stop(process)
    assert huey.pending_count() == 0 and not client.exists("revoked")
    try:
        add(1, 1).get(blocking=True, timeout=1)
        raise AssertionError("a task has run without a consumer")
    except ResultTimeout:
        pass
    priorities()


if __name__ == "__main__":
    # The consumers know the tasks by the name of the module.
    import huey_jobs

    huey_jobs.main()
