"""RQ: jobs with dependencies, retries and a failure, run by a forking worker.

    rq_jobs.py PORT
"""

import os
import sys

import redis
from rq import Queue, Retry, Worker
from rq.job import Job

PORT = int(os.environ.get("KEDIS_PORT") or sys.argv[1])


def note(key, value):
    """A job that records its call."""
    with redis.Redis(port=PORT) as client:
        client.rpush(key, value)
    return value


def fails_first(key):
    """A job that succeeds at the third attempt."""
    with redis.Redis(port=PORT) as client:
        if client.incr(key) < 3:
            raise RuntimeError("not yet")


def fails():
    """A job that always fails."""
    raise ValueError("as it should")


def main():
    """Enqueues jobs, runs them all, and checks the results."""
    os.environ["KEDIS_PORT"] = str(PORT)
    client = redis.Redis(port=PORT)
    queue = Queue("work", connection=client)
    first = queue.enqueue(note, "trace", "first")
    later = queue.enqueue(note, "trace", "later", depends_on=first)
    many = [queue.enqueue(note, "many", n) for n in range(5)]
    again = queue.enqueue(fails_first, "tries", retry=Retry(max=5))
    broken = queue.enqueue(fails)
    Worker([queue], connection=client).work(burst=True, logging_level="ERROR")
    assert client.lrange("trace", 0, -1) == [b"first", b"later"]
    assert sorted(client.lrange("many", 0, -1)) == [b"0", b"1", b"2", b"3", b"4"]
    assert client.get("tries") == b"3"
    for job in [first, later, again, *many]:
        assert Job.fetch(job.id, connection=client).is_finished, job
    assert first.return_value(refresh=True) == "first"
    assert Job.fetch(broken.id, connection=client).is_failed
    assert broken.id in queue.failed_job_registry
    assert len(queue) == 0


if __name__ == "__main__":
    # RQ does not accept functions of the main module.
    import rq_jobs

    rq_jobs.main()
