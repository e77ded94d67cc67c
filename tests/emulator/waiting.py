"""Waiting for what another task or thread is about to do."""

import asyncio

PATIENCE = 20.0


async def until(condition):
    """Return when ``condition()`` holds; other tasks and threads go on meanwhile."""

    async def holds():
        while not condition():  # noqa: ASYNC110 - threads that know no event change it too
            await asyncio.sleep(0.01)

    await asyncio.wait_for(holds(), PATIENCE)


class Heard(list):
    """What the callback of ``watch`` heard, in order."""

    def __call__(self, total):
        self.append(total)

    async def come_to(self, number):
        """Wait for so many totals."""
        await until(lambda: len(self) >= number)

    @property
    def values(self):
        return [total.value for total in self]
