package hook

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab/labtest"
)

// TestMain runs the tests, or is the program for events: the attributes of the line say
// what it does.
func TestMain(m *testing.M) {
	if event := os.Getenv(Variable); event != "" {
		os.Exit(runProgram(event))
	}
	os.Exit(m.Run())
}

func runProgram(event string) int {
	line, err := io.ReadAll(os.Stdin)
	var to struct{ Do, Out string }
	if err == nil {
		err = json.Unmarshal(line, &to)
	}
	switch {
	case err != nil:
		fmt.Println(err)
		return 1
	case to.Do == "fail":
		fmt.Fprint(os.Stderr, strings.Repeat("x", 2*maxOutput)+"\nno \x1b[31mendpoint\n")
		return 3
	case to.Do == "hang":
		time.Sleep(time.Minute)
	}
	text := fmt.Sprintf("%s %q %s", event, os.Getenv("SPOTWORKER_HOOK_SECRET")+os.Getenv("HTTPS_PROXY"), line)
	if err := os.WriteFile(to.Out, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// logs returns a log of that level, a Hook that runs this test as the program, and the
// log's text.
func logs(t *testing.T, level slog.Level, runLimit, closeLimit time.Duration) (*slog.Logger, *Hook, *labtest.Output) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out labtest.Output
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})
	h := start(program{self, runLimit}, slog.New(handler), closeLimit)
	h.replace = cli.FormatValue
	return slog.New(h.Handler(handler)), h, &out
}

const patience = time.Minute

// TestEvents: the program gets the line of each event, at any level of the log, and no
// credentials. Lines that were logged right before the end are passed on too.
func TestEvents(t *testing.T) {
	t.Setenv("SPOTWORKER_HOOK_SECRET", "AccountKey=c2VjcmV0")
	t.Setenv("HTTPS_PROXY", "http://user:c2VjcmV0@proxy:3128")
	for message, event := range events {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelError + 1} {
			file := filepath.Join(t.TempDir(), "out")
			log, h, out := logs(t, level, patience, patience)
			line := slog.NewRecord(time.Now(), slog.LevelInfo, message, 0)
			line.Add("jobs", 3, "left", 28*time.Second)
			if err := log.With("out", file).Handler().Handle(t.Context(), line); err != nil {
				t.Fatal(err)
			}
			h.Close()
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%s: %v; the log has:\n%s", message, err, out)
			}
			if !strings.HasPrefix(string(got), event+` "" {"time":`) || !strings.Contains(string(got), `"msg":"`+message+`"`) ||
				!strings.HasSuffix(string(got), `,"jobs":3,"left":"28s"}`+"\n") {
				t.Errorf("%s: the program got %s, want %s, no secret, and the line", message, got, event)
			}
			if logged := strings.Contains(out.String(), message); logged != (level == slog.LevelDebug) {
				t.Errorf("%s at a log of level %v: logged = %v", message, level, logged)
			}
		}
	}
}

// TestOtherLines: lines that are no events are logged as before, and run nothing.
func TestOtherLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	log, h, out := logs(t, slog.LevelWarn, patience, patience)
	log.Info("job started", "out", file)
	log.WithGroup("job").Warn("drained soon", "out", file)
	h.Close()
	if _, err := os.Stat(file); err == nil {
		t.Error("the program ran for a line that is no event")
	}
	if got := out.String(); strings.Contains(got, "job started") || !strings.Contains(got, "drained soon") {
		t.Errorf("log of level warn:\n%s\nwant the second line alone", got)
	}
}

// TestProgramFails: the log says why, with the end of the output as one printable line.
func TestProgramFails(t *testing.T) {
	log, h, out := logs(t, slog.LevelInfo, patience, patience)
	log.Info("drained", "do", "fail")
	h.Close()
	got := out.String()
	if !strings.Contains(got, "program for events failed") || !strings.Contains(got, "event=drained") ||
		!strings.Contains(got, "exit status 3: x") || !strings.Contains(got, "endpoint") {
		t.Errorf("log:\n%s\nwant the exit status and the end of the output", got)
	}
	if strings.Contains(got, "\x1b") || len(got) > 1000 {
		t.Errorf("log of %d bytes:\n%q\nwant a short printable line", len(got), got)
	}
}

// TestProgramHangs: the program is killed after its time, and at the end of the worker.
func TestProgramHangs(t *testing.T) {
	for _, limits := range [][2]time.Duration{{100 * time.Millisecond, patience}, {patience, 100 * time.Millisecond}} {
		log, h, out := logs(t, slog.LevelInfo, limits[0], limits[1])
		log.Info("drained", "do", "hang")
		begun := time.Now()
		h.Close()
		if took := time.Since(begun); took > patience/2 {
			t.Errorf("limits %v: closed after %s", limits, took)
		}
		if !strings.Contains(out.String(), "killed after") {
			t.Errorf("limits %v: log:\n%s\nwant the reason", limits, out)
		}
	}
}

// TestTooManyEvents: a program that hangs does not make the worker wait; lines are dropped,
// and the log says so.
func TestTooManyEvents(t *testing.T) {
	log, h, out := logs(t, slog.LevelInfo, patience, 10*time.Millisecond)
	begun := time.Now()
	for range parallel + queued + 10 {
		log.Info("drained", "do", "hang")
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("logging took %s beside a program that hangs", took)
	}
	h.Close()
	if n := strings.Count(out.String(), "event not passed on"); n < 10 {
		t.Errorf("%d lines of dropped events, want 10 at least; log:\n%s", n, out)
	}
	if n := strings.Count(out.String(), "the worker ended before"); n != 1 || strings.Count(out.String(), "killed after") > parallel {
		t.Errorf("%d lines of events that waited at the end, want 1, and no line for each; log:\n%s", n, out)
	}
}

func TestNoProgram(t *testing.T) {
	if _, err := Program(filepath.Join(t.TempDir(), "missing"), nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a program that does not exist is accepted")
	}
}
