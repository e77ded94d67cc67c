"""Both twins behind one face: ``wait`` is what a caller does with what a call returns."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from counters import AsyncCounters, Counters
from counters.policy import NO_BACKOFF, Backoff, Policy

SHORT = Policy(backoff=Backoff(first=0.002, longest=0.05))
AT_ONCE = Policy(backoff=NO_BACKOFF)


class SyncCaller:
    name = "sync"

    def __init__(self, client):
        self.client = client

    def app(self, policy=AT_ONCE, **options):
        return Counters(self.client, policy=policy, **options)

    def wait(self, result):
        return result

    def transaction(self, app, *writes):
        """Run ``Counters.transaction`` with a body that makes these writes."""

        def body(transaction):
            for write in writes:
                write(transaction)
            return "returned"

        return app.transaction(body)

    def side_by_side(self, count, call):
        """Make ``call(number)`` for each number at once; the results and exceptions."""

        def caught(number):
            try:
                return call(number)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                return error

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(caught, range(count)))


class AsyncCaller:
    name = "async"

    def __init__(self, client, loop):
        self.client = client
        self.loop = loop

    def app(self, policy=AT_ONCE, **options):
        return AsyncCounters(self.client, policy=policy, **options)

    def wait(self, result):
        return self.loop.run_until_complete(result)

    def transaction(self, app, *writes):
        async def body(transaction):
            for write in writes:
                result = write(transaction)
                if result is not None:
                    await result
            return "returned"

        return self.wait(app.transaction(body))

    def side_by_side(self, count, call):
        async def together():
            return await asyncio.gather(*(call(number) for number in range(count)), return_exceptions=True)

        return self.wait(together())
