"""Tests of spotworker.client against the deployment and the worker of the Go test that runs them."""

import datetime
import json
import os
import tempfile
import time
import unittest
import uuid

from spotworker import client as spotworker

CONNECTION = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
FACTS = json.loads(os.environ["SPOTWORKER_FACTS"])  # what Go says
PATIENCE = 300.0


def own_id(name):
    return f"{name}-{uuid.uuid4()}"


def has_record(client, id):
    try:
        return client.status(id).status == "running"
    except spotworker.NotFound:
        return False


class TestClient(unittest.TestCase):
    def setUp(self):
        self.client = spotworker.Client(connection_string=CONNECTION, name="python@desk")

    def test_put_and_wait(self):
        for payload in ({"n": 1, "text": "größer\n\u2028", "list": [1.5, None, True]}, "text", 7, [], False):
            id = self.client.put("echo", payload)
            self.assertEqual(self.client.wait(id, PATIENCE).json(), payload)
        for payload in (b"\x00\xff bytes", b"", None):
            self.assertEqual(self.client.wait(self.client.put("echo", payload), PATIENCE), payload or b"")

    def test_large_payloads(self):
        text = {"text": "ü" * 150_000}
        data = os.urandom(1 << 20)
        ids = [self.client.put("echo", text), self.client.put("echo", data, id=own_id("large"))]
        self.assertEqual(self.client.wait(ids[0], PATIENCE).json(), text)
        self.assertEqual(self.client.wait(ids[1], PATIENCE), data)

    def test_fields(self):
        deadline = datetime.datetime.now(datetime.timezone(datetime.timedelta(hours=2))) + datetime.timedelta(hours=3)
        id = self.client.put("deadline", 1, deadline=deadline, estimate=60, max_run=600, max_silence=60, delay=1)
        at = self.client.wait(id, PATIENCE).json()
        self.assertEqual(at, deadline.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def test_urgent(self):
        id = self.client.put("echo", 1, urgent=True)
        self.assertEqual(self.client.wait(id, PATIENCE).json(), 1)

    def test_command(self):
        id = self.client.command(["sh", "-c", "echo ü"], {"A": "1"}, kind="echo", gpus=1, max_failures=1)
        self.assertEqual(self.client.wait(id, PATIENCE).json(), {"argv": ["sh", "-c", "echo ü"], "environment": {"A": "1"}, "gpus": 1})
        for argv in ([], [""], "echo"):
            with self.assertRaisesRegex(ValueError, "list of the program"):
                self.client.command(argv)

    def test_chosen_id(self):
        id = own_id("alps")
        self.assertEqual(self.client.put("echo", {"n": 1}, id=id), id)
        self.client.wait(id, PATIENCE)
        before = self.client.status(id)
        self.assertTrue(before.final and before.kind == "echo" and before.generation == 1 and before.ended_at >= before.created_at)
        again = list(self.client.put_many([spotworker.Spec("echo", {"n": 1}, id=id)]))
        self.assertEqual([(p.id, p.status, p.error) for p in again], [(id, "done", None)])
        self.assertEqual(self.client.status(id), before)
        for other in (("echo", {"n": 2}), ("fails", {"n": 1})):
            with self.assertRaisesRegex(spotworker.OtherWork, id):
                self.client.put(*other, id=id)

    def test_again(self):
        id = own_id("again")
        large = "x" * 100_000
        self.client.put("echo", large, id=id)
        self.client.wait(id, PATIENCE)
        for payload in (large, {"n": 2}):
            self.assertEqual(self.client.put("echo", payload, id=id, again=True), id)
            self.assertEqual(self.client.wait(id, PATIENCE).json(), payload)
        self.assertEqual(self.client.put("fails", id=id, again=True), id)
        with self.assertRaises(spotworker.Failed):
            self.client.wait(id, PATIENCE)
        running = self.client.put("forever", id=own_id("again-running"), again=True)
        while not has_record(self.client, running):
            time.sleep(0.05)
        with self.assertRaises(spotworker.NotFinished):
            self.client.put("forever", id=running, again=True)
        self.client.cancel(running)
        with self.assertRaisesRegex(ValueError, "id"):
            self.client.put("echo", again=True)
        print("ran-again", id)

    def test_inputs(self):
        id = own_id("inputs")
        inputs = [{"container": "data", "blob": "größe 1.csv"}]
        self.client.put("files", id=id, inputs=inputs)
        self.assertEqual(self.client.wait(id, PATIENCE).json(), {"größe 1.csv": "a,b\n"})
        self.assertEqual(self.client.put("files", id=id, inputs=inputs), id)
        with self.assertRaises(spotworker.OtherWork):
            self.client.put("files", id=id, inputs=inputs[:0])

    def test_create_and_upload(self):
        other = spotworker.Client(connection_string=CONNECTION, prefix="made")
        for _ in range(2):
            other.create()
        other.put("echo", id="waits")
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "sub"))
            for name in ("a.csv", "sub/b.csv"):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(name)
            one = self.client.upload(os.path.join(folder, "a.csv"), "uploads")
            self.assertEqual(self.client.upload(b"a.csv", "uploads", "a.csv"), one)  # the same bytes
            with self.assertRaises(FileExistsError):
                self.client.upload(b"other", "uploads", "a.csv")
            inputs = [dict(one[0], to="one.csv")] + self.client.upload(folder, "uploads", "folder")
        id = self.client.put("files", inputs=inputs)
        self.assertEqual(self.client.wait(id, PATIENCE).json(), {"one.csv": "a.csv", "a.csv": "a.csv", "sub/b.csv": "sub/b.csv"})
        with self.assertRaises(ValueError):
            self.client.upload(b"x", "spotworker-jobs", "x")

    def test_groups(self):
        group, ids = own_id("group")[:30].rstrip("-"), [own_id(f"grouped-{n}") for n in range(3)]
        for n, id in enumerate(ids):
            self.client.put("echo", n, id=id, group=group)
        with self.assertRaises(spotworker.OtherGroup):
            self.client.put("echo", 0, id=ids[0], group="another")
        outcomes = dict(self.client.wait_many(ids, PATIENCE))
        self.assertEqual({id: int(result) for id, result in outcomes.items()}, {id: n for n, id in enumerate(ids)})
        self.assertEqual(sorted(job.id for job in self.client.list(group=group, status="done")), sorted(ids))
        self.assertEqual([job.id for job in self.client.list(ids[1], kind="echo")], [ids[1]])
        self.client.put("fails", id=ids[0] + "x", group=group)
        many = dict(self.client.wait_many(ids + [ids[0] + "x"] + [self.client.put("echo", n) for n in range(40)], PATIENCE))
        self.assertEqual((len(many), type(many[ids[0] + "x"])), (44, spotworker.Failed))
        with self.assertRaises(TimeoutError):
            list(self.client.wait_many([own_id("none")], timeout=0.1))

    def test_outputs_and_logs(self):
        id = self.client.put("stores")
        self.client.wait(id, PATIENCE)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual([(o.path, o.size) for o in self.client.download(id, folder)], [("a.txt", 7), ("sub/b.txt", 0)])
            with open(os.path.join(folder, "a.txt"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "größe")
        lines = self.client.logs(id)
        self.assertEqual((lines[0].delivery, lines[0].number, lines[0].source, lines[0].text), (1, 1, "info", "größer\\als\nlog n=0"))
        self.assertEqual([line.number for line in lines[-2:]], [199, 200])
        self.assertEqual(self.client.outputs(self.client.put("echo", id=own_id("no-record"), group="g")), [])

    def test_put_many(self):
        specs = [spotworker.Spec("echo", n, id=own_id(f"many-{n}")) for n in range(60)] + [spotworker.Spec("no kind!", 1)]
        put = list(self.client.put_many(specs, parallel=4))
        bad = [p for p in put if p.error]
        self.assertEqual((len(put), len(bad)), (61, 1))
        self.assertRegex(str(bad[0].error), "no kind!")
        for p in put:
            if not p.error:
                self.assertEqual(self.client.wait(p.id, PATIENCE).json(), p.spec.payload)

    def test_jobs_of_go(self):
        self.assertEqual(self.client.wait(FACTS["job_of_go"], PATIENCE).json(), {"from": "Go"})
        with self.assertRaises(spotworker.NewerVersion):
            self.client.status(FACTS["newer_record"])
        with self.assertRaises(spotworker.NewerVersion):
            self.client.put("echo", 1, id=FACTS["newer_record"])

    def test_same_as_go(self):
        for row in FACTS["shards"]:
            queue = "jobs" if row["shard"] == 0 else f"jobs-{row['shard']}"
            self.assertEqual(spotworker._shard("jobs", row["id"], row["of"]), queue, row)
        self.assertGreater(len({row["shard"] for row in FACTS["shards"]}), 3)

    def test_failed(self):
        id = self.client.put("fails")
        with self.assertRaisesRegex(spotworker.Failed, "größer als\nerlaubt"):
            self.client.wait(id, PATIENCE)
        self.assertEqual(self.client.status(id).status, "poison")

    def test_not_there(self):
        for call in (self.client.status, self.client.result, self.client.cancel):
            with self.assertRaisesRegex(spotworker.NotFound, "no-such-job"):
                call("no-such-job")
        begun = time.monotonic()
        with self.assertRaises(TimeoutError):
            self.client.wait("no-such-job", 1.2)
        took = time.monotonic() - begun
        self.assertGreater(took, 1.1)
        self.assertLess(took, PATIENCE)  # a busy machine is slow

    def test_cancel(self):
        id = own_id("cancel")
        self.client.put("forever", id=id)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if self.client.status(id).progress_text == "größer":
                    break
            except spotworker.NotFound:
                pass
            time.sleep(0.1)
        with self.assertRaises(spotworker.NotFinished):
            self.client.result(id)
        self.assertEqual(self.client.cancel(id, "no longer\nneeded"), "running")
        with self.assertRaisesRegex(spotworker.Cancelled, "no longer\nneeded"):
            self.client.wait(id, PATIENCE)
        job = self.client.status(id)
        self.assertEqual((job.status, job.reason, job.owner), ("cancelled", "no longer\nneeded", "python@desk"))
        self.assertEqual(self.client.cancel(id), "cancelled")  # again
        self.assertEqual(self.client.put("forever", id=id), id)  # nothing is put
        self.assertEqual(self.client.status(id), job)
        print("cancelled", id)

    def test_bad_input(self):
        naive = datetime.datetime.now()
        for what, call in {
            "id": lambda: self.client.put("echo", 1, id="a b"),
            "empty id": lambda: self.client.put("echo", 1, id=""),
            "dot": lambda: self.client.put("echo", 1, id="a."),
            "line feed": lambda: self.client.put("echo", 1, id="a\n"),
            "kind": lambda: self.client.put("", 1),
            "deadline": lambda: self.client.put("echo", 1, deadline=naive),
            "seconds": lambda: self.client.put("echo", 1, estimate=1.5),
            "NaN": lambda: self.client.put("echo", float("nan")),
            "payload": lambda: self.client.put("echo", b"x" * ((64 << 20) + 1)),
            "fields": lambda: self.client.put("files", inputs=[{"container": "data", "blob": "x" * 900}] * 60),
            "unknown field": lambda: self.client.put("files", inputs=[{"container": "data", "blobs": "x"}]),
            "no container": lambda: self.client.put("files", inputs=[{"blob": "x"}]),
            "two names": lambda: self.client.put("files", inputs=[{"container": "data", "blob": "x", "prefix": "y"}]),
            "etag": lambda: self.client.put("files", inputs=[{"container": "data", "blob": "x", "etag": "0x8"}]),
            "to": lambda: self.client.put("files", inputs=[{"container": "data", "blob": "x", "to": "../x"}]),
            "group": lambda: self.client.put("echo", 1, group="a b"),
            "status": lambda: self.client.status("a/b"),
            "empty account": lambda: spotworker.Client("", connection_string=CONNECTION),
            "empty name": lambda: spotworker.Client(connection_string=CONNECTION, name=""),
            "empty reason": lambda: self.client.cancel(own_id("empty"), ""),
            "both": lambda: spotworker.Client("account", connection_string=CONNECTION),
            "none": lambda: spotworker.Client(),
        }.items():
            with self.subTest(what), self.assertRaises(ValueError):
                call()


if __name__ == "__main__":
    unittest.main(verbosity=2)
