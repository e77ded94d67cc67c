"""The examples of docs/testing.md."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_every_example_runs_as_it_stands(pytester, monkeypatch, counters_emulator):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", counters_emulator.host)
    page = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(**{f"test_example_{n}": text for n, text in enumerate(examples, start=1)})
    # Nothing but the plugin that the page is about, as its reader may have it.
    plugins = ("asyncio", "xdist", "pytest_mock", "anyio")
    options = [option for name in plugins for option in ("-p", f"no:{name}")]
    result = pytester.runpytest_subprocess(*options, "-W", "error::pytest.PytestWarning")
    result.assert_outcomes(passed=page.count("\ndef test_"))
