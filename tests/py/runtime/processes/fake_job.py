"""The coordination service in memory, for processes that are threads of a test."""

import threading
import time

from shardc.runtime.processes.agreement import Agreement


class FakeService:
    """What all processes see."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()


class FakeCoordination:
    """What `Coordination` is to its users."""

    def __init__(self, service, rank, size):
        self.service, self.rank, self.size = service, rank, size

    def set(self, key, value):
        with self.service.changed:
            self.service.values[key] = value
            self.service.changed.notify_all()

    def get(self, key, timeout_s):
        with self.service.changed:
            self.service.changed.wait_for(lambda: key in self.service.values, timeout_s)
            return self.service.values.get(key)

    def all_under(self, folder):
        start = folder + "/"
        with self.service.changed:
            found = self.service.values.items()
            return {k.removeprefix(start): v for k, v in found if k.startswith(start)}

    def delete(self, key):
        with self.service.changed:
            self.service.values.pop(key, None)


class FakeJob:
    """What `Job` is to its users, without the watch."""

    def __init__(self, service, rank, size):
        self.coordination = FakeCoordination(service, rank, size)
        self.rank, self.size = rank, size
        self.names = self.steps = 0

    def new_plan(self):
        self.names += 1
        return str(self.names)

    def wait(self, key, rank=0):
        found = self.coordination.get(key, 10)
        assert found is not None, key
        return found

    def begin(self):
        self.steps += 1
        return self.steps

    def agreement(self):
        return Agreement(self.coordination, self.wait, self.new_plan(), self.begin)


def on_all(work, size=3):
    """What work(job) gives, or the error that it raises, on each rank."""
    service = FakeService()
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
