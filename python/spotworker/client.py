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
import contextlib
import dataclasses
import datetime
import hashlib
import io
import json
import os
import re
import threading
import time
import urllib.parse
import uuid
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobClient, BlobServiceClient
from azure.storage.queue import QueueServiceClient

__all__ = [
    "Cancelled", "Client", "Failed", "Job", "LogLine", "NewerVersion", "NotFinished", "NotFound", "OtherGroup", "OtherWork", "Output",
    "Put", "Result", "Spec", "SpotworkerError",
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
_CONTAINERS = ("jobs", "payloads", "workers", "control", "outputs")
_FEW = 32  # jobs whose records are read one by one
_INPUTS_BYTES = 24 << 10
_SOURCES = {"o": "stdout", "e": "stderr", "D": "debug", "I": "info", "W": "warn", "E": "error"}
_OF_A_RUN = frozenset(  # keys of a record that end with a run of the job, but for those that begin with state
    "messageid failures failurestotal breaks peak failedby silentends earlyends charge interruptions paid nextwrite deadline estimate "
    "movereason progressed layoutat layoutsize progress progresstext outputs outputfiles outputbytes claimedat endedat reason inputs "
    "inputlist followups".split())


class SpotworkerError(Exception):
    """What this module raises itself. Errors of the storage service are those of azure.core."""


class NotFound(SpotworkerError):
    """There is no record of the job: it waits for its first worker, or does not exist."""


class NotFinished(SpotworkerError):
    """The job has not ended: it has no result yet, and cannot be put again."""


class Failed(SpotworkerError):
    """The job was dead-lettered. An operator may replay it (spotctl poison replay)."""


class Cancelled(SpotworkerError):
    """The job was cancelled."""


class OtherWork(SpotworkerError):
    """The id belongs to a job of another kind or with another payload."""


class OtherGroup(SpotworkerError):
    """The job was put in another group before, or in none."""


class NewerVersion(SpotworkerError):
    """The record was written by a version of spotworker that this module does not know."""


@dataclasses.dataclass
class Spec:
    """One job to put.

    The payload is bytes, or anything else as JSON. With an id of your own the job is put once,
    however often it is put: the id is 1 to 128 of A-Z a-z 0-9 . _ ~ - without a dot at either end.
    The deadline needs a time zone. estimate, max_run and max_silence are whole seconds; max_failures
    is how many failures in a row end the job, 1 for no second attempt; delay is how many seconds the
    job waits before its first run, 7 days at most. An urgent job comes before those that wait.
    inputs are the files that the job needs, as in docs/jobs.md. With again a job that has ended under
    the id runs once more, from scratch, also with another payload; one that waits or runs raises
    NotFinished. group puts the job into a group, which list selects: its record is then created with
    it.
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
    again: bool = False
    group: Optional[str] = None


@dataclasses.dataclass
class Put:
    """The outcome of one put of put_many.

    status is the status of the record that the id had before: empty for a new job. A job that is
    done, poison or cancelled was not put, unless its spec says again.
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
    group: str  # empty for none
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


@dataclasses.dataclass
class LogLine:
    """A line that a job printed or logged."""

    delivery: int  # of the job, from 1
    number: int  # of the line in its delivery, from 1
    at: datetime.datetime  # by the worker's clock
    source: str  # stdout, stderr, or a level
    text: str


@dataclasses.dataclass
class Output:
    """A file that a job has stored."""

    path: str
    size: int
    sha256: str
    blob: str  # its name in the container of outputs
    etag: str


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

    def create(self) -> None:
        """Creates the queues and containers of the deployment that do not exist."""
        for queue in (self._queue, self._queue + "-ondemand", self._queue + "-poison"):
            with contextlib.suppress(ResourceExistsError):
                self._queues.create_queue(queue)
        for container in _CONTAINERS:
            with contextlib.suppress(ResourceExistsError):
                self._blobs.create_container(f"{self._prefix}-{container}")

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
        status, again = "", 0
        if spec.id is not None:
            if spec.again:
                status, again = self._open_again(id, spec, payload)
            elif spec.group is None:
                status, again = self._existing(id, spec, payload)
        if spec.group is not None and not status:
            status, again = self._enlist(id, spec, payload)
        if status in FINAL and not spec.again:
            return id, status
        if status or spec.group is not None:
            envelope["resume"] = True
        if again:
            envelope["again"] = again
        text = _json(envelope)
        if len(text) > MESSAGE_BYTES - SPARE_BYTES and payload:
            digest = hashlib.sha256(payload).hexdigest()
            self._blob("payloads", _path(id) + "/" + digest + (f"-{again}" if again else "")).upload_blob(payload, overwrite=True)
            for field in ("payload", "payload_base64"):
                envelope.pop(field, None)
            envelope["payload_ref"] = {"sha256": digest, "size": len(payload)}
            text = _json(envelope)
        if len(text) > MESSAGE_BYTES - SPARE_BYTES:
            raise ValueError(f"job {id}: its fields have {len(text)} bytes of JSON without the payload; a message has room for "
                             f"{MESSAGE_BYTES - SPARE_BYTES}")
        queue.send_message(base64.b64encode(text).decode(), visibility_timeout=spec.delay, time_to_live=-1)
        return id, status

    def _existing(self, id: str, spec: Spec, payload: bytes) -> Tuple[str, int]:
        """The status of the record of an id, empty if there is none, and its key again; an error if the job is another one."""
        try:
            record, _ = self._read(id)
        except NotFound:
            return "", 0
        if not _is_of(record, spec, payload):
            raise OtherWork(f"job {id}: its record is of other work: kind {record.get('kind')}, {record.get('status')}")
        return record.get("status", ""), int(record.get("again", "0"))

    def _enlist(self, id: str, spec: Spec, payload: bytes) -> Tuple[str, int]:
        """Creates the record of a job of a group; the status of the record that there was, and its key again."""
        record = {"v": RECORD_VERSION, "status": "open", "kind": spec.kind, "payloadhash": _work(payload, spec.inputs), "group": spec.group or "",
                  "createdat": _time(_now(), milliseconds=True), "token": str(uuid.uuid4()), "write": "1", "owner": _text(self._name, 256)}
        _add_terms(record, spec)
        try:
            self._record(id).upload_blob(b"", metadata=record)
            return "", 0
        except ResourceExistsError:
            found, _ = self._read(id)
        if found.get("token") == record["token"]:
            return "", 0  # it took effect, and its reply was lost
        if not _is_of(found, spec, payload):
            raise OtherWork(f"job {id}: its record is of other work: kind {found.get('kind')}, {found.get('status')}")
        _check_group(id, found, spec)
        return found.get("status", ""), int(found.get("again", "0"))

    def _open_again(self, id: str, spec: Spec, payload: bytes) -> Tuple[str, int]:
        """Opens the record of a job that has ended, for a new run; the status that it had, and its key again."""
        again = 0

        def change(record: Dict[str, str], _properties: Any) -> bool:
            nonlocal again
            again, generation = int(record.get("again", "0")), int(record.get("generation", "0"))
            status = record.get("status", "")
            if status == "open" and 0 < again == generation and _is_of(record, spec, payload):
                return False  # a put that was cut short
            if status not in FINAL:
                raise NotFinished(f"job {id} is {status}: it runs again once it has ended")
            if spec.group is not None:
                _check_group(id, record, spec)
            runs = [entry for entry in record.get("runs", "").split(";") if entry]
            name = urllib.parse.quote_plus(self._name)[:48].partition("%")[0]
            if status == "done" and (not runs or not runs[-1].startswith(f"{generation},")):
                begin, end = (_parse(record[key]).timestamp() * 1000 for key in ("claimedat", "endedat"))
                worker = urllib.parse.quote_plus(urllib.parse.unquote(record.get("owner", "")))[:48]
                runs.append(f"{generation},{begin:.0f},{max(1, end - begin):.0f},0,0,0,done,{worker}")
            again = generation + 1
            runs.append(f"{again},{_now().timestamp() * 1000:.0f},1,0,0,0,again,{name}")
            for key in [k for k in record if k in _OF_A_RUN or k.startswith("state") and k != "status"]:
                del record[key]
            record.update(status="open", kind=spec.kind, payloadhash=_work(payload, spec.inputs), generation=str(again), again=str(again),
                          runs=";".join(runs[-8:]))
            _add_terms(record, spec)
            return True

        try:
            return self._edit(id, change), again
        except NotFound:
            return "", 0

    def status(self, id: str) -> Job:
        """Reads the record of a job. NotFound means that no worker has taken it, or that there is no such job."""
        return _job(id, self._read(id)[0])

    def result(self, id: str) -> Result:
        """Reads the result of a job that is done. Otherwise it raises NotFinished, Failed, Cancelled or NotFound."""
        record, properties = self._read(id)
        status = record.get("status", "")
        reason = urllib.parse.unquote(record.get("reason", ""))
        if status == "poison":
            raise Failed(f"job {id} was dead-lettered: {reason}")
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

    def wait_many(self, ids: Iterable[str], timeout: Optional[float] = None) -> Iterator[Tuple[str, Union[Result, SpotworkerError]]]:
        """Waits until jobs have ended, and yields each with its result, or with why it has none, in the order in which that is
        known. It raises TimeoutError after timeout seconds. Of many jobs it lists the records, with one call for 5,000."""
        end = None if timeout is None else time.monotonic() + timeout
        pending, pause = dict.fromkeys(ids), 0.5
        while pending:
            ended = list(pending)
            if len(pending) > _FEW:
                ended = [job.id for job in self.list() if job.final and job.id in pending]
            for id in ended:
                try:
                    outcome: Union[Result, SpotworkerError] = self.result(id)
                except (NotFound, NotFinished):
                    continue
                except SpotworkerError as error:
                    outcome = error
                del pending[id]
                yield id, outcome
            left = pause if end is None else min(pause, end - time.monotonic())
            if pending and left <= 0:
                raise TimeoutError(f"{len(pending)} jobs have not ended, such as {next(iter(pending))}; waited for {timeout} s")
            if pending:
                time.sleep(left)
            pause = min(pause * 1.5, 10.0)

    def list(self, prefix: str = "", *, kind: Optional[str] = None, group: Optional[str] = None, status: Optional[str] = None) -> Iterator[Job]:
        """Yields the jobs that have a record, in no order: one call for each 5,000 records of the deployment. A job that no worker
        has taken yet has one only in a group. Records that this version cannot read are left out."""
        for blob in self._blobs.get_container_client(f"{self._prefix}-jobs").list_blobs(include=["metadata"]):
            _, _, id = blob.name.partition("/")
            record = {k.lower(): v for k, v in (blob.metadata or {}).items()}
            if blob.name != _path(id) or record.get("v") != RECORD_VERSION or not id.startswith(prefix):
                continue
            if all(wanted in (None, record.get(key, "")) for key, wanted in (("kind", kind), ("group", group), ("status", status))):
                yield _job(id, record)

    def logs(self, id: str) -> List[LogLine]:
        """The kept lines of a job's log, by delivery and number. Lines that are left out are missing in the numbers."""
        record, _ = self._read(id)
        lines: Dict[Tuple[int, int], LogLine] = {}
        created = record.get("createdat", "").replace("-", "").replace(":", "")
        container = self._blobs.get_container_client(f"{self._prefix}-payloads")
        for blob in container.list_blobs(name_starts_with=f"logs/{_path(id)},{created},"):
            with contextlib.suppress(ResourceNotFoundError):
                _read_log(container.download_blob(blob.name).readall(), lines)
        _read_log(urllib.parse.unquote_to_bytes(record.get("log", "").replace("+", " ")), lines)
        return [lines[key] for key in sorted(lines)]

    def outputs(self, id: str) -> List[Output]:
        """The outputs of a job that is done, or of the last checkpoint of another job."""
        record, _ = self._read(id)
        digest = record.get("outputs")
        if digest is None:
            return []
        content = self._blob("outputs", f"{_path(id)}/manifest-{digest}.json").download_blob().readall()
        manifest = json.loads(content)
        if hashlib.sha256(content).hexdigest() != digest or manifest.get("v") != 1:
            raise NewerVersion(f"job {id}: the list of its outputs is damaged, or of a version that this module does not know")
        return [Output(f["path"], f["size"], f["sha256"], f"{_path(id)}/{f['folder']}/{f['path']}", f["etag"]) for f in manifest["files"]]

    def download(self, id: str, folder: Union[str, Path]) -> List[Output]:
        """Downloads the outputs of a job into a folder, each whole or not at all, and returns them."""
        outputs = self.outputs(id)
        for output in outputs:
            place = Path(folder, *output.path.split("/"))
            if ".." in output.path.split("/") or os.path.isabs(output.path):
                raise SpotworkerError(f"job {id}: the output {output.path!r} has a path outside of the folder")
            place.parent.mkdir(parents=True, exist_ok=True)
            new, digest = place.with_name(place.name + ".part"), hashlib.sha256()
            content = self._blob("outputs", output.blob).download_blob(etag=output.etag, match_condition=MatchConditions.IfNotModified)
            with open(new, "wb") as file:
                for chunk in content.chunks():
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != output.sha256:
                new.unlink()
                raise SpotworkerError(f"job {id}: the output {output.path} has another content than its list says")
            os.replace(new, place)
        return outputs

    def upload(self, source: Union[str, Path, bytes], container: str, name: Optional[str] = None) -> List[Dict[str, str]]:
        """Uploads a file, a folder or bytes, which need a name, and returns the inputs of a job that needs them. The container is
        created if it does not exist. A blob that has the same bytes counts as uploaded; another one raises FileExistsError."""
        if container in [f"{self._prefix}-{own}" for own in _CONTAINERS]:
            raise ValueError(f"container {container} is one of the deployment's own: inputs cannot come from there")
        with contextlib.suppress(ResourceExistsError):
            self._blobs.create_container(container)
        if isinstance(source, bytes):
            _refuse_empty(name=name or "")
            return [{"container": container, "blob": str(name), "etag": self._upload(source, container, str(name))}]
        path = Path(source)
        name = name or path.resolve().name
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file())
            if not files:
                raise ValueError(f"folder {path} has no file")
            for file in files:
                self._upload(file, container, f"{name}/{file.relative_to(path).as_posix()}")
            return [{"container": container, "prefix": name + "/"}]
        return [{"container": container, "blob": name, "etag": self._upload(path, container, name)}]

    def _upload(self, source: Union[Path, bytes], container: str, name: str) -> str:
        """Uploads one blob and returns its ETag."""
        blob = self._blobs.get_blob_client(container, name)
        with (io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")) as content:
            try:
                return str(blob.upload_blob(content)["etag"])
            except ResourceExistsError:
                content.seek(0)
                there = blob.download_blob()
                for chunk in there.chunks():
                    if content.read(len(chunk)) != chunk:
                        raise FileExistsError(f"container {container} has a blob {name} with another content") from None
                if content.read(1):
                    raise FileExistsError(f"container {container} has a blob {name} with another content") from None
                return str(there.properties.etag)

    def cancel(self, id: str, reason: str = "cancelled from Python") -> str:
        """Cancels a job that waits or runs, and returns the status that it had: a job that has ended stays as it is.

        The job needs a record: NotFound means that no worker has taken it yet. Its worker stops it within 15 seconds,
        or at its next save.
        """
        _refuse_empty(reason=reason)

        def change(record: Dict[str, str], properties: Any) -> bool:
            if record.get("status") in FINAL:
                return False
            if record.get("status") == "running":
                since = (_now() - properties.last_modified) / datetime.timedelta(milliseconds=1)  # its owner is alive until now
                redone = int(record.get("redone", "0")) + max(0, min(int(record.get("nextwrite", "0")), int(since)))
                record["redone"] = str(redone)
            gone = ("nextwrite", "outputs", "outputfiles", "outputbytes", "layoutat", "layoutsize")
            for key in [k for k in record if k.startswith("state") and k != "status" or k in gone]:
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
    if spec.again and spec.id is None:
        raise ValueError("again runs the job of an id again: give its id")
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
        _check_inputs(spec.inputs)
        envelope["inputs"] = spec.inputs
    if spec.group is not None:
        if not _KIND.match(spec.group):
            raise ValueError(f"group {spec.group!r}: give 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
        envelope["group"] = spec.group
    return envelope, payload


def _check_inputs(inputs: List[Dict[str, str]]) -> None:
    """Refuses inputs that a worker would refuse."""
    known = ("account", "container", "blob", "prefix", "manifest", "etag", "to")
    for number, one in enumerate(inputs, 1):
        if not isinstance(one, dict) or not all(isinstance(text, str) for text in one.values()):
            raise ValueError(f"input {number} is {one!r}; give an object of texts")
        unknown = [field for field in one if field not in known]
        if unknown:
            raise ValueError(f"input {number} has the unknown field {unknown[0]!r}; known are {', '.join(known)}")
        if not re.match(r"(\$root|\$web|[a-z0-9](-?[a-z0-9]){2,62})\Z", one.get("container", "")):
            raise ValueError(f"input {number}: container is {one.get('container')!r}, which is no name of a container")
        if sum(field in one for field in ("blob", "prefix", "manifest")) > 1:
            raise ValueError(f"input {number}: give one of blob, prefix and manifest")
        if "etag" in one and not (re.match(r'"[\x21-\x7e]{1,126}"\Z', one["etag"]) and ("blob" in one or "manifest" in one)):
            raise ValueError(f"input {number}: etag is {one['etag']!r}; give that of a blob or manifest as in the HTTP header, quotes included")
        to = one.get("to", "")
        if to.startswith("/") or ".." in to.split("/"):
            raise ValueError(f"input {number}: to is {to!r}; give a relative path without ..")
    if len(_json(inputs)) > _INPUTS_BYTES:
        raise ValueError(f"inputs have {len(_json(inputs))} bytes as JSON; at most {_INPUTS_BYTES} are allowed: name a prefix or a manifest")


def _check_group(id: str, record: Dict[str, str], spec: Spec) -> None:
    if record.get("group", "") != spec.group:
        raise OtherGroup(f"job {id}: its record is in group {record.get('group') or 'none'}, and {record.get('status')}")


def _add_terms(record: Dict[str, str], spec: Spec) -> None:
    """Adds to a record what it says of the job for people, and for a message that replaces a lost one."""
    if spec.deadline is not None:
        record["deadline"] = _time(spec.deadline, milliseconds=True)
    if spec.estimate:
        record["estimate"] = str(1000 * spec.estimate)
    if spec.inputs:
        pack = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = base64.b64encode(pack.compress(_json(spec.inputs)) + pack.flush()).decode().rstrip("=")
        if len(packed) <= 1 << 10:
            record["inputlist"] = packed


def _read_log(document: bytes, lines: Dict[Tuple[int, int], LogLine]) -> None:
    """Adds the lines of a stored log; of two with one number the later one stays."""
    delivery, number, began = 0, 0, _now()
    for raw in document.split(b"\n"):
        line = raw.decode(errors="replace")
        if line.startswith("# "):
            _, generation, at, _ = (line + " ? ? ?").split(" ", 3)
            delivery, number, began = int(generation), 0, _parse(at)
        elif line.startswith("-"):
            number += int(line[1:])
        elif line and delivery:
            number += 1
            source, ms, text = (line + "  ").split(" ", 2)
            text = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[:-2])
            new = LogLine(delivery, number, began + datetime.timedelta(milliseconds=int(ms or 0)), _SOURCES.get(source, source), text)
            old = lines.get((delivery, number))
            if old is None or (old.at, len(old.text)) <= (new.at, len(new.text)):
                lines[delivery, number] = new


def _work(payload: bytes, inputs: Optional[List[Dict[str, str]]]) -> str:
    """The hash that tells whether two jobs have the same work."""
    digest = hashlib.sha256(payload).hexdigest()
    if not inputs:
        return digest
    return hashlib.sha256(digest.encode() + b"\n" + _json(inputs)).hexdigest()


def _is_of(record: Dict[str, str], spec: Spec, payload: bytes) -> bool:
    """Whether a record is of the same work."""
    work = _work(payload, spec.inputs)
    return record.get("kind", spec.kind) == spec.kind and record.get("payloadhash", work) == work


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
    return Job(id, record.get("status", ""), record.get("kind", ""), record.get("group", ""), float(record.get("progress", "0")), text["progresstext"], text["owner"],
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
