"""Appends to an output, and does the lines since its checkpoint twice."""
import os, signal, sys, time

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
n = int(open(os.environ["SPOTWORKER_RESTORE"]).read()) if "SPOTWORKER_RESTORE" in os.environ else 0
while n < 40:
    for i in range(n, n + 5):
        time.sleep(0.05)
        with open(os.path.join(os.environ["SPOTWORKER_OUTPUT"], "lines"), "a") as file:
            print(i, file=file)
        if stopping:
            sys.exit(75)
    n += 5
    new = os.path.join(os.environ["TMPDIR"], "new")
    with open(new, "w") as file:
        file.write(str(n))
    os.replace(new, os.environ["SPOTWORKER_CHECKPOINT"])
