package workercmd

import (
	"bytes"
	"strings"
	"testing"
)

// TestMan: the manual page has the worker's flags with their variables, and the commands.
func TestMan(t *testing.T) {
	var out bytes.Buffer
	if err := runMan(Options{Arguments: []string{"man"}, Version: "v1.2.3"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		".TH \"WORKER\" 1 \"\" \"worker v1.2.3\"", `\-\-kinds\-file=`, "($SPOTWORKER_KINDS_FILE)",
		".SS \"service [flags]\"",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the manual page lacks %s:\n%s", want, &out)
		}
	}
	if err := runMan(Options{Arguments: []string{"man", "--unknown"}}, &out); err == nil {
		t.Error("man --unknown = nil, want an error")
	}
}
