import os
import sys

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
os.environ.setdefault("FERRY_BIN", os.path.join(TOP, "build/release/src/main"))
os.environ.setdefault("FERRY_WORK", os.path.join(TOP, "build/tests"))
