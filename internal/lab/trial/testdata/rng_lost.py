"""Leaves the state of its random numbers out of its checkpoint, and writes a log."""
import json, os, random, signal, sys, time

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
random.seed(7)
state = {"next": 0, "sum": 0.0}
if "SPOTWORKER_RESTORE" in os.environ:
    state = json.load(open(os.environ["SPOTWORKER_RESTORE"]))
while state["next"] < 40:
    time.sleep(0.05)
    state = {"next": state["next"] + 1, "sum": state["sum"] + random.random()}
    with open("log", "a") as log:
        print(state["next"], file=log)
    new = os.path.join(os.environ["TMPDIR"], "new")
    with open(new, "w") as file:
        json.dump(state, file)
    os.replace(new, os.environ["SPOTWORKER_CHECKPOINT"])
    if stopping and state["next"] < 40:
        sys.exit(75)
new = os.path.join(os.environ["TMPDIR"], "result")
with open(new, "w") as file:
    json.dump(state["sum"], file)
os.replace(new, os.environ["SPOTWORKER_RESULT"])
