"""Adds up numbers, and is interruptible: saves after each, in whole files."""
import json, os, signal, sys, time

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))


def put(variable, value):
    new = os.path.join(os.environ["TMPDIR"], variable)
    with open(new, "w") as file:
        json.dump(value, file)
    os.replace(new, os.environ[variable])


state = {"next": 0, "sum": 0}
if "SPOTWORKER_RESTORE" in os.environ:
    with open(os.environ["SPOTWORKER_RESTORE"]) as file:
        state = json.load(file)
n = int(sys.argv[1])
while state["next"] < n:
    if stopping:
        sys.exit(75)
    time.sleep(0.05)
    state["sum"] += state["next"]
    state["next"] += 1
    put("SPOTWORKER_CHECKPOINT", state)
    with open(os.environ["SPOTWORKER_PROGRESS"], "a") as file:
        file.write(json.dumps({"fraction": state["next"] / n}) + "\n")
put("SPOTWORKER_RESULT", state["sum"])
