package up

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/test/need"
)

// example is a program of the folder examples, and a job for it.
type example struct {
	name    string
	needs   string                                     // a program without which it is skipped
	slowly  map[string]string                          // environment that gives an eviction time
	prepare func(t *testing.T, folder string) []string // returns the producer's flags for the job
	check   func(t *testing.T, result string)
}

var examples = []example{
	{
		name: "logstats", needs: "python3", slowly: map[string]string{"PAUSE": "0.1"},
		prepare: func(t *testing.T, folder string) []string {
			var log bytes.Buffer
			for i := range 100_000 {
				fmt.Fprintf(&log, "10.0.0.%d - - [01/Jan/2026:00:00:00 +0000] \"GET /%d HTTP/1.1\" %d %d\n", i%256, i, 200+i%2*204, i%1000)
				if i%10_000 == 0 {
					log.WriteString("this is no request\n")
				}
			}
			data(t, folder, map[string][]byte{"access.log": log.Bytes()})
			return []string{"--payload", `{"file":"access.log"}`}
		},
		check: func(t *testing.T, result string) {
			var got struct {
				Malformed       int
				Requests, Bytes map[string]int
			}
			if err := json.Unmarshal([]byte(result), &got); err != nil {
				t.Fatalf("result %q: %v", result, err)
			}
			if got.Malformed != 10 || got.Requests["200"] != 50_000 || got.Requests["404"] != 50_000 ||
				got.Bytes["200"] != 100*500*499 || got.Bytes["404"] != 100*500*500 {
				t.Errorf("result = %+v, want 50,000 requests of each status, and every byte counted once", got)
			}
		},
	},
	{
		name: "checksums", needs: "cksum", slowly: map[string]string{"PAUSE": "0.5"},
		prepare: func(t *testing.T, folder string) []string {
			files, list := map[string][]byte{}, ""
			for i := range 25 {
				name := fmt.Sprintf("file %d", i)
				files[name] = []byte(strings.Repeat(name, 1000+i))
				list += name + "\n"
			}
			data(t, folder, files)
			return []string{"--payload-text", list}
		},
		check: func(t *testing.T, result string) {
			lines := strings.Split(strings.TrimSuffix(result, "\n"), "\n")
			for i, line := range lines {
				name := fmt.Sprintf("file %d", i)
				size := len(name) * (1000 + i)
				if want := fmt.Sprintf("%d %d ./%s", cksum(strings.Repeat(name, 1000+i)), size, name); line != want {
					t.Errorf("line %d of the result = %q, want %q", i, line, want)
				}
			}
			if len(lines) != 25 {
				t.Errorf("result has %d lines, want 25", len(lines))
			}
		},
	},
	{
		name: "matmul", needs: "cc", slowly: map[string]string{"PAUSE_MS": "1000"},
		prepare: func(t *testing.T, folder string) []string {
			out, err := exec.CommandContext(t.Context(), "cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Wall", "-Wextra", "-Werror",
				"-o", filepath.Join(folder, "matmul"), filepath.Join(folder, "matmul.c")).CombinedOutput()
			if err != nil {
				t.Fatalf("cc = %v: %s", err, out)
			}
			return []string{"--payload-text", "640 7"}
		},
		check: func(t *testing.T, result string) {
			var got struct{ Trace, Sum float64 }
			if err := json.Unmarshal([]byte(result), &got); err != nil {
				t.Fatalf("result %q: %v", result, err)
			}
			trace, sum := matmul(640, 7)
			if math.Abs(got.Trace-trace) > 1e-4 || math.Abs(got.Sum-sum) > 1e-4 {
				t.Errorf("result = %+v, want trace %f and sum %f", got, trace, sum)
			}
		},
	},
}

// TestExamples runs each example on a local Azure, evicts the worker that runs it,
// and wants the right result from another.
func TestExamples(t *testing.T) {
	need.NotOn(t, "windows", "needs a POSIX shell")
	t.Parallel()
	for _, ex := range examples {
		t.Run(ex.name, func(t *testing.T) {
			need.Command(t, ex.needs)
			t.Parallel()
			ex.run(t)
		})
	}
}

