"""Puts jobs of spotworker from Python, waits for them and reads their results.

    from spotworker.client import Client

    client = Client(account="mystorageaccount")            # signs in like azure-identity
    id = client.put("render", {"frame": 7}, id="alps-7")   # your own id: one id has one outcome
    print(client.wait(id).json())

It needs azure-storage-blob and azure-storage-queue (pip install 'spotworker[client]'), and for
an account's name azure-identity. docs/FORMATS.md of the project describes what it reads and
writes; docs/jobs.md names the roles. A deployment with several queues is served.
"""

import base64
import concurrent.futures
import dataclasses
import datetime
import hashlib
import json
import re
import threading
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobClient, BlobServiceClient
from azure.storage.queue import QueueServiceClient

__all__ = [
    "Cancelled", "Client", "Failed", "Job", "NewerVersion", "NotFinished", "NotFound", "OtherWork", "Put", "Result", "Spec",
    "SpotworkerError",
]

MESSAGE_BYTES = 48 << 10  # of a message's JSON
SPARE_BYTES = 128  # of them, for fields that workers add
PAYLOAD_BYTES = 64 << 20
RECORD_VERSION = "1"
FINAL = ("done", "poison", "cancelled")
_ID = re.compile(r"(?!\.)[A-Za-z0-9._~-]{1,128}(?<!\.)\Z")
_KIND = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,64}(?<!\.)\Z")
_LAYOUT_AGE = 60.0  # seconds for which the number of queues is believed
_CANCEL_AGE = datetime.timedelta(minutes=10)  # for which the control document lists a cancel
_CANCELS = 1000  # that it lists at most


class SpotworkerError(Exception):
    """What this module raises itself. Errors of the storage service are those of azure.core."""


class NotFound(SpotworkerError):
    """There is no record of the job: it waits for its first worker, or does not exist."""


class NotFinished(SpotworkerError):
    """The job has no result yet."""


class Failed(SpotworkerError):
    """The job was given up. An operator may replay it (spotctl poison replay)."""


class Cancelled(SpotworkerError):
    """The job was cancelled."""


class OtherWork(SpotworkerError):
    """The id belongs to a job of another kind or with another payload."""


class NewerVersion(SpotworkerError):
    """The record was written by a version of spotworker that this module does not know."""


@dataclasses.dataclass
class Spec:
    """One job to put.

    The payload is bytes, or anything else as JSON. With an id of your own the job is put once,
    however often it is put: the id is 1 to 128 of A-Z a-z 0-9 . _ ~ - without a dot at either end.
    The deadline needs a time zone. estimate, max_run and max_silence are whole seconds; max_failures
    is how many failures in a row end the job, 1 for no second attempt; delay is how many seconds the
    job waits before its first run, 7 days at most. An urgent job comes before those that wait. inputs are the files that
    the job needs, as in docs/jobs.md.
    """

    kind: str
    payload: Any = None
    id: Optional[str] = None
    deadline: Optional[datetime.datetime] = None
    estimate: int = 0
    max_run: int = 0
    max_silence: int = 0
    max_failures: int = 0
    delay: int = 0
    urgent: bool = False
    inputs: Optional[List[Dict[str, str]]] = None


@dataclasses.dataclass
class Put:
    """What became of one job of put_many.

    status is the status of the record that the id had before: empty for a new job. A job that is
    done, poison or cancelled was not put again.
    """

    spec: Spec
    id: str
    status: str = ""
    error: Optional[Exception] = None


@dataclasses.dataclass
class Job:
    """What the record says about a job. Times are by the clocks of the workers."""

    id: str
    status: str  # open, running, done, poison or cancelled
    kind: str
    progress: float  # 0 to 1
    progress_text: str
    owner: str  # the worker, or the tool, that wrote last
    reason: str  # why the job failed last, or is poison or cancelled
    generation: int  # claims so far
    failures: int  # in a row without progress
    created_at: Optional[datetime.datetime]
    claimed_at: Optional[datetime.datetime]
    ended_at: Optional[datetime.datetime]

    @property
    def final(self) -> bool:
        """Whether the job is done, poison or cancelled."""
        return self.status in FINAL


