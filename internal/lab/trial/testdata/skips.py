"""Saves no checkpoint: it skips the outputs that are there."""
import os, signal, sys, time

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
for i in range(30):
    name = os.path.join(os.environ["SPOTWORKER_OUTPUT"], f"part-{i}")
    if os.path.exists(name):
        continue
    time.sleep(0.1)
    new = os.path.join(os.environ["TMPDIR"], "new")
    with open(new, "w") as file:
        file.write(f"part {i}\n")
    os.replace(new, name)
    if stopping:
        sys.exit(75)
