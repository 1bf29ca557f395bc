"""Keeps its state in its own folder, and would find it there."""
import json, os, time

state = {"next": 0}
if os.path.exists("state.json"):
    state = json.load(open("state.json"))
while state["next"] < 30:
    time.sleep(0.05)
    state["next"] += 1
    with open("state.new", "w") as file:
        json.dump(state, file)
    os.replace("state.new", "state.json")
os.replace("state.json", os.environ["SPOTWORKER_RESULT"])
