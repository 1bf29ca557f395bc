#!/usr/bin/env python3
"""Statistics of a web server's log: an interruptible job with a cursor.

The payload names a file of the data folder: {"file": "access.log"}. The log is
in the common log format; a line that is not is counted and passed over. The
result says how many requests and bytes there were for each status.

The state is a JSON file: the offset of the next line, and the counts up to
there. Whatever happens, the two belong together.
"""

import json
import os
import signal
import sys
import time

LOOK_EVERY = 1000  # lines between two looks at the clock and at the stop
SAVE_EVERY = 0.5  # seconds between two checkpoints
LATER = 75  # exit code: stopped, continue later

stopping = False


def on_term(_signal, _frame):
    global stopping
    stopping = True


def put(variable, value):
    """Puts a JSON file where the variable says, whole or not at all."""
    new = os.path.join(os.environ["TMPDIR"], variable)
    with open(new, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(new, os.environ[variable])


def tell(fraction, text):
    with open(os.environ["SPOTWORKER_PROGRESS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"fraction": fraction, "text": text}) + "\n")


def input_file():
    """Opens the file that the payload names: a name, not a path to anywhere."""
    with open(os.environ["SPOTWORKER_PAYLOAD"], encoding="utf-8") as file:
        name = json.load(file)["file"]
    if os.path.basename(name) != name or name.startswith("."):
        sys.exit(f"{name!r} is not the name of a file in the data folder")
    return open(os.path.join(os.environ["DATA"], name), "rb")


def restored():
    """Returns the state to continue from, or a fresh one."""
    name = os.environ.get("SPOTWORKER_RESTORE")
    if name is None:
        return {"offset": 0, "malformed": 0, "requests": {}, "bytes": {}}
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def count(line, state):
    """Adds one line to the counts."""
    fields = line.rsplit(None, 2)
    if len(fields) < 3 or not fields[1].isdigit():
        state["malformed"] += 1
        return
    status = fields[1].decode()
    size = int(fields[2]) if fields[2].isdigit() else 0  # "-" for none
    state["requests"][status] = state["requests"].get(status, 0) + 1
    state["bytes"][status] = state["bytes"].get(status, 0) + size


def main():
    signal.signal(signal.SIGTERM, on_term)
    pause = float(os.environ.get("PAUSE", "0"))  # to have time for an eviction
    state = restored()
    with input_file() as log:
        size = os.fstat(log.fileno()).st_size
        log.seek(state["offset"])
        saved = time.monotonic()
        for number, line in enumerate(log, 1):
            count(line, state)
            state["offset"] += len(line)
            if number % LOOK_EVERY:
                continue
            time.sleep(pause)
            if stopping or time.monotonic() - saved > SAVE_EVERY:
                put("SPOTWORKER_CHECKPOINT", state)
                tell(state["offset"] / size, f"{state['offset']} of {size} bytes")
                saved = time.monotonic()
            if stopping:
                sys.exit(LATER)
    del state["offset"]
    put("SPOTWORKER_RESULT", state)


main()
