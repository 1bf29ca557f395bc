"""Keeps every earlier state in its checkpoint."""
import json, os, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
history = []
if "SPOTWORKER_RESTORE" in os.environ:
    history = json.load(open(os.environ["SPOTWORKER_RESTORE"]))
while len(history) < 12:
    time.sleep(0.3)
    history.append("weights " * 1000)
    new = os.path.join(os.environ["TMPDIR"], "history")
    json.dump(history, open(new, "w"))
    os.replace(new, os.environ["SPOTWORKER_CHECKPOINT"])
new = os.path.join(os.environ["TMPDIR"], "result")
open(new, "w").write(str(len(history)))
os.replace(new, os.environ["SPOTWORKER_RESULT"])
