package kubernetes

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/workercmd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manifests are the committed YAML files by path.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("manifests = %v, %v, want some", paths, err)
	}
	files := map[string]string{}
	for _, path := range paths {
		if strings.HasPrefix(path, "templates") {
			continue // the chart: it reads the others
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = string(content)
	}
	return files
}

var (
	settingName  = regexp.MustCompile(`\bSPOTWORKER_[A-Z_]+\b`)
	settingValue = regexp.MustCompile(`(?m)^ *(?:- )?(?:name: )?(SPOTWORKER_[A-Z_]+)(?:: |\n +value: )"?([^"\n]+)"?$`)
	podsUID      = regexp.MustCompile(`(?m)^ *- name: (SPOTWORKER_[A-Z_]+)\n +valueFrom:\n +fieldRef:\n +fieldPath: metadata\.uid$`)
	arguments    = regexp.MustCompile(`(?m)^ *args: \[(.*)\]$`)
)

// settings returns the variables and the arguments that manifests give to a worker.
func settings(t *testing.T, files map[string]string) (variables map[string]string, args []string) {
	t.Helper()
	variables = map[string]string{}
	for path, content := range files {
		for _, found := range settingValue.FindAllStringSubmatch(content, -1) {
			variables[found[1]] = found[2]
		}
		for _, found := range podsUID.FindAllStringSubmatch(content, -1) {
			variables[found[1]] = "6f3c2b1a-0c4d-4e5f-8a9b-0123456789ab"
		}
		for _, found := range arguments.FindAllStringSubmatch(content, -1) {
			args = append(args, strings.Split(found[1], ", ")...)
		}
		for line := range strings.Lines(content) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") || strings.Contains(line, "fieldPath: data.") {
				continue
			}
			for _, name := range settingName.FindAllString(line, -1) {
				if variables[name] == "" {
					t.Errorf("%s sets %s in a form that this test cannot read", path, name)
				}
			}
		}
	}
	return variables, args
}

// complaint starts a worker with settings and one wrong one, so that it contacts nothing. It
// returns the error and the log.
func complaint(t *testing.T, variables map[string]string, args []string) string {
	t.Helper()
	for _, variable := range os.Environ() { // of the test's caller
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "SPOTWORKER_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	for name, value := range variables {
		if name == "SPOTWORKER_RUNTIME_DIR" {
			value = filepath.Join(t.TempDir(), value)
		}
		t.Setenv(name, value)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := workercmd.Run(ctx, workercmd.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Arguments: append(slices.Clone(args), "--metadata-endpoint=ftp://127.0.0.1"),
	})
	if err == nil {
		t.Fatal("a worker with a wrong metadata endpoint ran")
	}
	return err.Error() + "\n" + log.String()
}

// TestSettings: the worker accepts each variable and argument of the manifests. It logs the
// names of variables that it does not read.
func TestSettings(t *testing.T) {
	need.On(t, "the workers of one VM share a folder", "linux", "darwin", "freebsd")
	variables, args := settings(t, manifests(t))
	const fewest = 9
	if len(variables) < fewest || len(args) != 1 {
		t.Fatalf("found the settings %v and the arguments %q, want at least %d and one", variables, args, fewest)
	}
	got := complaint(t, variables, args)
	if !strings.HasPrefix(got, "--metadata-endpoint") || strings.Contains(got, "has no effect") {
		t.Errorf("worker with %v %q = %s, want a complaint about its metadata endpoint alone", variables, args, got)
	}
}

// TestWrongSettings: mistakes in a manifest are noticed.
func TestWrongSettings(t *testing.T) {
	need.On(t, "the workers of one VM share a folder", "linux", "darwin", "freebsd")
	for name, row := range map[string]struct{ file, old, wrong, want string }{
		"a misspelt variable": {"base/settings.yaml", "SPOTWORKER_ACCOUNT:", "SPOTWORKER_ACOUNT:", "has no effect"},
		"a wrong value":       {"base/settings.yaml", `CONCURRENCY: "4"`, "CONCURRENCY: many", "concurrency"},
		"a wrong flag":        {"scaledjob/scaledjob.yaml", "--exit-when-idle=", "--exit-if-idle=", "unknown flag"},
		"a wrong instance":    {"deployment/deployment.yaml", "- name: SPOTWORKER_LISTEN\n", "- name: SPOTWORKER_LISTENER\n", "has no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			files := manifests(t)
			broken := strings.ReplaceAll(files[row.file], row.old, row.wrong)
			if broken == files[row.file] {
				t.Fatalf("%s does not have %q", row.file, row.old)
			}
			files[row.file] = broken
			variables, args := settings(t, files)
			if got := complaint(t, variables, args); !strings.Contains(got, row.want) {
				t.Errorf("worker = %s, want %q", got, row.want)
			}
		})
	}
}
