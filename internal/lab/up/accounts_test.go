package up

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/need"
)

// TestAccounts pastes what lab up --accounts 2 prints into shells, with a key and with a
// managed identity. A worker is evicted, one account is stopped and back, and every job
// is committed once.
func TestAccounts(t *testing.T) {
	need.On(t, "needs a POSIX shell, and for an identity a Go that reads SSL_CERT_FILE", "linux")
	t.Parallel()
	for _, identity := range []bool{false, true} {
		t.Run(fmt.Sprintf("identity=%t", identity), func(t *testing.T) {
			t.Parallel()
			c := upOnAnyPorts()
			c.Local.Identity, c.Local.Accounts = identity, 2
			r := startUp(t, c)
			r.out.Until(t, `lab start --metadata-port \d+ devstoreaccount2\n`)
			folder := t.TempDir()
			kinds := filepath.Join(folder, "kinds.json")
			slow := filepath.Join(folder, "slow.json") // of the worker that is evicted: it must not do all jobs before that
			for file, seconds := range map[string]string{kinds: "0.2", slow: "1.5"} {
				if err := os.WriteFile(file, []byte(`{"kinds":{"nap":{"command":["sleep","`+seconds+`"]}}}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ids := r.putNaps(t, folder, 24)
			flags := []string{"--scratch", t.TempDir(), "--concurrency", "2", "--visibility", "10s", "--kinds-file"}
			first := r.workerWith(t, "spot_1", slices.Concat(flags, []string{slow}))
			first.Until(t, `("msg":"job committed"(?s:.*)){3}`)
			r.order(t, Evict, "spot_1")
			second := r.workerWith(t, "spot_2", slices.Concat(flags, []string{kinds}))
			first.Until(t, `"msg":"drained"`)
			second.Until(t, `"msg":"job committed"`)
			r.order(t, StopAccount, "devstoreaccount2")
			r.order(t, StartAccount, "devstoreaccount2")
			for _, id := range ids {
				line := `"msg":"job committed".*"job_id":"` + id + `"`
				if !regexp.MustCompile(line).MatchString(first.String()) {
					second.Until(t, line)
				}
			}
			for _, id := range ids {
				if n := len(regexp.MustCompile(`"msg":"job committed".*"job_id":"`+id+`"`).FindAllString(first.String()+second.String(), -1)); n != 1 {
					t.Errorf("job %s was committed %d times, want once", id, n)
				}
			}
		})
	}
}

// order gives lab up an order.
func (r *running) order(t *testing.T, send func(context.Context, int, string) (string, error), name string) {
	t.Helper()
	if said, err := send(t.Context(), r.port, name); err != nil {
		t.Fatalf("order for %s = %q, %v", name, said, err)
	}
}

// putNaps puts so many jobs in both accounts with the real producer.
func (r *running) putNaps(t *testing.T, folder string, n int) (ids []string) {
	t.Helper()
	var lines strings.Builder
	in := [2]int{}
	for i := range n {
		id := fmt.Sprintf("nap-%d", i)
		ids = append(ids, id)
		in[queue.AccountOf(id, 2)]++
		fmt.Fprintf(&lines, `{"id":%q,"kind":"nap"}`+"\n", id)
	}
	if in[0] < n/4 || in[1] < n/4 {
		t.Fatalf("jobs by account = %v, want many in both", in)
	}
	file := filepath.Join(folder, "jobs")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	programs, _ := labtest.Programs(t)
	script := strings.Replace(r.paste(t, "producer", "", programs.Producer), "put --kind KIND --payload JSON", "lines "+quote(file), 1)
	var said bytes.Buffer
	cmd := shell(t, script)
	cmd.Stderr = &said
	if out, err := cmd.Output(); err != nil || len(strings.Fields(string(out))) != n {
		t.Fatalf("producer = %q, %v: %s", out, err, said.String())
	}
	return ids
}

func TestStopAndStartAccounts(t *testing.T) {
	c := upOnAnyPorts()
	c.Local.Accounts = 2
	r := startUp(t, c)
	for _, test := range []struct {
		stop    bool
		account string
		want    string // in the answer, or with a "!" in the error
	}{
		{true, "devstoreaccount3", "!there are devstoreaccount1, devstoreaccount2"},
		{false, "devstoreaccount2", "!not stopped"},
		{true, "devstoreaccount2", "lab start devstoreaccount2 ends that"},
		{true, "devstoreaccount2", "!stopped already"},
		{false, "devstoreaccount2", "answers again"},
	} {
		send := StartAccount
		if test.stop {
			send = StopAccount
		}
		got, err := send(t.Context(), r.port, test.account)
		want, fails := strings.CutPrefix(test.want, "!")
		if fails != (err != nil) || !strings.Contains(got+fmt.Sprint(err), want) {
			t.Errorf("stop %t of %s = %q, %v, want %q", test.stop, test.account, got, err, test.want)
		}
	}
}
