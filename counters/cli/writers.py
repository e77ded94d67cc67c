"""The writer processes of a command: started, watched, and never left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, cast

from counters.cli.database import Place
from counters.cli.protocol import Job, Report
from counters.cli.work import Row, deal

if TYPE_CHECKING:
    from typing_extensions import Self

# Isolated, so that nothing in the current directory is imported by mistake, but with the module path
# of this process, so that writers run the code that it runs.
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from counters.cli.writer import main; main()"
)


class Writer:
    """One process, and the thread that hands it its job and hears its reports."""

    def __init__(self, place: Place, job: Job) -> None:
        self.rows = job.rows
        self.report = Report()
        self._job = job
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=place.environ(),
            start_new_session=True,  # Ctrl-C in the terminal is for the command, which tells it
        )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._thread = threading.Thread(target=self._attend, daemon=True)
        self._thread.start()

    @property
    def at_work(self) -> bool:
        """Whether the process runs, or something it said was not heard yet."""
        return self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by finishing or being stopped."""
        return self.report.error is not None or not (self.at_work or self.report.ended)

    def stop(self) -> None:
        """Have it stop once the row that it is at is counted; does not wait for that."""
        with suppress(BrokenPipeError):
            self._stdin.close()

    def kill(self) -> None:
        """End it at once, whatever it is at."""
        self._process.kill()

    def join(self, seconds: float | None = None) -> None:
        """Wait until it is no longer at work, or for so many seconds."""
        self._thread.join(seconds)

    def _attend(self) -> None:
        with suppress(BrokenPipeError, ValueError):  # it died, or was told to stop meanwhile
            self._stdin.write(self._job.to_line())
            self._stdin.flush()
        with self._stdout as said:
            for line in said:
                if line.endswith(b"\n"):  # else it was killed in the middle of a word
                    self.report = Report.from_line(line)
        self._process.wait()


class Writers:
    """So many writers at work on ``rows`` for as long as the ``with`` block runs.

    The end of the block stops them and waits for what they are at; a second Ctrl-C kills them.
    """

    def __init__(self, place: Place, rows: Sequence[Row], number: int, *, shards: int) -> None:
        self._place = place
        self._jobs = [Job(place.project, place.database, shards, hand) for hand in deal(rows, number)]
        self.everyone: list[Writer] = []

    @property
    def done(self) -> int:
        """How many rows are counted."""
        return sum(writer.report.done for writer in self.everyone)

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or until all are done; whether that is so, or one has failed."""
        until = time.monotonic() + seconds
        for writer in self.everyone:
            writer.join(max(0.0, until - time.monotonic()))
        return not self._at_work() or any(writer.failed for writer in self.everyone)

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self.everyone.append(Writer(self._place, job))
        except BaseException:
            self._end(interrupts=0)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(interrupts=int(kind is KeyboardInterrupt))

    def _end(self, interrupts: int) -> None:
        before = interrupts
        for writer in self.everyone:
            writer.stop()
        while self._at_work():
            interrupts += self._interrupted_while_waiting()
            if interrupts > 1:
                for writer in self.everyone:
                    writer.kill()
        if interrupts > before:
            raise KeyboardInterrupt

    def _interrupted_while_waiting(self) -> bool:
        try:
            for writer in self.everyone:
                writer.join()
        except KeyboardInterrupt:
            return True
        return False

    def _at_work(self) -> bool:
        return any(writer.at_work for writer in self.everyone)
