"""Takes long to save when it is stopped."""
import os, signal, sys, time

n = 0
if "SPOTWORKER_RESTORE" in os.environ:
    n = int(open(os.environ["SPOTWORKER_RESTORE"]).read())


def save(*_):
    new = os.path.join(os.environ["TMPDIR"], "n")
    with open(new, "w") as file:
        file.write(str(n))
        file.flush()
        time.sleep(1.5)
    os.replace(new, os.environ["SPOTWORKER_CHECKPOINT"])
    sys.exit(75)


signal.signal(signal.SIGTERM, save)
while n < 40:
    time.sleep(0.05)
    n += 1
new = os.path.join(os.environ["TMPDIR"], "result")
open(new, "w").write(str(n))
os.replace(new, os.environ["SPOTWORKER_RESULT"])
