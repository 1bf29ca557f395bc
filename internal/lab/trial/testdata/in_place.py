"""Writes its result in place, line by line."""
import os, time

with open(os.environ["SPOTWORKER_RESULT"], "w", buffering=1) as file:
    for i in range(30):
        time.sleep(0.05)
        file.write(f"{i}\n")
