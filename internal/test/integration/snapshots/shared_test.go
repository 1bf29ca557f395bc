//go:build integration && linux

package snapshots

import (
	"testing"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

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
