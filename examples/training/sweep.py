#!/usr/bin/env python3
"""A parameter sweep: an interruptible job with one iteration for each point of a grid.

The payload is a grid: {"rate": [...], "damping": [...]}. For each pair a simulation is
run, and the result is the best one and a table of all. What is saved is the table so far.
"""

import itertools
import math

import spotworker


def simulate(rate, damping, steps=720_000):
    """How far an oscillator that is pushed at a rate swings at most."""
    place, speed, most = 0.0, 0.0, 0.0
    for step in range(steps):
        push = math.sin(rate * step * 0.002)
        speed += (push - place - damping * speed) * 0.002
        place += speed * 0.002
        most = max(most, abs(place))
    return most


def main():
    job = spotworker.job(payload={"rate": [0.5, 0.8, 1.0, 1.2, 1.5], "damping": [0.05, 0.1, 0.2, 0.4]})
    grid = list(itertools.product(job.payload["rate"], job.payload["damping"]))
    table = job.load([])
    for i in job.range(len(grid)):
        rate, damping = grid[i]
        table.append({"rate": rate, "damping": damping, "swing": round(simulate(rate, damping), 9)})
    job.result({"best": max(table, key=lambda row: row["swing"]), "table": table})


main()
