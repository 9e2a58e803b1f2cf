"""The coordination service in memory, for processes that are threads of a test."""

import collections
import itertools
import threading
import time

from shardc.runtime.processes.agreement import Agreement, Steps
from shardc.runtime.processes.job import Job


class FakeService:
    """What all processes see; counts their requests and the bytes of the answers."""

    def __init__(self):
        self.values = {}
        self.written = collections.defaultdict(threading.Event)  # by key
        self.lock = threading.Lock()
        self.requests = self.num_bytes = 0

    def answered(self, *values):
        with self.lock:
            self.requests += 1
            self.num_bytes += sum(map(len, values))


class FakeCoordination:
    """What `Coordination` is to its users."""

    def __init__(self, service, rank, size):
        self.service, self.rank, self.size = service, rank, size

    def set(self, key, value):
        self.service.answered()
        with self.service.lock:
            self.service.values[key] = value
        self.service.written[key].set()

    def get(self, key, timeout_s):
        self.service.written[key].wait(timeout_s)
        found = self.service.values.get(key)
        self.service.answered(found or b"")
        return found

    def all_under(self, folder):
        start = folder + "/"
        with self.service.lock:
            every = self.service.values.items()
            found = {k.removeprefix(start): v for k, v in every if k.startswith(start)}
        self.service.answered(*found.values())
        return found

    def delete(self, key):
        self.service.written[key].clear()
        self.service.values.pop(key, None)


class FakeJob(Job):
    """A job without the watch."""

    def __init__(self, service, rank, size):
        self.coordination = FakeCoordination(service, rank, size)
        self.rank, self.size = rank, size
        self._names = 0
        self._steps = Steps(itertools.count(1).__next__, lambda: None)

    def new_plan(self):
        return self._new_name()

    def wait(self, key, rank=0):
        found = self.coordination.get(key, 10)
        assert found is not None, key
        return found

    def agreement(self):
        return Agreement(self.coordination, self.wait, self.new_plan(), self._steps)


def on_all(work, size=3, service=None):
    """What work(job) gives, or the error that it raises, on each rank."""
    service = service or FakeService()
    found = [None] * size

    def run(rank):
        try:
            found[rank] = work(FakeJob(service, rank, size))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), time.monotonic()
    return found
