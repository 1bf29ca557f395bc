"""Goes on writing to its checkpoint after the rename."""
import os, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
n = 0
if "SPOTWORKER_RESTORE" in os.environ:
    n = len(open(os.environ["SPOTWORKER_RESTORE"]).readlines())
log = open(os.path.join(os.environ["TMPDIR"], "log"), "w", buffering=1)
log.write("line\n" * n)
os.replace(log.name, os.environ["SPOTWORKER_CHECKPOINT"])
while n < 40:
    time.sleep(0.05)
    n += 1
    log.write("line\n")
new = os.path.join(os.environ["TMPDIR"], "result")
open(new, "w").write(str(n))
os.replace(new, os.environ["SPOTWORKER_RESULT"])
