//go:build integration && linux

package snapshots

import (
	"testing"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestDeletedFilesInMemory: processes share memory whose files were deleted, which is open, has another
// name, or is in memory alone.
func TestDeletedFilesInMemory(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	const code = `
import ctypes, mmap, multiprocessing as mp, os, time
fork = mp.get_context("fork")
lock, value, array, queue = fork.Lock(), fork.Value("i", 0), fork.Array("i", 3), fork.Queue()
named = mp.get_context("spawn").Lock() # a semaphore that has lost its first name

with open("x", "w+b") as f: # both views are of one file, and only in memory
    f.truncate(3 * 4096)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    views = [libc.mmap(None, size, 3, mmap.MAP_SHARED, f.fileno(), ctypes.c_long(at)) for at, size in ((0, 12288), (4096, 4096))]
os.unlink("x")
hidden = [ctypes.c_int.from_address(views[0] + 4096), ctypes.c_int.from_address(views[1])]

def add(n):
    time.sleep(0.01)
    with lock: hidden[n % 2].value += n
    with value: value.value += n
    with array: array[n % 3] += n
    queue.put(n)
    return n * n

pool = fork.Pool(3)
print("running", flush=True)
result = pool.map_async(add, range(90), chunksize=1)
while not os.path.exists("finish"): time.sleep(0.02)
with named: total = sum(result.get())
numbers = sorted(queue.get() for _ in range(90))
pool.close()
pool.join()
left = [name for name in os.listdir("/dev/shm") if "deleted" in name]
result = total, value.value, array[:], numbers == list(range(90)), hidden[0].value, hidden[1].value, left
open(os.environ["SPOTWORKER_RESULT"], "w").write(str(result))
`
	thrice(t, program.Kind{Name: "deleted", Command: []string{need.Command(t, "python3"), "-c", code}, Snapshot: true})
}

// TestPipesAndSockets: a pipe and a socket in TMPDIR have their content and their names on the next VM, as
// those of make and of Python's managers.
func TestPipesAndSockets(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	const code = `
import os, socket, stat, time
name = os.environ["TMPDIR"] + "/jobs"
os.mkfifo(name, 0o640)
both = os.open(name, os.O_RDWR)
os.write(both, b"abc")
listener = socket.socket(socket.AF_UNIX)
listener.bind(name + ".socket")
listener.listen()
def connect(text):
    client = socket.socket(socket.AF_UNIX)
    client.connect(name + ".socket")
    client.sendall(text)
    return client, listener.accept()[0]
first = connect(b"first")
children = []
for i in range(6):
    children.append(os.fork())
    if children[-1] == 0:
        for _ in range(10):
            token = os.read(both, 1)
            time.sleep(0.01)
            os.write(both, token)
        os._exit(0)
print("running", flush=True)
while not os.path.exists("finish"): time.sleep(0.02)
for child in children: os.waitpid(child, 0)
os.write(os.open(name, os.O_WRONLY), b"d")
content, info = sorted(os.read(both, 10)), os.stat(name)
received = first[1].recv(10) + connect(b"second")[1].recv(10)
open(os.environ["SPOTWORKER_RESULT"], "w").write(f"{content} {stat.filemode(info.st_mode)} {received}")
`
	thrice(t, program.Kind{Name: "pipe", Command: []string{need.Command(t, "python3"), "-c", code}, Snapshot: true})
}

// TestWatchedFile: tail learns by inotify that a file has grown.
func TestWatchedFile(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	need.Command(t, "tail")
	thrice(t, script(`>data; tail -n +1 -f data >copy & echo running
i=0; while [ $i -lt 40 ]; do echo $i >>data; i=$((i+1)); sleep 0.02; done
while [ ! -e finish ]; do sleep 0.02; done
echo end >>data; until grep -q end copy; do sleep 0.02; done
kill $!; cat copy >"$SPOTWORKER_RESULT"`))
}
