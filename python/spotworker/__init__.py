"""Makes a Python program interruptible, as a job of spotworker and on a laptop.

    import spotworker

    job = spotworker.job()
    state = job.load({"sum": 0})
    for i in job.range(job.payload["n"]):
        state["sum"] += i
    job.result(state["sum"])

One file without dependencies, for Python 3.8 and later: copy it beside your program.
A worker runs the program with variables and files that docs/jobs.md describes; this
module reads and writes them. Without a worker the state is in a folder, so that the same
program can be stopped with Ctrl-C and started again.
"""

import contextlib
import hashlib
import json
import math
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple, Union

__version__ = "0.1.0"
__all__ = ["Job", "job"]

LATER = 75  # exit code: stopped, continue later
FORMAT = 1  # of the first line of a checkpoint

_UNSET = object()


class Job:
    """One run of a job. Make it with job()."""

    def __init__(self, payload: Any, every: float, format: str, folder: Path) -> None:
        if format not in ("json", "pickle", "bytes"):
            raise ValueError(f"format {format!r} is not known: give json, pickle or bytes")
        self._env = {k[len("SPOTWORKER_"):]: v for k, v in os.environ.items() if k.startswith("SPOTWORKER_")}
        self.on_worker = "CHECKPOINT" in self._env  # or started by a person
        self._every, self._format = every, format
        self._local = folder
        self._state: Any = _UNSET
        self._ranges = 0  # that were begun in this run
        self._in_range = False
        self._due = False  # a save was asked for inside of a range
        self._signalled = False
        self._looked = 0.0
        self._saved = time.monotonic()
        self._default_payload = payload
        if not self.on_worker:
            folder.mkdir(parents=True, exist_ok=True)
        self._header, self._body = self._restore()
        # The place of the work: so many ranges are over, and so many numbers of the next.
        self._range, self._next = self._header.get("range", 0), self._header.get("next", 0)
        self._catch()

    # What the job is about.

    @property
    def id(self) -> str:
        """The job's id: the same in every run, so that it can be an idempotency key."""
        return self._env.get("JOB_ID", "local")

    @property
    def payload_bytes(self) -> bytes:
        """The payload as it was put."""
        if self.on_worker:
            return Path(self._env["PAYLOAD"]).read_bytes()
        if isinstance(self._default_payload, bytes):
            return self._default_payload
        return b"" if self._default_payload is None else _to_json(self._default_payload, "payload")

    @property
    def payload(self) -> Any:
        """The payload, decoded from JSON."""
        raw = self.payload_bytes
        if not raw:
            return None
        try:
            return json.loads(raw)
        except ValueError as error:
            raise ValueError(f"the payload is not JSON ({error}); read payload_bytes") from error

    @property
    def inputs(self) -> Path:
        """The folder with the job's inputs."""
        return self._folder("INPUTS", "the job names no inputs")

    @property
    def output(self) -> Path:
        """The folder whose files become the job's outputs when it is done."""
        return self._folder("OUTPUT", 'its kind has no outputs: set "outputs": true in the kinds file')

    def _folder(self, name: str, missing: str) -> Path:
        if self.on_worker:
            if name not in self._env:
                raise RuntimeError(f"there is no SPOTWORKER_{name}: {missing}")
            return Path(self._env[name])
        path = self._local / name.lower()
        path.mkdir(exist_ok=True)
        return path

    # The state.

    def load(self, default: Any = None) -> Any:
        """Returns the state that was saved last, or the default. It is kept: range() saves
        it, as it is then, so change it in place, or hand another one to keep()."""
        if self._body is not None:
            if self._header.get("format") == "pickle" != self._format:  # a pickle runs code when it is read
                raise ValueError('the checkpoint is a pickle: make the job with format="pickle"')
            try:
                self._state = self._decode(self._body)
            except Exception as error:  # a pickle may raise any
                raise ValueError(f"the checkpoint cannot be used: {type(error).__name__}: {error}") from error
            self._body = None
        elif self._state is _UNSET:
            self._state = default
        return self._state

    def keep(self, state: Any) -> None:
        """Sets the object that range() saves. A function is called at each save."""
        self._state, self._body = state, None

    def save(self, state: Any = _UNSET) -> None:
        """Saves the state, whole or not at all. Inside of a range() it is saved when the
        iteration has ended, since only then is the state that of a whole one."""
        if state is not _UNSET:
            self.keep(state)
        if self._in_range:
            self._due = True
            return
        self._write()

    def _write(self) -> None:
        header: Dict[str, Any] = {"spotworker": FORMAT, "format": self._format, "range": self._range, "next": self._next}
        if not self.on_worker:
            header["payload"] = self._payload_hash()
        if self._body is not None:
            body = self._body  # the state of an earlier run, which was not loaded
        else:
            state = None if self._state is _UNSET else self._state
            body = self._encode(state() if callable(state) else state)
        self._put(self._place("CHECKPOINT"), json.dumps(header).encode() + b"\n" + body)
        self._saved, self._due = time.monotonic(), False

    def _encode(self, state: Any) -> bytes:
        if self._format == "bytes":
            if state is None:
                return b""
            if not isinstance(state, (bytes, bytearray, memoryview)):
                raise TypeError(f"the state is of type {type(state).__name__}, not bytes")
            return bytes(state)
        if self._format == "pickle":
            return pickle.dumps(state)
        return _to_json(state, "state", allow_nan=True)  # nothing but this module reads it

    def _decode(self, body: bytes) -> Any:
        kind = self._header.get("format", "json")
        if kind == "bytes":
            return body
        if kind == "pickle":
            return pickle.loads(body)
        return json.loads(body)

    def _restore(self) -> Tuple[Dict[str, Any], Optional[bytes]]:
        name = self._env.get("RESTORE") if self.on_worker else str(self._place("CHECKPOINT"))
        if name is None or not os.path.exists(name):
            return {}, None
        head, _, body = Path(name).read_bytes().partition(b"\n")
        try:
            header = json.loads(head)
            version = header["spotworker"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{name} is no checkpoint of spotworker.py: {error}") from error
        if version > FORMAT:
            raise ValueError(f"the checkpoint has format {version}; this spotworker.py ({__version__}) knows {FORMAT}")
        if not self.on_worker and header.get("payload") != self._payload_hash():
            print("spotworker: the payload has changed; starting from the beginning", file=sys.stderr)
            return {}, None
        return header, body

    def _payload_hash(self) -> str:
        return hashlib.sha256(self.payload_bytes).hexdigest()

    # The work.

    def range(self, *bounds: int) -> Iterator[int]:
        """Like the built-in range, but it begins where the last run was stopped. After an
        iteration it saves the state if that is due, and reports the progress; when the job
        is stopped it saves and exits. One range may follow another; put the position of an
        inner loop into the state."""
        numbers = range(*bounds)
        if self._in_range:
            raise RuntimeError("a range is running already: put the position of the inner one into the state")
        if self._state is _UNSET:
            self.load()
        if self._ranges < self._range:
            self._ranges += 1
            return  # an earlier run has done it
        first = min(self._next, len(numbers))
        self._in_range = True
        if first > 0:
            self._report(len(numbers))
        try:
            for position in range(first, len(numbers)):
                self._next = position
                if self.stopping:
                    self._report(len(numbers))
                    self._write()
                    sys.exit(LATER)
                yield numbers[position]
                self._next = position + 1
                if self._due or time.monotonic() - self._saved >= self._every:
                    self._report(len(numbers))
                    self._write()
            self._report(len(numbers))
        finally:
            self._in_range = False
        self._ranges = self._range = self._range + 1
        self._next = 0

    @property
    def stopping(self) -> bool:
        """Whether the job has to stop: save and leave, as stop() does."""
        if not self._signalled and "STOP" in self._env:
            now = time.monotonic()
            if now - self._looked >= 0.02:
                self._looked, self._signalled = now, os.path.exists(self._env["STOP"])
        return self._signalled

    def stop(self, state: Any = _UNSET) -> None:
        """Saves the state and exits, to be continued later. Do not call it in a range."""
        if self._in_range:
            raise RuntimeError("range() stops when the iteration has ended")
        self.save(state)
        sys.exit(LATER)

    def _report(self, count: int) -> None:
        if count > 0:
            self.progress(self._next / count, f"{self._next} of {count}")

    def progress(self, fraction: float, text: str = "") -> None:
        """Reports how much is done, from 0 to 1."""
        if not math.isfinite(fraction):
            fraction = 0.0
        fraction = max(0.0, min(1.0, fraction))
        if not self.on_worker:
            print(f"spotworker: {100 * fraction:5.1f} % {text}", file=sys.stderr)
            return
        line = json.dumps({"fraction": round(fraction, 6), "text": text[:500]}) + "\n"
        with open(self._env["PROGRESS"], "a", encoding="utf-8") as file:
            file.write(line)

    def result(self, value: Any) -> None:
        """Sets the job's result: bytes as they are, anything else as JSON; at most 1 MiB. JSON
        has no NaN and no infinite numbers: they become null, with a warning on standard error.
        The job is done when the program exits with 0 after that."""
        if isinstance(value, (bytes, bytearray)):
            data = bytes(value)
        else:
            finite, found = _finite(value)
            if found:
                print("spotworker: NaN and infinite numbers are null in the result, since JSON has none", file=sys.stderr)
            data = _to_json(finite, "result")
        if len(data) > 1 << 20:
            raise ValueError(f"the result has {len(data)} bytes, of 1048576 allowed: put it into the output")
        self._put(self._place("RESULT"), data)
        if not self.on_worker:
            with contextlib.suppress(FileNotFoundError):
                self._place("CHECKPOINT").unlink()  # the next run is another job
            print(f"spotworker: the result is in {self._place('RESULT')}", file=sys.stderr)

    # Files and signals.

    def _place(self, name: str) -> Path:
        return Path(self._env[name]) if self.on_worker else self._local / name.lower()

    def _put(self, place: Path, data: bytes) -> None:
        """Puts a file in its place, whole or not at all."""
        folder = Path(os.environ["TMPDIR"]) if self.on_worker else self._local
        new = folder / f"spotworker-{place.name}.new"
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for attempt in range(50):
            try:
                os.replace(new, place)
                return
            except PermissionError:  # on Windows, while the worker or a scanner has it open
                if os.name != "nt" or attempt == 49:
                    raise
                time.sleep(0.02)

    def _catch(self) -> None:
        """Has SIGTERM, and what there is in its place, only set a flag."""
        if threading.current_thread() is not threading.main_thread():
            return  # the stop file tells as well
        names = ["SIGTERM", "SIGBREAK"] if self.on_worker else ["SIGTERM", "SIGBREAK", "SIGINT"]
        for name in names:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._signal)

    def _signal(self, number: int, _frame: Any) -> None:
        if self._signalled and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C
        self._signalled = True


