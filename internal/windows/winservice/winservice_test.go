package winservice

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseEnvironment(t *testing.T) {
	for name, row := range map[string]struct {
		text    string
		want    []Variable
		invalid int
	}{
		"settings": {
			"\ufeff# of this version\r\n\r\nSPOTWORKER_ACCOUNT=acct\r\n  A = b\n", nil, 4,
		},
		"values": {
			"A=\nB=a=b\n;c\nC=\"a b\"\nD='x'\nE=C:\\Program Files\\x\\\nF=\"\n# end of worker.env\n",
			[]Variable{{"A", ""}, {"B", "a=b"}, {"C", "a b"}, {"D", "x"}, {"E", `C:\Program Files\x\`}, {"F", `"`}}, 0,
		},
		"line breaks of Windows": {"A=1\r\nB=2\r\n", []Variable{{"A", "1"}, {"B", "2"}}, 0},
		"UTF-16 of Windows":      {"\xff\xfeA\x00=\x001\x00\r\x00\n\x00", []Variable{{"A", "1"}}, 0},
		"empty":                  {"", nil, 0},
		"no name":                {"=x", nil, 1},
		"no sign":                {"A=1\nnonsense", nil, 2},
	} {
		if got, invalid := ParseEnvironment([]byte(row.text)); !slices.Equal(got, row.want) || invalid != row.invalid {
			t.Errorf("%s: ParseEnvironment = %q, invalid line %d, want %q and %d", name, got, invalid, row.want, row.invalid)
		}
	}
}

// An error about a line never has its text, which may be a key.
func TestReadEnvironmentHidesText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.env")
	if err := os.WriteFile(path, []byte("A=1\nAccountKey hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadEnvironment(path)
	if err == nil || !strings.Contains(err.Error(), "line 2 of "+path) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("ReadEnvironment = %v, want an error about line 2 without its text", err)
	}
}

// readLogs returns the lines of the log and its older files, oldest first.
func readLogs(t *testing.T, path string) (lines []string, files int) {
	t.Helper()
	for n := logFiles; n >= 0; n-- {
		name := (&LogFile{path: path}).name(n)
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		files++
		lines = append(lines, strings.Fields(string(data))...)
	}
	return lines, files
}

func TestLogFileRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a folder", "worker.log")
	const size = 1000
	for range 2 { // of one process and of the next
		log, err := openLogFile(path, size, size/10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			if _, err := fmt.Fprintf(log, "line-%04d\n", i); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	lines, files := readLogs(t, path)
	if files != logFiles+1 || lines[len(lines)-1] != "line-0299" {
		t.Errorf("%d files that end in %s, want %d and line-0299", files, lines[len(lines)-1], logFiles+1)
	}
	if want := logFiles * size / len("line-0000\n"); len(lines) < want {
		t.Errorf("%d lines kept, want at least %d", len(lines), want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > size {
		t.Errorf("the present file has %d bytes, %v, want at most %d", info.Size(), err, size)
	}
}

// A file that cannot be renamed, such as a file that a virus scanner holds open, costs no line.
func TestLogFileWithoutRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.log")
	obstacle := filepath.Join(path+".full", "in the way")
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := openLogFile(path, 100, 50)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := fmt.Fprintf(log, "line-%04d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := fmt.Fprintf(log, "late-%04d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if lines, files := readLogs(t, path); len(lines) != 60 || files != 2 {
		t.Errorf("%d lines in %d files, want all 60 in 2", len(lines), files)
	}
}

func TestLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.log")
	text := strings.Repeat("x", 70<<10) + "\nfirst\n{\"msg\":\"program output\"}\r\n\r\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ours := func(line string) bool { return !strings.Contains(line, "program output") }
	if got := LastLine(path, ours); got != "first" {
		t.Errorf("LastLine = %q, want first", got)
	}
	if got := LastLine(path+".none", ours); got != "" {
		t.Errorf("LastLine of no file = %q, want none", got)
	}
}

// The id equals the output of sc showsid for a service that every Windows has.
func TestServiceSID(t *testing.T) {
	const want = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
	if got := serviceSID("TrustedInstaller"); got != want {
		t.Errorf("serviceSID(TrustedInstaller) = %s, want %s", got, want)
	}
	got := Access{Services: []string{"TrustedInstaller"}, Change: true}.sddl()
	if got != "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301bf;;;"+want+")" {
		t.Errorf("access list = %s", got)
	}
}

// Loops that stand still end the process after a minute, and not before.
func TestWatch(t *testing.T) {
	var w watch
	start := time.Now()
	for _, row := range []struct {
		at            time.Duration
		healthy, want bool
	}{
		{0, true, false},
		{time.Second, false, false},
		{unhealthyLimit, false, false},
		{unhealthyLimit + 1, true, false},
		{unhealthyLimit + time.Second, false, false},
		{2*unhealthyLimit + time.Second - 1, false, false},
		{2*unhealthyLimit + time.Second, false, true},
	} {
		if got := w.overdue(row.healthy, start.Add(row.at)); got != row.want {
			t.Errorf("overdue(healthy %t) after %s = %t, want %t", row.healthy, row.at, got, row.want)
		}
	}
}

func TestNotifier(t *testing.T) {
	s := newService()
	n := s.Attach(time.Second, func() bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	if got := <-s.ready; got != n {
		t.Error("another worker is ready")
	}
	n.Stopping()
	n.Stopping() // each transition says it
	<-n.stopping
	cancel()
	<-done
}

func TestConfig(t *testing.T) {
	for _, name := range []string{"", "a b", `a\b`, "ä", strings.Repeat("a", 81), "-a"} {
		if err := ValidateName(name); err == nil {
			t.Errorf("ValidateName(%q) = nil, want an error", name)
		}
	}
	if err := ValidateName("spotworker-1"); err != nil {
		t.Error(err)
	}
	c := Config{Name: "spotworker", DrainBudget: 5 * time.Minute}
	if c.preShutdown() <= c.DrainBudget || c.account() != `NT SERVICE\spotworker` {
		t.Errorf("pre-shutdown %s of account %s, want more than %s", c.preShutdown(), c.account(), c.DrainBudget)
	}
	for i, d := range recoveryDelays() {
		if i > 0 && d <= recoveryDelays()[i-1] {
			t.Errorf("delay %d is %s, want them to grow", i, d)
		}
	}
	if got := (&StartError{Status: Status{ExitCode: 1066, ServiceExit: 78}}).Code(); got != 78 {
		t.Errorf("exit code = %d, want the program's 78", got)
	}
}
