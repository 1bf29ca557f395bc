"""Tests of the helper: python3 -m unittest spotworker_test."""

import ast
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

import spotworker

HERE = Path(__file__).resolve().parent


class OnWorker(unittest.TestCase):
    """A folder as a worker makes it."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        (self.root / "tmp").mkdir()
        self.env = {f"SPOTWORKER_{name}": str(self.root / name.lower()) for name in ("PAYLOAD", "CHECKPOINT", "RESULT", "PROGRESS", "STOP")}
        self.env.update(TMPDIR=str(self.root / "tmp"), SPOTWORKER_JOB_ID="a")
        (self.root / "payload").write_text('{"n": 5}')
        patch = mock.patch.dict(os.environ, self.env)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def resume(self):
        """Lets the next job begin where the last one was saved."""
        os.replace(self.root / "checkpoint", self.root / "restore")
        os.environ["SPOTWORKER_RESTORE"] = str(self.root / "restore")
        (self.root / "stop").unlink(missing_ok=True)

    def work(self, job, stop_at=None):
        state = job.load({"seen": []})
        for i in job.range(job.payload["n"]):
            state["seen"].append(i)
            if i == stop_at:
                (self.root / "stop").write_text("{}")
                job._looked = 0.0
        job.result(state["seen"])

    def test_undisturbed(self):
        self.work(spotworker.job())
        self.assertEqual(json.loads((self.root / "result").read_text()), [0, 1, 2, 3, 4])

    def test_stopped_after_each_iteration(self):
        for stop_at in range(4):
            with self.subTest(stop_at=stop_at):
                os.environ.pop("SPOTWORKER_RESTORE", None)
                (self.root / "stop").unlink(missing_ok=True)
                with self.assertRaises(SystemExit) as left:
                    self.work(spotworker.job(), stop_at)
                self.assertEqual(left.exception.code, 75)
                self.resume()
                self.work(spotworker.job())
                self.assertEqual(json.loads((self.root / "result").read_text()), [0, 1, 2, 3, 4])

    def test_stopped_before_the_first_iteration(self):
        (self.root / "stop").write_text("{}")
        with self.assertRaises(SystemExit):
            self.work(spotworker.job())
        self.resume()
        self.work(spotworker.job())
        self.assertEqual(json.loads((self.root / "result").read_text()), [0, 1, 2, 3, 4])

    def test_a_state_that_was_not_loaded_survives(self):
        spotworker.job().save({"a": 1})
        self.resume()
        (self.root / "stop").write_text("{}")
        with self.assertRaises(SystemExit):
            spotworker.job().stop()
        self.resume()
        self.assertEqual(spotworker.job().load(), {"a": 1})

    def test_save_in_a_range_is_that_of_the_whole_iteration(self):
        job = spotworker.job(every=1000)
        for i in job.range(3):
            job.save({"i": i})
            self.assertEqual((self.root / "checkpoint").exists(), i > 0)
        self.resume()
        again = spotworker.job()
        self.assertEqual(again.load(), {"i": 2})
        self.assertEqual(list(again.range(3)), [])

    def test_keep_takes_a_function(self):
        job = spotworker.job(every=0)
        for i in job.range(2):
            job.keep(lambda i=i: [i])
        self.resume()
        self.assertEqual(spotworker.job().load(), [1])

    def test_two_ranges(self):
        job = spotworker.job(every=0)
        self.assertEqual([list(job.range(2)), list(job.range(10, 16, 2))], [[0, 1], [10, 12, 14]])
        with self.assertRaises(RuntimeError):
            for _ in job.range(2):
                list(job.range(2))

    def test_two_ranges_resume(self):
        job = spotworker.job(every=0)
        list(job.range(3))
        for i in job.range(4):
            if i == 1:
                job.save()
            if i == 2:
                break
        self.resume()
        again = spotworker.job()
        self.assertEqual([list(again.range(3)), list(again.range(4))], [[], [2, 3]])

    def test_formats(self):
        for form, state in (("pickle", {1, 2}), ("bytes", b"\x00\n\xff"), ("json", {"ä": [1.5, None]})):
            with self.subTest(form=form):
                os.environ.pop("SPOTWORKER_RESTORE", None)
                spotworker.job(format=form).save(state)
                self.resume()
                self.assertEqual(spotworker.job(format=form).load(), state)
        with self.assertRaisesRegex(ValueError, "json, pickle or bytes"):
            spotworker.job(format="yaml")

    def test_a_state_that_strict_json_has_not(self):
        job = spotworker.job()
        job.save({"loss": float("-inf"), "name": "caf\udce9 ü"})
        self.resume()
        self.assertEqual(spotworker.job().load(), {"loss": float("-inf"), "name": "caf\udce9 ü"})

    def test_a_pickle_is_read_only_where_it_is_expected(self):
        spotworker.job(format="pickle").save([1])
        self.resume()
        with self.assertRaisesRegex(ValueError, "pickle"):
            spotworker.job().load()

    def test_result_without_nan(self):
        for value, want in ((float("nan"), None), ({"loss": [float("-inf"), (1.5,)]}, {"loss": [None, [1.5]]})):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                spotworker.job().result(value)
            self.assertEqual(json.loads((self.root / "result").read_text()), want)
            self.assertIn("null in the result", said.getvalue())

    def test_bad_input(self):
        with self.assertRaisesRegex(TypeError, "state cannot be written as JSON"):
            spotworker.job().save({1, 2})
        self.assertFalse((self.root / "checkpoint").exists())
        (self.root / "payload").write_text("no JSON")
        with self.assertRaisesRegex(ValueError, "payload_bytes"):
            spotworker.job().payload
        with self.assertRaisesRegex(ValueError, "1048576"):
            spotworker.job().result(b"x" * (1 << 20 | 1))
        os.environ["SPOTWORKER_RESTORE"] = str(self.root / "payload")
        (self.root / "payload").write_text('{"spotworker": 99}\n')
        with self.assertRaisesRegex(ValueError, "format 99"):
            spotworker.job()

    def test_checkpoints_that_cannot_be_used(self):
        """A checkpoint that cannot be read is a failure that says so."""
        restore = self.root / "restore"
        os.environ["SPOTWORKER_RESTORE"] = str(restore)
        for content, options in (
            (b"half a line", {}), (b"[]\n{}", {}), (b'{"spotworker": 1, "format": "json"}\n{"sum": ', {}),
            (b'{"spotworker": 1, "format": "pickle"}\n\x80\x04', {"format": "pickle"}),
        ):
            with self.subTest(content=content):
                restore.write_bytes(content)
                with self.assertRaisesRegex(ValueError, "checkpoint cannot be used|is no checkpoint"):
                    spotworker.job(**options).load()

    def test_progress(self):
        job = spotworker.job()
        job.progress(0.5, "half")
        job.progress(7)
        job.progress(float("nan"))
        lines = [json.loads(line) for line in (self.root / "progress").read_text().splitlines()]
        self.assertEqual([line["fraction"] for line in lines], [0.5, 1.0, 0.0])

    def test_progress_of_a_range(self):
        with self.assertRaises(SystemExit):
            self.work(spotworker.job(), stop_at=1)
        self.resume()
        self.work(spotworker.job())
        lines = [json.loads(line) for line in (self.root / "progress").read_text().splitlines()]
        self.assertEqual([line["text"] for line in lines], ["2 of 5", "2 of 5", "5 of 5"])

    def test_folders(self):
        job = spotworker.job()
        with self.assertRaisesRegex(RuntimeError, "outputs"):
            job.output
        os.environ["SPOTWORKER_INPUTS"] = str(self.root / "in")
        self.assertEqual(spotworker.job().inputs, self.root / "in")

    def test_nothing_but_whole_files(self):
        spotworker.job().save({"a": 1})
        self.assertEqual(list((self.root / "tmp").iterdir()), [])


class OnLaptop(unittest.TestCase):
    """A program that a person runs, stops and runs again."""

    PROGRAM = """
        import sys, time
        sys.path.insert(0, {here!r})
        import spotworker
        job = spotworker.job(payload={{"n": 40}})
        state = job.load({{"sum": 0, "runs": 0}})
        state["runs"] += 1
        for i in job.range(job.payload["n"]):
            state["sum"] += i
            print(i, flush=True)
            while i == 5 and state["runs"] == 1 and not job.stopping:
                time.sleep(0.02)  # until the signal, however late that is
        job.result(state)
    """

    def test_stop_and_run_again(self):
        root = Path(tempfile.mkdtemp())
        program = root / "sums.py"
        program.write_text(textwrap.dedent(self.PROGRAM.format(here=str(HERE))))
        env = {k: v for k, v in os.environ.items() if not k.startswith("SPOTWORKER_")}
        first = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
        for line in first.stdout:
            if line.strip() == b"5":
                break
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
        self.assertEqual(first.returncode, 75)
        second = subprocess.run([sys.executable, str(program)], capture_output=True, env=env, timeout=60)
        self.assertEqual(second.returncode, 0, second.stderr)
        result = json.loads((root / ".sums.spotworker" / "result").read_text())
        self.assertEqual(result, {"sum": sum(range(40)), "runs": 2})
        self.assertFalse((root / ".sums.spotworker" / "checkpoint").exists())

    def test_another_payload_starts_again(self):
        folder = tempfile.mkdtemp()
        env = {k: v for k, v in os.environ.items() if not k.startswith("SPOTWORKER_")}
        with mock.patch.dict(os.environ, env, clear=True), mock.patch("sys.stderr"):
            spotworker.job(payload=1, folder=folder).save("a")
            self.assertEqual(spotworker.job(payload=1, folder=folder).load(), "a")
            self.assertIsNone(spotworker.job(payload=2, folder=folder).load())


class Source(unittest.TestCase):
    def test_is_python_3_8(self):
        for file in (HERE / "spotworker").glob("*.py"):
            ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))


if __name__ == "__main__":
    unittest.main()