class Result(bytes):
    """The result of a job, as its handler returned it."""

    def json(self) -> Any:
        """The result, which is JSON."""
        return json.loads(self)


class Client:
    """A deployment of spotworker. Its methods may be called from several threads.

    Give the account's name, and a credential unless azure-identity is to find one; or a connection
    string. prefix, queue and the endpoints are those of the worker's flags.
    """

    def __init__(
        self,
        account: Optional[str] = None,
        credential: Any = None,
        *,
        connection_string: Optional[str] = None,
        prefix: str = "spotworker",
        queue: Optional[str] = None,
        blob_endpoint: Optional[str] = None,
        queue_endpoint: Optional[str] = None,
        name: str = "python",
    ) -> None:
        _refuse_empty(account=account, credential=credential, connection_string=connection_string, prefix=prefix, queue=queue,
                      blob_endpoint=blob_endpoint, queue_endpoint=queue_endpoint, name=name)
        if (account is None) == (connection_string is None):
            raise ValueError("give account, or connection_string")
        if connection_string is not None:
            connection_string = re.sub(r"[\s\"']", "", connection_string)  # as files and secrets have them
            self._blobs = BlobServiceClient.from_connection_string(connection_string)
            self._queues = QueueServiceClient.from_connection_string(connection_string)
        else:
            if credential is None:
                from azure.identity import DefaultAzureCredential

                credential = DefaultAzureCredential()
            self._blobs = BlobServiceClient(blob_endpoint or f"https://{account}.blob.core.windows.net", credential)
            self._queues = QueueServiceClient(queue_endpoint or f"https://{account}.queue.core.windows.net", credential)
        self._prefix, self._queue, self._name = prefix, queue or prefix + "-jobs", name
        self._layout: Tuple[float, int] = (0.0, 0)  # when it was read, and the number of queues
        self._lock = threading.Lock()

    def put(self, kind: str, payload: Any = None, **spec: Any) -> str:
        """Puts a job and returns its id; see Spec. A job that has ended under its id is not put again."""
        made = Spec(kind, payload, **spec)
        id, _ = self._put(made)
        return id

    def command(self, argv: Sequence[str], environment: Optional[Dict[str, str]] = None, kind: str = "command",
                gpus: Optional[int] = None, **spec: Any) -> str:
        """Puts a job that runs a command, and returns its id; see Spec. No shell reads the arguments.

        Its worker runs with --commands. The standard output is the result.
        """
        if not argv or not argv[0] or isinstance(argv, str):
            raise ValueError(f"command {argv!r}: give a list of the program and its arguments")
        payload: Dict[str, Any] = {"argv": list(argv)}
        if environment:
            payload["environment"] = environment
        if gpus is not None:
            payload["gpus"] = gpus
        return self.put(kind, payload, **spec)

    def put_many(self, specs: Iterable[Spec], parallel: int = 16) -> Iterator[Put]:
        """Puts jobs, so many at once, and yields what became of each, in the order in which that is known.

        An error concerns one job. Whoever stops the iteration puts no more of them.
        """
        todo = iter(specs)
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            running = set()
            for spec in todo:
                running.add(pool.submit(self._try_put, spec))
                if len(running) >= 2 * parallel:
                    ended, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for one in ended:
                        yield one.result()
            for one in concurrent.futures.as_completed(running):
                yield one.result()

    def _try_put(self, spec: Spec) -> Put:
        try:
            return Put(spec, *self._put(spec))
        except Exception as error:  # of this job alone; the caller decides
            return Put(spec, spec.id or "", error=error)

    def _put(self, spec: Spec) -> Tuple[str, str]:
        envelope, payload = _envelope(spec)
        id = envelope["id"]
        queue = self._queues.get_queue_client(
            self._queue + "-first" if spec.urgent else _shard(self._queue, id, self._shards()))
        status = ""
        if spec.id is not None:
            status = self._existing(id, spec, payload)
            if status in FINAL:
                return id, status
            if status:
                envelope["resume"] = True
        text = _json(envelope)
        if len(text) > MESSAGE_BYTES - SPARE_BYTES and payload:
            digest = hashlib.sha256(payload).hexdigest()
            self._blob("payloads", _path(id) + "/" + digest).upload_blob(payload, overwrite=True)
            for field in ("payload", "payload_base64"):
                envelope.pop(field, None)
            envelope["payload_ref"] = {"sha256": digest, "size": len(payload)}
            text = _json(envelope)
        if len(text) > MESSAGE_BYTES - SPARE_BYTES:
            raise ValueError(f"job {id}: its fields have {len(text)} bytes of JSON without the payload; a message has room for "
                             f"{MESSAGE_BYTES - SPARE_BYTES}")
        queue.send_message(base64.b64encode(text).decode(), visibility_timeout=spec.delay, time_to_live=-1)
        return id, status

    def _existing(self, id: str, spec: Spec, payload: bytes) -> str:
        """The status of the record of an id, empty if there is none; an error if the job is another one."""
        try:
            properties = self._record(id).get_blob_properties()
        except ResourceNotFoundError:
            return ""
        record = _keys(properties.metadata, id)
        work = _work(payload, spec.inputs)
        if record.get("kind", spec.kind) != spec.kind or record.get("payloadhash", work) != work:
            raise OtherWork(f"job {id}: its record is of other work: kind {record.get('kind')}, {record.get('status')}")
        return record.get("status", "")

    def status(self, id: str) -> Job:
        """Reads the record of a job. NotFound means that no worker has taken it, or that there is no such job."""
        return _job(id, self._read(id)[0])

    def result(self, id: str) -> Result:
        """Reads the result of a job that is done. Otherwise it raises NotFinished, Failed, Cancelled or NotFound."""
        record, properties = self._read(id)
        status = record.get("status", "")
        reason = urllib.parse.unquote(record.get("reason", ""))
        if status == "poison":
            raise Failed(f"job {id} was given up: {reason}")
        if status == "cancelled":
            raise Cancelled(f"job {id} was cancelled: {reason}")
        if status != "done":
            raise NotFinished(f"job {id} is {status}")
        body = self._record(id).download_blob(etag=properties.etag, match_condition=MatchConditions.IfNotModified)
        return Result(body.readall())

    def wait(self, id: str, timeout: Optional[float] = None) -> Result:
        """Waits until the job has ended, and returns its result. It raises TimeoutError after timeout seconds,
        Failed or Cancelled. A job without a record is waited for too."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.5
        while True:
            try:
                return self.result(id)
            except (NotFound, NotFinished) as error:
                left = pause if end is None else min(pause, end - time.monotonic())
                if left <= 0:
                    raise TimeoutError(f"{error}; waited for {timeout} s") from None
            time.sleep(left)
            pause = min(pause * 1.5, 10.0)

    def cancel(self, id: str, reason: str = "cancelled from Python") -> str:
        """Cancels a job that waits or runs, and returns the status that it had: a job that has ended stays as it is.

        The job needs a record: NotFound means that no worker has taken it yet. Its worker stops it within 15 seconds,
        or at its next save.
        """
        _refuse_empty(reason=reason)

        def change(record: Dict[str, str], properties: Any) -> bool:
            if record.get("status") in FINAL:
                return False
            if record.get("status") == "running" and record.get("ledger", "") == record.get("generation"):
                since = (_now() - properties.last_modified) / datetime.timedelta(milliseconds=1)  # its owner is alive until now
                redone = int(record.get("redone", "0")) + max(0, min(int(record.get("nextwrite", "0")), int(since)))
                record["redone"] = str(redone)
            gone = ("nextwrite", "outputs", "outputfiles", "outputbytes")
            for key in [k for k in record if k.startswith(("state", "previous")) and k != "status" or k in gone]:
                del record[key]
            record.update(v="1", status="cancelled", reason=_text(reason, 1536), endedat=_time(_now(), milliseconds=True))
            return True

        was = self._edit(id, change)
        if was not in FINAL:
            self._announce(id)
        return was

    def _edit(self, id: str, change: Callable[[Dict[str, str], Any], bool]) -> str:
        """Writes a changed record, and returns the status that it had."""
        token, was = str(uuid.uuid4()), ""
        for attempt in range(1, 11):
            record, properties = self._read(id)
            if record.get("token") == token:
                return was  # a write took effect, and its reply was lost
            was = record.get("status", "")
            if not change(record, properties):
                return was
            record.update(token=token, write=str(attempt), owner=_text(self._name, 256))
            condition = {"etag": properties.etag, "match_condition": MatchConditions.IfNotModified}
            try:
                self._record(id).upload_blob(b"", overwrite=True, metadata=record, **condition)
                return was
            except (ResourceModifiedError, ResourceNotFoundError):
                continue  # its worker wrote in between
        raise SpotworkerError(f"job {id}: its record changes too often; try again")

    def _announce(self, id: str) -> None:
        """Has the workers look at the record of a job that was cancelled."""
        blob = self._blob("control", "control")
        for _ in range(10):
            condition: Dict[str, Any]
            try:
                found = blob.download_blob()
                document = json.loads(found.readall())
                condition = {"etag": found.properties.etag, "match_condition": MatchConditions.IfNotModified}
            except ResourceNotFoundError:
                document, condition = {"v": 1}, {}
            if not isinstance(document, dict) or document.get("v") != 1:
                raise NewerVersion("the control document is of a version that this module does not know; the job's worker stops it at its next save")
            now = _now()
            recent = [c for c in document.get("cancels", []) if c["id"] != id and _parse(c["at"]) > now - _CANCEL_AGE]
            document["cancels"] = recent + [{"id": id, "at": _time(now)}]
            if len(document["cancels"]) > _CANCELS:
                document["cancels"], document["check_all"] = document["cancels"][:_CANCELS], _time(now)
            document["check_before"] = max(document.get("check_before", ""), _time(now))
            document["revision"] = document.get("revision", 0) + 1
            try:
                blob.upload_blob(_json(document), overwrite=bool(condition), **condition)
                return
            except (ResourceModifiedError, ResourceExistsError):
                continue
        raise SpotworkerError(f"job {id} is cancelled, and its worker was not told; it stops the job at its next save")

    def _read(self, id: str) -> Tuple[Dict[str, str], Any]:
        if not _ID.match(id):
            raise ValueError(f"job id {id!r}: give 1 to 128 of A-Z a-z 0-9 . _ ~ - without a dot at either end")
        try:
            properties = self._record(id).get_blob_properties()
        except ResourceNotFoundError:
            raise NotFound(f"job {id}: there is no record; it waits for its first worker, or does not exist") from None
        return _keys(properties.metadata, id), properties

    def _record(self, id: str) -> BlobClient:
        return self._blob("jobs", _path(id))

    def _blob(self, container: str, name: str) -> BlobClient:
        return self._blobs.get_blob_client(f"{self._prefix}-{container}", name)

    def _shards(self) -> int:
        """The number of queues that jobs are put on."""
        with self._lock:
            read_at, shards = self._layout
            if shards and time.monotonic() - read_at < _LAYOUT_AGE:
                return shards
            properties = self._queues.get_queue_client(self._queue).get_queue_properties()
            metadata = {k.lower(): v for k, v in properties.metadata.items()}
            shards = int(metadata.get("shards", "1"))
            if not 1 <= shards <= 16:
                raise NewerVersion(f"queue {self._queue} has the metadata shards={shards}; this version knows 1 to 16")
            self._layout = (time.monotonic(), shards)
            return shards


def _refuse_empty(**given: Any) -> None:
    """Refuses a text that is given and empty: it often comes from a variable that is not set."""
    for name, value in given.items():
        if value == "":
            raise ValueError(f"{name} is empty: leave it out, or look where it comes from")


def _envelope(spec: Spec) -> Tuple[Dict[str, Any], bytes]:
    """The envelope of a job, and its payload as the handler gets it."""
    if not _KIND.match(spec.kind):
        raise ValueError(f"kind {spec.kind!r}: give 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
    id = str(uuid.uuid4()) if spec.id is None else spec.id
    if not _ID.match(id):
        raise ValueError(f"job id {id!r}: give 1 to 128 of A-Z a-z 0-9 . _ ~ - without a dot at either end")
    envelope: Dict[str, Any] = {"v": 1, "id": id, "kind": spec.kind}
    payload = b""
    if isinstance(spec.payload, (bytes, bytearray, memoryview)):
        payload = bytes(spec.payload)
        if payload:
            envelope["payload_base64"] = base64.b64encode(payload).decode()
    elif spec.payload is not None:
        payload = _json(spec.payload)
        envelope["payload"] = spec.payload
    if len(payload) > PAYLOAD_BYTES:
        raise ValueError(f"job {id}: its payload has {len(payload)} bytes; at most {PAYLOAD_BYTES} are possible")
    envelope["enqueued_at"] = _time(_now())
    if spec.id is not None:
        envelope["chosen_id"] = True
    if spec.deadline is not None:
        if spec.deadline.tzinfo is None:
            raise ValueError(f"job {id}: its deadline {spec.deadline} has no time zone")
        envelope["deadline"] = _time(spec.deadline)
    for field, unit, most in (("estimate", "seconds", 10**9), ("max_run", "seconds", 10**9), ("max_silence", "seconds", 10**9),
                              ("max_failures", "failures", 10**6)):
        number = getattr(spec, field)
        if not isinstance(number, int) or not 0 <= number <= most:
            raise ValueError(f"job {id}: {field} is {number!r}; give whole {unit} from 0 to {most}")
        if number:
            envelope[field] = number
    if spec.inputs:
        envelope["inputs"] = spec.inputs
    return envelope, payload


def _work(payload: bytes, inputs: Optional[List[Dict[str, str]]]) -> str:
    """The hash that tells whether two jobs have the same work."""
    digest = hashlib.sha256(payload).hexdigest()
    if not inputs:
        return digest
    return hashlib.sha256(digest.encode() + b"\n" + _json(inputs)).hexdigest()


def _path(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()[:3] + "/" + id


def _shard(queue: str, id: str, shards: int) -> str:
    number = int.from_bytes(hashlib.sha256(id.encode()).digest()[8:16], "big") % shards
    return queue if number == 0 else f"{queue}-{number}"


def _keys(metadata: Dict[str, str], id: str) -> Dict[str, str]:
    """The keys of a record of a version that this module knows."""
    record = {k.lower(): v for k, v in metadata.items()}
    if record.get("v") != RECORD_VERSION:
        raise NewerVersion(f"job {id}: its record has the version {record.get('v')}; this module knows {RECORD_VERSION}")
    return record


def _job(id: str, record: Dict[str, str]) -> Job:
    text = {k: urllib.parse.unquote(record.get(k, "")) for k in ("progresstext", "owner", "reason")}
    times = {k: _parse(record[k]) if k in record else None for k in ("createdat", "claimedat", "endedat")}
    return Job(id, record.get("status", ""), record.get("kind", ""), float(record.get("progress", "0")), text["progresstext"], text["owner"],
               text["reason"], int(record.get("generation", "0")), int(record.get("failures", "0")), times["createdat"], times["claimedat"],
               times["endedat"])


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _text(text: str, limit: int) -> str:
    """Free text as a record has it: percent-encoded, with an ellipsis where it is cut."""
    quoted = urllib.parse.quote(text, safe="")
    while len(quoted) > limit:
        text = text[:-2] + "…"
        quoted = urllib.parse.quote(text, safe="")
    return quoted


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _time(at: datetime.datetime, milliseconds: bool = False) -> str:
    utc = at.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds" if milliseconds else "seconds") + "Z"


def _parse(text: str) -> datetime.datetime:
    """A time of RFC 3339 in UTC, with any number of digits behind the second."""
    base, _, fraction = text.rstrip("Z").partition(".")
    at = datetime.datetime.strptime(base, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return at + datetime.timedelta(microseconds=int((fraction + "000000")[:6]))
