"""Keeps its state in /tmp, which another VM does not have."""
import json, os, signal, sys, time

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
place = "/tmp/spotworker-outside-" + os.environ["SPOTWORKER_JOB_ID"]
state = {"next": 0, "sum": 0}
if "SPOTWORKER_RESTORE" in os.environ:
    state["next"] = json.load(open(os.environ["SPOTWORKER_RESTORE"]))
    if os.path.exists(place):
        state["sum"] = json.load(open(place))
while state["next"] < 40:
    time.sleep(0.05)
    state = {"next": state["next"] + 1, "sum": state["sum"] + state["next"]}
    for name, value in ((place, state["sum"]), (os.path.join(os.environ["TMPDIR"], "new"), state["next"])):
        with open(name, "w") as file:
            json.dump(value, file)
    os.replace(os.path.join(os.environ["TMPDIR"], "new"), os.environ["SPOTWORKER_CHECKPOINT"])
    if stopping and state["next"] < 40:
        sys.exit(75)
new = os.path.join(os.environ["TMPDIR"], "result")
with open(new, "w") as file:
    json.dump(state["sum"], file)
os.replace(new, os.environ["SPOTWORKER_RESULT"])
