"""Starts a process that leaves the job's group, and does not wait for it."""
import os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
subprocess.Popen(["sleep", "120"], start_new_session=True)
n = 0
if "SPOTWORKER_RESTORE" in os.environ:
    n = int(open(os.environ["SPOTWORKER_RESTORE"]).read())
while n < 30:
    time.sleep(0.05)
    n += 1
    new = os.path.join(os.environ["TMPDIR"], "n")
    open(new, "w").write(str(n))
    os.replace(new, os.environ["SPOTWORKER_CHECKPOINT"])
result = os.path.join(os.environ["TMPDIR"], "result")
open(result, "w").write(str(n))
os.replace(result, os.environ["SPOTWORKER_RESULT"])
