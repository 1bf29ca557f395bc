#!/usr/bin/env python3
"""Statistics of a web server's log: an interruptible job with a cursor.

The payload names a file of the data folder: {"file": "access.log"}. The log is
in the common log format; a line that is not is counted and passed over. The
result says how many requests and bytes there were for each status.

The state is the offset of the next line and the counts up to there. Whatever
happens, the two belong together.
"""

import os
import sys
import time

import spotworker

LOOK_EVERY = 1000  # lines between two looks at the clock and at the stop
SAVE_EVERY = 0.5  # seconds between two checkpoints


def input_file(name):
    """Opens the file that the payload names: a name, not a path to anywhere."""
    if os.path.basename(name) != name or name.startswith("."):
        sys.exit(f"{name!r} is not the name of a file in the data folder")
    return open(os.path.join(os.environ["DATA"], name), "rb")


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
    job = spotworker.job()
    pause = float(os.environ.get("PAUSE", "0"))  # to have time for an eviction
    state = job.load({"offset": 0, "malformed": 0, "requests": {}, "bytes": {}})
    with input_file(job.payload["file"]) as log:
        size = os.fstat(log.fileno()).st_size
        log.seek(state["offset"])
        saved = time.monotonic()
        for number, line in enumerate(log, 1):
            count(line, state)
            state["offset"] += len(line)
            if number % LOOK_EVERY:
                continue
            time.sleep(pause)
            if job.stopping:
                job.stop(state)
            if time.monotonic() - saved > SAVE_EVERY:
                job.save(state)
                job.progress(state["offset"] / size, f"{state['offset']} of {size} bytes")
                saved = time.monotonic()
    del state["offset"]
    job.result(state)


main()
