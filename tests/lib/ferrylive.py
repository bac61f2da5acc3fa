"""A pytest plugin: each test's end, as one JSON line, to the descriptor that FERRY_TEST_LIVE names."""
import json
import os

FD = int(os.environ.get("FERRY_TEST_LIVE", "-1"))


def pytest_runtest_logreport(report):
    if FD >= 0 and (report.when == "call" or (report.when == "setup" and not report.passed)):
        line = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
        os.write(FD, (json.dumps(line) + "\n").encode())
