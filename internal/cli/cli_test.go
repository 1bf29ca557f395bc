package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testFlags are the settings of a program that has all that commands share.
type testFlags struct {
	Storage
	Log

	Concurrency int              `help:"Jobs at once." default:"4"`
	Wait        time.Duration    `help:"A time." default:"10s"`
	Metadata    string           `help:"An address." default:"${address}"`
	Version     kong.VersionFlag `help:"Print the version and exit."`
}

// parse parses a command line with an environment of its own.
func parse(t *testing.T, environment map[string]string, args ...string) (f testFlags, out string, done bool, err error) {
	t.Helper()
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "SPOTWORKER_") || strings.HasPrefix(name, "AZURE_") {
			t.Setenv(name, value) // restores it afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range environment {
		t.Setenv(name, value)
	}
	var stdout bytes.Buffer
	p := Program{Name: "prog", Description: "Does things.", Version: "1.2.3", Vars: map[string]string{"address": "none"}}
	done, err = p.Parse(&f, args, &stdout)
	return f, stdout.String(), done, err
}

// A setting is a flag, else the environment, else the default.
func TestParse(t *testing.T) {
	environment := map[string]string{
		"SPOTWORKER_CONCURRENCY": "7", "SPOTWORKER_LOG_LEVEL": "warn", "SPOTWORKER_BLOB_ENDPOINT": "https://a.example",
		"AZURE_CLIENT_ID": "guid", "CONCURRENCY": "99",
	}
	for _, row := range []struct {
		name        string
		environment map[string]string
		args        []string
		check       func(f testFlags) bool
	}{
		{"defaults", nil, nil, func(f testFlags) bool {
			return f.Concurrency == 4 && f.Wait == 10*time.Second && f.Metadata == "none" && f.Prefix == "spotworker" &&
				f.Queue == "" && f.Account == "" && f.LogLevel == "info" && f.LogFormat == "auto"
		}},
		{"environment", environment, nil, func(f testFlags) bool {
			return f.Concurrency == 7 && f.LogLevel == "warn" && f.ClientID == "guid" && f.BlobEndpoint == "https://a.example"
		}},
		{"flags come first", environment, []string{"--concurrency=2", "--log-level", "error", "--client-id=mine"}, func(f testFlags) bool {
			return f.Concurrency == 2 && f.LogLevel == "error" && f.ClientID == "mine"
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, out, done, err := parse(t, row.environment, row.args...)
			if err != nil || done || out != "" || !row.check(f) {
				t.Errorf("Parse = %+v, done %t, printed %q, %v", f, done, out, err)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	_, out, done, err := parse(t, nil, "--help")
	if !done || err != nil {
		t.Errorf("--help = done %t, %v, want done", done, err)
	}
	for _, want := range []string{"Usage: prog", "Does things.", "--account=NAME", "$SPOTWORKER_ACCOUNT", "$AZURE_CLIENT_ID",
		"debug,info,warn,error"} {
		if !strings.Contains(out, want) {
			t.Errorf("help has no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "connection-string") {
		t.Error("help offers a flag for the connection string, which everybody on the machine could read")
	}
	if _, out, done, err := parse(t, nil, "--version"); out != "prog 1.2.3\n" || !done || err != nil {
		t.Errorf("--version = %q, done %t, %v, want prog 1.2.3", out, done, err)
	}
}

// A variable that only looks like the version flag's does not stop a program.
func TestVersionIsNoSetting(t *testing.T) {
	if f, out, done, err := parse(t, map[string]string{"SPOTWORKER_VERSION": "1.2.3"}); done || err != nil || out != "" || f.Concurrency != 4 {
		t.Errorf("Parse with SPOTWORKER_VERSION = done %t, printed %q, %v, want it ignored", done, out, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		environment map[string]string
		args        []string
		want        string
	}{
		"unknown flag":       {nil, []string{"--conurrency=1"}, "--conurrency"},
		"argument":           {nil, []string{"now"}, "now"},
		"no number":          {nil, []string{"--concurrency=many"}, "--concurrency"},
		"no duration":        {nil, []string{"--wait=10"}, "--wait"},
		"not one of":         {nil, []string{"--log-format=xml"}, "--log-format"},
		"environment, wrong": {map[string]string{"SPOTWORKER_CONCURRENCY": "many"}, nil, "CONCURRENCY"},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, done, err := parse(t, row.environment, row.args...)
			if err == nil || done || out != "" || !strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(row.want)) ||
				!strings.Contains(err.Error(), "prog --help") {
				t.Errorf("Parse = done %t, printed %q, %v, want an error about %s", done, out, err, row.want)
			}
			if Code(err) != ExitConfig {
				t.Errorf("exit code = %d, want %d", Code(err), ExitConfig)
			}
		})
	}
}

func TestCode(t *testing.T) {
	broken := errors.New("broken")
	for _, row := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{broken, 1},
		{&ConfigError{broken}, 78},
		{fmt.Errorf("start: %w", &ConfigError{broken}), 78},
	} {
		if got := Code(row.err); got != row.want {
			t.Errorf("Code(%v) = %d, want %d", row.err, got, row.want)
		}
	}
	if err := (&ConfigError{broken}); !errors.Is(err, broken) || err.Error() != "broken" {
		t.Errorf("ConfigError = %v, want what it holds", err)
	}
}

func TestLogger(t *testing.T) {
	for _, row := range []struct {
		log  Log
		want string
	}{
		{Log{"info", "json"}, `"level":"INFO","msg":"saved","in":"1.234568s","error":"first second","n":7`},
		{Log{"info", "auto"}, `"level":"INFO"`}, // no terminal here
		{Log{"info", "text"}, `level=INFO msg=saved in=1.234568s error="first second" n=7`},
		{Log{"debug", "text"}, "level=DEBUG"},
		{Log{"warn", "text"}, ""},
		{Log{"error", "json"}, ""},
	} {
		var out bytes.Buffer
		logger := row.log.Logger(&out)
		logger.Debug("looked")
		logger.Info("saved", "in", 1234567890*time.Nanosecond, "error", errors.New("first\n\tsecond"), "n", 7)
		got := out.String()
		if row.want == "" && got != "" || !strings.Contains(got, row.want) || strings.Contains(got, "DEBUG") != (row.log.LogLevel == "debug") {
			t.Errorf("%+v logs %q, want %q in it", row.log, got, row.want)
		}
	}
}

// TestNothingIsLeftOut: an attribute without a value has no place in a line.
func TestNothingIsLeftOut(t *testing.T) {
	var out bytes.Buffer
	var none error
	l := Log{"info", "json"}
	l.Logger(&out).With("since", time.Time{}, "reason", "").Info("saved", "error", none, "text", "", "at", time.Time{}, "n", 0, "ok", false)
	if got, want := out.String(), `"msg":"saved","n":0,"ok":false}`; !strings.HasSuffix(strings.TrimSpace(got), want) {
		t.Errorf("line = %s, want %s at its end", got, want)
	}
}

// TestLoggedTextIsPlain: text of a job or a program cannot command a terminal that
// shows the log, nor add a line to it.
func TestLoggedTextIsPlain(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		l := Log{"info", format}
		l.Logger(&out).Info("job failed", "reason", "\x1b[2J\u009b1m\u202e\u2028\nlevel=ERROR", "error", errors.New("\x1b]0;title\a"),
			"row", struct{ Name string }{"\u009b2J\x7f"}, "names", []string{"\u202e"})
		line := strings.TrimSuffix(out.String(), "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s log has %q, want one line of printable characters", format, line)
		}
	}
}

func TestOpen(t *testing.T) {
	server := storage.New(storage.Options{})
	for name, row := range map[string]struct {
		connection string
		storage    Storage
		want       string
	}{
		"no account":            {"", Storage{Prefix: "spotworker"}, "AZURE_STORAGE_CONNECTION_STRING"},
		"bad prefix":            {server.ConnectionString(), Storage{Prefix: "Spot_Worker"}, "prefix"},
		"bad queue":             {server.ConnectionString(), Storage{Prefix: "spotworker", Queue: "Q"}, "queue"},
		"bad connection string": {"AccountKey=hunter2", Storage{Prefix: "spotworker"}, "AccountName"},
		"bad endpoint":          {"", Storage{Prefix: "spotworker", Account: "acct", BlobEndpoint: "nowhere"}, "--blob-endpoint"},
	} {
		t.Setenv(connectionStringVariable, row.connection)
		stores, err := row.storage.Open(4, "1")
		if err == nil || stores != nil || Code(err) != ExitConfig || !strings.Contains(err.Error(), row.want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Open = %v, exit code %d, want a configuration error about %s", name, err, Code(err), row.want)
		}
	}
	t.Setenv(connectionStringVariable, server.ConnectionString())
	stores, err := (&Storage{Prefix: "team", Queue: "render"}).Open(4, "1")
	if err != nil {
		t.Fatal(err)
	}
	if stores.Queue.Name() != "render" || stores.Poison.Name() != "render-poison" || stores.Names.Records != "team-jobs" ||
		len(server.Counts()) != 0 {
		t.Errorf("Open = %+v with calls %v, want the names and no call", stores.Names, server.Counts())
	}
}

// TestEmptyValues: a flag or an argument that is given and empty is refused, in each form.
func TestEmptyValues(t *testing.T) {
	type flags struct {
		Group string   `help:"A group."`
		Kinds []string `help:"Kinds."`
		Most  int      `help:"A number."`
		Log
		Put struct {
			ID  string   `arg:"" optional:"" help:"An id."`
			IDs []string `arg:"" optional:"" name:"ids" help:"Ids."`
		} `cmd:"" help:"Puts."`
	}
	t.Setenv("SPOTWORKER_GROUP", "") // counts as not set
	for _, row := range []struct {
		args []string
		want string // in the error; empty for none
	}{
		{[]string{"put"}, ""},
		{[]string{"put", "a", "--group=b", "--kinds=a,b"}, ""},
		{[]string{"put", "--group="}, "--group is given and empty"},
		{[]string{"put", "--group", ""}, "--group is given and empty"},
		{[]string{"--group", "", "put"}, "--group is given and empty"},
		{[]string{"put", "--kinds="}, "--kinds is given and empty"},
		{[]string{"put", "--kinds=a,,b"}, "--kinds is given and empty"},
		{[]string{"put", "--most="}, "--most is given and empty"},
		{[]string{"--most", "", "put"}, "--most is given and empty"},
		{[]string{"put", "--most=b"}, "--most: expected"},
		{[]string{"put", ""}, "is empty"},
		{[]string{"put", "a", "b", ""}, "is empty"},
	} {
		var f flags
		_, err := Program{Name: "x", Version: "1"}.Parse(&f, row.args, &bytes.Buffer{})
		if got := fmt.Sprint(err); (err == nil) != (row.want == "") || !strings.Contains(got, row.want) || err != nil && Code(err) != ExitConfig {
			t.Errorf("%q: %v, want %q", row.args, err, row.want)
		}
	}
}
