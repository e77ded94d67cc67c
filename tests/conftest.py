"""What all tests share."""

import signal

# Where a run is started in the background, Ctrl-C may be ignored, and every process that a test
# starts would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]

SHOWN = ("every order", "faults", "soak", "keys")


def pytest_terminal_summary(terminalreporter):
    """Print what tests recorded of what they saw: figures that a pass alone does not tell."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.getreports(name)]
    for title in SHOWN:
        lines = [text for report in reports for name, text in report.user_properties if name == title]
        if lines:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.write_line(line)
