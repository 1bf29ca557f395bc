package manual_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/cli/manual"
)

type line struct {
	Secret  bool             `hidden:"" help:"Never shown."`
	Version kong.VersionFlag `help:"Print the version and exit."`
	Queue   string           `help:"Name of the queue." default:"jobs" short:"q" group:"Storage"`

	Put  putCommand     `cmd:"" help:"Put a job."`
	Old  putCommand     `cmd:"" hidden:"" help:"An old command."`
	Man  manual.Command `cmd:"" help:"Print the manual page."`
	Deep struct {
		List struct {
			Long bool `help:"Show everything, with a \\ and 50 µs."`
		} `cmd:"" help:"'List' them."`
	} `cmd:"" help:"Other things."`
}

type putCommand struct {
	File string `arg:"" help:"File of jobs."`
}

func (putCommand) Help() string { return ".profile is no request.\n\nA second paragraph." }

// written returns the manual page of a program with these flags.
func written(t *testing.T) string {
	t.Helper()
	var flags line
	var out bytes.Buffer
	program := cli.Program{Name: "prog", Version: "v1.2.3", Description: "Does things for\npeople. And more.\n\nSee --help."}
	if done, err := program.Parse(&flags, []string{"man"}, &out); done || err != nil {
		t.Fatalf("man = %t, %v", done, err)
	}
	if err := flags.Man.Print(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPage(t *testing.T) {
	page := written(t)
	for _, want := range []string{
		".TH \"PROG\" 1 \"\" \"prog v1.2.3\" \"spotworker\"\n", "prog \\- Does things for people\n", ".B prog\n[command] [flags]\n",
		".PP\nDoes things for people. And more.\n.PP\nSee \\-\\-help.\n", ".SS \"put <file> [flags]\"\n.PP\nPut a job.\n",
		".PP\n\\&.profile is no request.\n.PP\nA second paragraph.\n", "\\fB<file>\\fR\nFile of jobs.\n", ".SS \"deep list [flags]\"\n",
		".PP\n\\&'List' them.\n", "with a \\e and 50 \\[u00B5]s ($SPOTWORKER_LONG).\n", ".SS \"Storage\"\n.TP\n",
		"\\fB\\-q, \\-\\-queue=\\(dqjobs\\(dq\\fR\nName of the queue ($SPOTWORKER_QUEUE).\n",
	} {
		want = strings.ReplaceAll(want, `\(dqjobs\(dq`, `"jobs"`)
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, hidden := range []string{"secret", "old"} {
		if strings.Contains(page, hidden) {
			t.Errorf("the page shows %s, which is hidden:\n%s", hidden, page)
		}
	}
}

// TestUnwritable: an output that fails is an error.
func TestUnwritable(t *testing.T) {
	parser, err := kong.New(&line{}, kong.Name("prog"))
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	_ = reader.CloseWithError(os.ErrClosed)
	if err := manual.Write(writer, parser.Model, ""); err == nil {
		t.Error("Write to a closed pipe = nil, want an error")
	}
}
