"""Celery with the server as its broker and result backend: single tasks, retries, a group, a
chord and a chain, by a worker of several threads.

    celery_jobs.py PORT
"""

import sys

from celery import Celery, chain, chord, group
from celery.contrib.testing.worker import start_worker

URL = f"redis://127.0.0.1:{int(sys.argv[1])}/"
app = Celery("jobs", broker=URL + "0", backend=URL + "1")
app.conf.update(broker_connection_retry_on_startup=True, result_expires=600, worker_hijack_root_logger=False)


@app.task
def add(a, b):
    """A sum."""
    return a + b


@app.task
def total(numbers):
    """The body of a chord."""
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def stubborn(self):
    """Fails twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task
def broken():
    """Always fails."""
    raise ValueError("as it should")


def main():
    """Sends tasks and checks their results."""
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="ERROR"):
        results = [add.delay(n, n) for n in range(50)]
        assert [r.get(timeout=30) for r in results] == [2 * n for n in range(50)]
        assert group(add.s(n, 1) for n in range(20))().get(timeout=30) == list(range(1, 21))
        assert chord(add.s(n, n) for n in range(10))(total.s()).get(timeout=30) == 90
        assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=30) == 10
        assert stubborn.delay().get(timeout=30) == 2
        failed = broken.delay()
        assert isinstance(failed.get(timeout=30, propagate=False), ValueError) and failed.failed()
    with app.connection_for_read() as connection:
        left = connection.default_channel.client.llen("celery")
    assert left == 0, left


main()