def _finite(value: Any) -> Tuple[Any, bool]:
    """Returns a value with None for NaN and infinite numbers, and whether it has any."""
    if isinstance(value, float):
        return (value, False) if math.isfinite(value) else (None, True)
    if isinstance(value, dict):
        pairs = {key: _finite(part) for key, part in value.items()}
        return {key: part for key, (part, _) in pairs.items()}, any(found for _, found in pairs.values())
    if isinstance(value, (list, tuple)):
        parts = [_finite(part) for part in value]
        return [part for part, _ in parts], any(found for _, found in parts)
    return value, False


def _to_json(value: Any, what: str, allow_nan: bool = False) -> bytes:
    try:
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan).encode()
        except UnicodeEncodeError:  # half a character, as in a file name that is no UTF-8
            return json.dumps(value, allow_nan=allow_nan).encode()
    except TypeError as error:
        raise TypeError(f"the {what} cannot be written as JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"the {what} cannot be written as JSON, which has no NaN and no infinite numbers: {error}; give None or a text instead") from error


def job(payload: Any = None, every: float = 1.0, format: str = "json", folder: Union[str, Path, None] = None) -> Job:
    """Returns the job that this program works on.

    payload is that of a run without a worker. every is the time in seconds between two
    checkpoints of range(). format is how the state is written: json, pickle or bytes.
    folder has the state of a run without a worker; by default it is beside the program.
    """
    if folder is None:
        program = Path(sys.argv[0] or "program")
        folder = program.parent / f".{program.stem}.spotworker"
    return Job(payload, every, format, Path(folder))
