package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

const samplePage = `.TH "TOOL"
.SH COMMANDS
.SS "list [flags]"
.TP
\fB\-\-kind=KIND\fR
Only jobs of a kind.
.SS "poison show <id> [flags]"
.SS "poison purge [<id> ...] [flags]"
.TP
\fB\-y, \-\-yes\fR
Without a question.
.SH FLAGS
.TP
\fB\-\-prefix="x"\fR
Start of the names.
.SS "Storage"
.TP
\fB\-\-account=NAME\fR
Account.
`

// TestBashCompletes: bash completes commands, their flags and the program's.
func TestBashCompletes(t *testing.T) {
	bash := need.Command(t, "bash")
	code := string(readPage([]byte(samplePage)).bash("tool"))
	for line, want := range map[string]string{
		"tool ":                "list poison --prefix --account",
		"tool li":              "list",
		"tool list --k":        "--kind",
		"tool poison ":         "purge show --prefix --account",
		"tool poison purge -":  "--yes --prefix --account",
		"tool --prefix a pois": "poison",
	} {
		words := strings.Split(line, " ")
		script := code + `COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tool; echo "${COMPREPLY[*]}"`
		out, err := exec.CommandContext(t.Context(), bash, append([]string{"-c", script, "bash"}, words...)...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q is completed to %q, %v, want %q", line, got, err, want)
		}
	}
}

// TestFishCompletes: fish gets a line for each word, at its command.
func TestFishCompletes(t *testing.T) {
	code := string(readPage([]byte(samplePage)).fish("tool"))
	for _, want := range []string{
		"complete -c tool -n '__fish_use_subcommand' -a poison\n",
		"complete -c tool -n '__fish_seen_subcommand_from poison; and __fish_seen_subcommand_from purge' -l yes\n",
	} {
		if !strings.Contains(code, want) {
			t.Errorf("no line %q in\n%s", want, code)
		}
	}
}
