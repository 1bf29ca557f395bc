#!/usr/bin/env python3
"""A job that attacks its worker, its VM and other jobs. Its result is a list of
what succeeded. The payload names the metadata service: {"host": …, "port": …,
"path": …, "seconds": …}."""

import ctypes
import glob
import json
import os
import platform
import socket
import threading
import time

with open(os.environ["SPOTWORKER_PAYLOAD"], encoding="utf-8") as file:
    payload = json.load(file)
succeeded = set()


def attempt(name, attack):
    try:
        if attack() is not False:
            succeeded.add(name)
    except OSError:
        pass


def request(text):
    with socket.create_connection((payload["host"], payload["port"]), timeout=1) as s:
        s.sendall(text.encode())
        return bool(s.recv(64))


def ask():
    return request(f"GET {payload['path']}/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nConnection: close\r\n\r\n")


def approve():
    body = '{"StartRequests":[{"EventId":"x"}]}'
    return request(f"POST {payload['path']}/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n"
                   f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}")


def flood(until):
    while time.time() < until:
        attempt("asks the metadata service", ask)
        time.sleep(0.01)


parent = os.getppid()
for name in ("environ", "mem", "maps"):
    attempt(f"reads the worker's {name}", lambda: open(f"/proc/{parent}/{name}", "rb").read(1))
attempt("signals the worker", lambda: os.kill(parent, 0))
attempt("approves events", approve)

own = os.path.dirname(os.environ["SPOTWORKER_PAYLOAD"])
jobs = os.path.dirname(own)
attempt("lists the jobs", lambda: os.listdir(jobs))
attempt("lists the workers", lambda: os.listdir(os.path.dirname(jobs)))
attempt("writes beside the jobs", lambda: os.mkdir(os.path.join(jobs, "job-forged")))
if glob.glob(os.path.join(jobs, "job-*", "payload")):
    succeeded.add("finds other payloads")
attempt("reads the runtime folder", lambda: os.listdir("/run/spotworker"))
attempt("reads the configuration", lambda: open("/etc/spotworker/worker.env", encoding="utf-8").read())
attempt("reads the log", lambda: open("/var/log/spotworker/worker.log", encoding="utf-8").read(1))
attempt("becomes root", lambda: os.setuid(0))
attempt("becomes another user", lambda: os.setuid(60500))


def store_key():
    number = {"x86_64": 248, "aarch64": 217}[platform.machine()]  # add_key
    user_keyring = -4
    return ctypes.CDLL(None).syscall(number, b"user", b"stolen", b"secret", 6, user_keyring) >= 0


attempt("stores a key for the next job", store_key)
attempt("reads the machine's shared memory", lambda: open("/dev/shm/spotworker-attack", encoding="utf-8").read())
attempt("sees the machine's message queues", lambda: os.stat("/dev/mqueue/spotworker-attack"))
with open("/dev/shm/own", "w", encoding="utf-8") as file:
    file.write("programs have shared memory")
if os.getgroups() not in ([], [os.getgid()]):
    succeeded.add("has groups of the worker")

if payload["seconds"]:
    # The four threads that used up the VM's five requests a second.
    threads = [threading.Thread(target=flood, args=(time.time() + payload["seconds"],)) for _ in range(4)]
    with open(os.environ["SPOTWORKER_PROGRESS"], "a", encoding="utf-8") as file:
        file.write('{"fraction": 0.5, "text": "attacking"}\n')
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

new = os.environ["SPOTWORKER_RESULT"] + ".new"
with open(new, "w", encoding="utf-8") as file:
    json.dump(sorted(succeeded), file)
os.replace(new, os.environ["SPOTWORKER_RESULT"])
