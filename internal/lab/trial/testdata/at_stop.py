"""Saves when it is stopped, and never else."""
import os, signal, sys, time

n = 0
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
if "SPOTWORKER_RESTORE" in os.environ:
    n = int(open(os.environ["SPOTWORKER_RESTORE"]).read())
while n < 40:
    time.sleep(0.05)
    n += 1
    if stopping:
        new = os.path.join(os.environ["TMPDIR"], "n")
        open(new, "w").write(str(n))
        os.replace(new, os.environ["SPOTWORKER_CHECKPOINT"])
        sys.exit(75)
new = os.path.join(os.environ["TMPDIR"], "result")
open(new, "w").write(str(n))
os.replace(new, os.environ["SPOTWORKER_RESULT"])