func (ex example) run(t *testing.T) {
	folder := t.TempDir()
	root := filepath.Join("..", "..", "..")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(root, "examples", ex.name))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(folder, "spotworker"), os.DirFS(filepath.Join(root, "python", "spotworker"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, "checksums.sh"), 0o700); err != nil && ex.name == "checksums" {
		t.Fatal(err)
	}
	job := ex.prepare(t, folder)
	kinds := filepath.Join(folder, "kinds.json")
	slow := slowDown(t, kinds, ex.name, ex.slowly)

	r := startUp(t, upOnAnyPorts())
	scratch := t.TempDir()
	flags := func(kinds string) []string {
		return []string{"--kinds-file", kinds, "--scratch", scratch, "--checkpoint-interval", "200ms", "--log-level", "debug"}
	}
	result := r.await(t, append([]string{"--wait", "put", "--kind", ex.name, "--id", "a"}, job...))
	first := r.workerWith(t, "spot_1", flags(slow))
	first.Until(t, `"msg":"checkpoint saved"(?s:.*)"msg":"checkpoint saved"`)
	if _, err := Evict(t.Context(), r.port, "spot_1"); err != nil {
		t.Fatal(err)
	}
	first.Until(t, `"msg":"drained"`)
	if !strings.Contains(first.String(), `"msg":"job released"`) {
		t.Errorf("the evicted worker did not release the job:\n%s", first)
	}
	if left, _ := filepath.Glob(filepath.Join(scratch, "*", "job-*")); len(left) > 0 {
		t.Errorf("the evicted worker left %q behind", left)
	}
	second := r.workerWith(t, "spot_2", flags(kinds))
	ex.check(t, <-result)
	second.Until(t, `"msg":"job committed"`)
	if resumed := second.Until(t, `"msg":"job started".*"resumed_at":([0-9.]+)`); resumed == "0" {
		t.Errorf("the second worker started from the beginning, want it to resume:\n%s", second)
	}
	if n := strings.Count(first.String()+second.String(), `"msg":"job failed`); n != 0 {
		t.Errorf("the job failed %d times, want an eviction to cost it nothing", n)
	}
}

// slowDown writes a kinds file beside another one, with more variables in the environment of a
// kind. Only the worker that is evicted reads it, so the job takes much longer there than a busy
// machine needs for the eviction.
func slowDown(t *testing.T, file, kind string, variables map[string]string) (slow string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	environment, ok := all["kinds"][kind]["environment"].(map[string]any)
	if !ok {
		environment = map[string]any{}
	}
	for name, value := range variables {
		environment[name] = value
	}
	all["kinds"][kind]["environment"] = environment
	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	slow = filepath.Join(filepath.Dir(file), "slow.json")
	if err := os.WriteFile(slow, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return slow
}

// data fills the data folder of an example.
func data(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(folder, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, "data", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// await starts a producer that waits for its job, and gives the job's result.
func (r *running) await(t *testing.T, arguments []string) <-chan string {
	t.Helper()
	programs, _ := labtest.Programs(t)
	quoted := make([]string, len(arguments))
	for i, argument := range arguments {
		quoted[i] = quote(argument)
	}
	script := r.paste(t, "producer", "", programs.Producer)
	put := "exec " + programs.Producer + " " + strings.Join(quoted, " ") // exec, so that it gets the interrupt
	script = strings.Replace(script, programs.Producer+" put --kind KIND --payload JSON", put, 1)
	var said bytes.Buffer
	cmd := shell(t, script)
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	results := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err := cmd.Output()
		_, result, _ := strings.Cut(string(out), "\t")
		result = strings.ReplaceAll(result, `\n`, "\n") // a result with line breaks stands on one line
		if err != nil {
			result = fmt.Sprintf("none: %v: %s", err, said.String())
		}
		results <- result
	}()
	t.Cleanup(func() { <-done })
	return results
}

// matmul is the result of examples/matmul, without making the product: its trace, and the
// sum of its elements.
func matmul(order, seed uint64) (trace, sum float64) {
	for k := range order {
		var column, row float64
		for i := range order {
			left, right := matmulElement(seed, i, k), matmulElement(seed+1, k, i)
			trace += left * right
			column += left
			row += right
		}
		sum += column * row
	}
	return trace, sum
}

func matmulElement(seed, row, column uint64) float64 {
	x := seed*0x9E3779B97F4A7C15 + row*0xBF58476D1CE4E5B9 + column*0x94D049BB133111EB
	x ^= x >> 31
	x *= 0xD6E8FEB86659FD93
	x ^= x >> 32
	return float64(x>>11)/(1<<52) - 1
}

// cksum is POSIX cksum: CRC-32 with the most significant bit first, over the data and its
// length.
func cksum(text string) uint32 {
	var crc uint32
	add := func(b byte) {
		crc ^= uint32(b) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
	}
	for i := range len(text) {
		add(text[i])
	}
	for n := len(text); n > 0; n >>= 8 {
		add(byte(n))
	}
	return ^crc
}
