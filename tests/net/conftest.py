import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for i in items:
            i.add_marker(pytest.mark.skip(reason="needs root (network namespaces)"))
