"""Processes that die: what they leave behind is what others have to cope with."""

import itertools

from counters import wire
from counters.steps import run


class Killed(BaseException):
    """The process is gone."""


class Mortal(wire.SyncTransport):
    """Dies when so many of its requests were answered."""

    def __init__(self, client, requests):
        super().__init__(client)
        self.left = requests

    def send(self, rpc):
        if not self.left:
            raise Killed
        self.left -= 1
        return super().send(rpc)


def deaths(client, steps_of):
    """Run the steps again and again, killed after 0, 1, 2, … requests, until they reach their end.

    ``steps_of()`` makes the steps anew. Yields the number of requests after each death.
    """
    for requests in itertools.count():
        try:
            run(steps_of(), Mortal(client, requests))
        except Killed:  # noqa: PERF203 - to die of it is the point
            yield requests
        else:
            return
