package scripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jmespath/go-jmespath"
)

// azFolder is the environment variable that makes this test binary the Azure CLI of one
// subscription: its value is the folder of the subscription's notes.
const azFolder = "SCRIPTS_AZ_FOLDER"

// TestMain runs the tests, or answers as the Azure CLI.
func TestMain(m *testing.M) {
	if folder := os.Getenv(azFolder); folder != "" {
		os.Exit(runAz(notes(folder), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// azCall is one command line of the Azure CLI.
type azCall struct {
	notes
	name    string // the words before the first option: "vm list"
	options map[string]string
}

// errSilent is the failure of a command that prints nothing.
var errSilent = errors.New("")

// runAz notes the call, answers it from the notes, and prints what --query and --output
// make of the answer.
func runAz(n notes, arguments []string, out, errOut io.Writer) int {
	n.add("calls", fmt.Sprintf("CAPACITY=%s %s\n", os.Getenv("CAPACITY"), strings.Join(arguments, " ")))
	call := azCall{n, "", map[string]string{}}
	last := ""
	for _, word := range arguments {
		switch {
		case strings.HasPrefix(word, "-"):
			last = word
			call.options[last] += "" // given, perhaps again
		case last == "":
			call.name = strings.TrimSpace(call.name + " " + word)
		default:
			call.options[last] = strings.TrimSpace(call.options[last] + " " + word)
		}
	}
	answer, found := answers[call.name]
	if !found {
		fmt.Fprintf(errOut, "the stand-in for az knows no command %q\n", call.name)
		return 2
	}
	var result any
	err := call.refused()
	if broken := call.read("broken"); broken != "" && strings.Contains(strings.Join(arguments, " "), broken) {
		err = errors.New("(InternalServerError)")
	}
	if err == nil {
		result, err = answer(call)
	}
	if err == nil {
		err = call.print(out, result)
	}
	if err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(errOut, err)
		}
		return 1
	}
	return 0
}

// print writes a result as the Azure CLI does. A command prints nothing of a result null.
func (c azCall) print(out io.Writer, result any) error {
	if text, ok := result.(rawText); ok {
		_, err := io.WriteString(out, string(text))
		return err
	}
	// As az, whose queries see the JSON of a result.
	encoded, err := json.Marshal(result)
	if err != nil {
		return err
	}
	var seen any
	if err := json.Unmarshal(encoded, &seen); err != nil {
		return err
	}
	if query, given := c.options["--query"]; given {
		if seen, err = jmespath.Search(query, seen); err != nil {
			return fmt.Errorf("argument --query: invalid jmespath_type value: %q: %w", query, err)
		}
	}
	format := c.options["--output"]
	switch {
	case seen == nil || format == "none":
		return nil
	case format == "tsv":
		_, err = io.WriteString(out, tabSeparated(seen))
	default:
		err = json.NewEncoder(out).Encode(seen)
	}
	return err
}

// rawText is a result that az prints as it is.
type rawText string

// tabSeparated prints a result as --output tsv does: a line for each element, and null as
// None.
func tabSeparated(result any) string {
	rows, isList := result.([]any)
	if !isList {
		rows = []any{result}
	}
	var text strings.Builder
	for _, row := range rows {
		switch row := row.(type) {
		case []any:
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = tabCell(cell)
			}
			text.WriteString(strings.Join(cells, "\t"))
		case bool:
			text.WriteString(strconv.FormatBool(row))
		default:
			text.WriteString(tabCell(row))
		}
		text.WriteString("\n")
	}
	return text.String()
}

func tabCell(cell any) string {
	switch cell := cell.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[cell]
	case float64:
		return strconv.FormatFloat(cell, 'f', -1, 64)
	case []any:
		return strconv.Itoa(len(cell))
	case map[string]any:
		return ""
	default:
		return fmt.Sprint(cell)
	}
}

// notes is a folder with a file for each fact about a subscription.
type notes string

// has reports whether there is a note.
func (n notes) has(name string) bool {
	_, err := os.Stat(filepath.Join(string(n), name))
	return err == nil
}

// read returns a note without the spaces around it.
func (n notes) read(name string) string {
	content, err := os.ReadFile(filepath.Join(string(n), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		panic(err)
	}
	return strings.TrimSpace(string(content))
}

// lines returns the lines of a note.
func (n notes) lines(name string) []string { return strings.Fields(n.read(name)) }

// add appends to a note.
func (n notes) add(name, content string) {
	file, err := os.OpenFile(filepath.Join(string(n), name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.WriteString(file, content)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		panic(err)
	}
}

// path is where a note is.
func (n notes) path(name string) string { return filepath.Join(string(n), name) }

// take removes a note, and reports whether there was one.
func (n notes) take(name string) bool {
	return os.Remove(filepath.Join(string(n), name)) == nil
}

func now() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

// TestTabSeparated holds the output to the rules of az, which tell a boolean of a list of
// lists from a boolean of a list.
func TestTabSeparated(t *testing.T) {
	for source, want := range map[string]string{
		`"a"`: "a\n", `true`: "true\n", `[]`: "", `[null, true, 1.5]`: "None\ntrue\n1.5\n",
		`[["a", null, true, 12], ["b", [1, 2], {}, ""]]`: "a\tNone\tTrue\t12\nb\t2\t\t\n",
	} {
		var result any
		if err := json.Unmarshal([]byte(source), &result); err != nil {
			t.Fatal(err)
		}
		if got := tabSeparated(result); got != want {
			t.Errorf("tabSeparated(%s) = %q, want %q", source, got, want)
		}
	}
}
