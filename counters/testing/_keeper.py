"""Keep an emulator running for as long as somebody holds its lifeline; a script of its own.

    python _keeper.py DIRECTORY COMMAND...

Whoever uses the emulator holds a shared lock on ``DIRECTORY/lifeline``. The kernel drops the lock
of a process that dies, however it dies, so when this script gets the lock for itself there is
nobody left, and it ends the emulator. SIGTERM ends both at once: the emulator has ended when this
script has. It exits when the emulator does, with its exit code.

Runs in a process group that holds nothing but itself and the emulator.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path


def main(directory: Path, command: list[str]) -> int:
    """Run ``command`` until it ends, the lifeline is let go, or SIGTERM comes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    emulator = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603
    try:
        threading.Thread(target=end_when_unused, args=(directory,), daemon=True).start()
        return emulator.wait()
    finally:
        # Its data is in memory and of no use to anybody: no reason to wait for a clean end.
        emulator.kill()
        emulator.wait()


def end_when_unused(directory: Path) -> None:
    """Wait until nobody holds the lifeline, then kill the process group, this script with it."""
    with (directory / "lifeline").open("rb") as lifeline:
        fcntl.flock(lifeline, fcntl.LOCK_EX)
        shutil.rmtree(directory, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
