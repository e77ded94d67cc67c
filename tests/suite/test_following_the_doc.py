"""docs/deploy.md, "Try it in the emulators", followed literally, as somebody new would."""

import os
import re
import subprocess
import sys
from pathlib import Path

from emulator_suite import ROOT

DOC = (ROOT / "docs" / "deploy.md").read_text()
SECTION = DOC[DOC.index("## Try it in the emulators") : DOC.index("## With Firebase")]
FIRST, SECOND = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)


def shell(script):
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_in_the_first_terminal_the_emulators_start(suite, runtime):
    prepare, start = FIRST.splitlines()
    made = shell(prepare.replace("python313", runtime))
    assert made.returncode == 0, made.stderr
    # The second line is what the fixture did, on ports that are free.
    assert start == "firebase emulators:start --project demo-counters --only firestore,functions"
    assert suite.project == "demo-counters"


def test_in_the_second_terminal_an_increment_gets_into_the_total(suite):
    script = SECOND.replace("127.0.0.1:8080", suite.firestore).replace(":5001", f":{suite.port}")
    followed = shell(script)
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert re.search(r"^total\s+1\s", followed.stdout, re.MULTILINE)
    assert "Nothing found that would keep totals from moving." in followed.stdout
