#!/usr/bin/env python3
"""A training loop as in PyTorch, without the library: an interruptible job.

A small network learns to tell the inside of a ring from its outside, with shuffled
batches and Adam. The state has everything that the next step depends on: weights, the
optimizer's moments, and the random numbers. In PyTorch these are model.state_dict(),
optimizer.state_dict() and torch.get_rng_state(); see README.md.
"""

import math
import random

import spotworker

HIDDEN, BATCH, RATE, DECAY_1, DECAY_2 = 12, 16, 0.01, 0.9, 0.999


def make_data(count):
    """Points in a square, and whether each is in the ring."""
    source = random.Random(1)  # the same in every run, and not part of the state
    points = [(source.uniform(-1, 1), source.uniform(-1, 1)) for _ in range(count)]
    return [(x, y, 1.0 if 0.4 < math.hypot(x, y) < 0.8 else 0.0) for x, y in points]


class Network:
    """Two inputs, a hidden layer (tanh), one output (logistic). Parameters are in one
    list: for each hidden unit two weights and a bias, then the output's weights and bias."""

    def __init__(self, rng):
        self.parameters = [rng.gauss(0, 0.8) for _ in range(4 * HIDDEN + 1)]

    def forward(self, x, y):
        p = self.parameters
        hidden = [math.tanh(p[3 * h] * x + p[3 * h + 1] * y + p[3 * h + 2]) for h in range(HIDDEN)]
        out = sum(p[3 * HIDDEN + h] * hidden[h] for h in range(HIDDEN)) + p[-1]
        return hidden, 1 / (1 + math.exp(-max(-30, min(30, out))))

    def loss_and_gradient(self, batch):
        p, loss, gradient = self.parameters, 0.0, [0.0] * (4 * HIDDEN + 1)
        for x, y, label in batch:
            hidden, out = self.forward(x, y)
            loss -= math.log(max(1e-12, out if label else 1 - out))
            delta = (out - label) / len(batch)
            gradient[-1] += delta
            for h, value in enumerate(hidden):
                gradient[3 * HIDDEN + h] += delta * value
                inner = delta * p[3 * HIDDEN + h] * (1 - value * value)
                gradient[3 * h] += inner * x
                gradient[3 * h + 1] += inner * y
                gradient[3 * h + 2] += inner
        return loss / len(batch), gradient


class Adam:
    def __init__(self, size):
        self.step, self.first, self.second = 0, [0.0] * size, [0.0] * size

    def update(self, parameters, gradient):
        self.step += 1
        for i, g in enumerate(gradient):
            self.first[i] = DECAY_1 * self.first[i] + (1 - DECAY_1) * g
            self.second[i] = DECAY_2 * self.second[i] + (1 - DECAY_2) * g * g
            first = self.first[i] / (1 - DECAY_1**self.step)
            second = self.second[i] / (1 - DECAY_2**self.step)
            parameters[i] -= RATE * first / (math.sqrt(second) + 1e-8)


def main():
    job = spotworker.job(payload={"epochs": 40, "points": 400, "seed": 7})
    settings = job.payload
    data = make_data(settings["points"])
    rng = random.Random(settings["seed"])
    network = Network(rng)
    adam = Adam(len(network.parameters))
    losses = []

    saved = job.load()
    if saved is not None:
        network.parameters, losses = saved["parameters"], saved["losses"]
        adam.step, adam.first, adam.second = saved["adam"]
        version, numbers, gauss = saved["random"]
        rng.setstate((version, tuple(numbers), gauss))
    job.keep(lambda: {
        "parameters": network.parameters,
        "losses": losses[-1:],
        "adam": [adam.step, adam.first, adam.second],
        "random": rng.getstate(),
    })

    for _ in job.range(settings["epochs"]):
        order = list(range(len(data)))
        rng.shuffle(order)
        total = 0.0
        for at in range(0, len(order), BATCH):
            batch = [data[i] for i in order[at : at + BATCH]]
            loss, gradient = network.loss_and_gradient(batch)
            adam.update(network.parameters, gradient)
            total += loss * len(batch)
        losses.append(total / len(data))

    right = sum((network.forward(x, y)[1] > 0.5) == (label > 0.5) for x, y, label in data)
    job.result({"loss": losses[-1], "accuracy": right / len(data), "steps": adam.step})


main()
