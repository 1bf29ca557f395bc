package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// TestForgedPresence: a worker starts, runs jobs and writes its heartbeat although its
// heartbeat's blob, or one beside it, has foreign content.
func TestForgedPresence(t *testing.T) {
	const own = "vm_0-11112222-0"
	for name, body := range map[string]string{
		"no JSON": "garbage", "an object": `{"jobs":1}`, "numbers": "[1,2]", "deep": strings.Repeat("[", 20000), "2 MiB": "[" + strings.Repeat(`"a",`, 1<<19) + `"a"]`, "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				metadata := map[string]*string{}
				for key, value := range map[string]string{
					"v": "9", "state": "process", "at": "9999-12-31T23:59:59Z", "startedat": "x", "jobs": "-7", "bootid": "%zz", "vm": "vm_0",
					"ready": strings.Repeat("e@9999-12-31T23:59:59Z,", 200), "takesfrom": ",,,",
				} {
					metadata[key] = &value
				}
				b.upload(b.names.Workers, own, body, metadata)
				b.upload(b.names.Workers, "a/b c", body, nil)
				b.put("a", "echo", "1")
				b.start("vm_0", job.Kinds{"echo": echo})
				b.waitDone("a", 3*time.Minute)
				b.waitFor("a heartbeat of the worker", time.Minute, func() bool {
					own, ok, err := b.workers.Read(t.Context(), own)
					return err == nil && ok && own.State == "process"
				})
			})
		})
	}
}
