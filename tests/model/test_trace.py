"""The check of logs, tried with the lines of a real move (move.log) and with what must not be in one."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import trace as tr  # noqa: E402  (the file beside this one)

TABLES = tr.load_tables(os.environ["MODEL_TABLES"])
with open(os.path.join(HERE, "move.log")) as f:
    REAL = f.readlines()


def problems(lines):
    return tr.check(tr.read(lines), TABLES)[1]


def line(second, side, old, new, event):
    return f"2026-01-01T00:00:{second:02}.000000Z info  ferry-node: move u ({side} of 'a/b'): {old} -> {new} on {event}\n"


class Trace(unittest.TestCase):
    def test_a_real_move_is_as_the_protocol_has_it(self):
        self.assertEqual(tr.check(tr.read(REAL), TABLES), (1, []))

    def test_an_edge_that_is_not_in_the_table_is_found(self):
        bad = [l.replace("Moving -> Switching on Stands", "Moving -> Given on Stands") for l in REAL]
        self.assertIn("no such edge", problems(bad)[0])

    def test_a_missing_step_is_found(self):
        self.assertIn("the last state was", problems([l for l in REAL if "on Stands" not in l])[0])

    def test_a_permission_before_the_release_is_found(self):
        bad = [l for l in REAL if "on Released" not in l and "on Taken" not in l]
        self.assertIn("the source has not been released", problems(bad)[0])

    def test_a_source_that_gives_what_nobody_runs_is_found(self):
        bad = [l for l in REAL if "on Resumed" not in l and "on Written" not in l]
        self.assertIn("the target has not run it", problems(bad)[0])

    def test_a_restarted_agent_begins_at_idle(self):
        again = [line(1, "source", "Idle", "Preparing", "Begin"), line(2, "source", "Idle", "Preparing", "Begin"),
                 line(3, "source", "Preparing", "Failed", "Ended")]
        self.assertEqual(problems(again), [])

    def test_a_released_source_that_fails_is_found(self):
        steps = ["Idle Preparing Begin", "Preparing Starting Ready", "Starting Moving Accepted", "Moving Released Released",
                 "Idle Preparing Begin", "Preparing Failed Ended"]
        bad = [line(i, "source", *s.split()) for i, s in enumerate(steps)]
        self.assertEqual(len(problems(bad)), 1)
        self.assertIn("a released source goes back", problems(bad)[0])


if __name__ == "__main__":
    unittest.main()
