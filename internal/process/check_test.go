package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kinds file is checked where its programs are not.
func TestCheckKinds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kinds.json")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"kinds": {"a": {"command": ["/no/such/program"], "directory": "nowhere"}}}`)
	if err := CheckKinds(file); err != nil {
		t.Errorf("CheckKinds = %v, want nil for programs that are elsewhere", err)
	}
	if _, err := ReadKinds(file); err == nil {
		t.Error("ReadKinds = nil for a program that is not there, want an error")
	}
	write(`{"kinds": {"a": {"command": ["/no/such/program"], "memory": "much"}}}`)
	if err := CheckKinds(file); err == nil || !strings.HasPrefix(err.Error(), file+":1:") {
		t.Errorf("CheckKinds = %v, want an error that begins with the place in %s", err, file)
	}
	if err := CheckKinds(file + ".not"); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CheckKinds of no file = %v, want that there is none", err)
	}
}
