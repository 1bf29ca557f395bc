package hostile

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestForgedPresence: a worker starts, runs jobs and writes its heartbeat although its
// heartbeat's blob, or one beside it, has foreign content.
func TestForgedPresence(t *testing.T) {
	const own = "vm_0-11112222-0"
	for name, body := range map[string]string{
		"no JSON": "garbage", "an object": `{"jobs":1}`, "numbers": "[1,2]", "deep": strings.Repeat("[", 20000), "2 MiB": "[" +
			strings.Repeat(`"a",`, 1<<19) + `"a"]`, "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				metadata := map[string]*string{}
				for key, value := range map[string]string{
					"v": "9", "state": "process", "at": "9999-12-31T23:59:59Z", "startedat": "x", "jobs": "-7", "bootid": "%zz", "vm": "vm_0",
					"ready": strings.Repeat("e@9999-12-31T23:59:59Z,", 200), "takesfrom": ",,,",
				} {
					metadata[key] = &value
				}
				upload(b, b.Names.Workers, own, body, metadata)
				upload(b, b.Names.Workers, "a/b c", body, nil)
				b.Put("a", "echo", "1")
				b.Start("vm_0", job.Kinds{"echo": rig.Echo})
				b.WaitDone("a", 3*time.Minute)
				b.WaitFor("a heartbeat of the worker", time.Minute, func() bool {
					own, ok, err := b.Workers.Read(t.Context(), own)
					return err == nil && ok && own.State == "process"
				})
			})
		})
	}
}
