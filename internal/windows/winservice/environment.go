package winservice

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Variable is a setting from a file.
type Variable struct{ Name, Value string }

// environmentLine is NAME=VALUE.
var environmentLine = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// ReadEnvironment reads a file of NAME=VALUE lines, as worker.env is on Linux too:
// empty lines and lines that begin with # or ; are comments, and quotes around a
// value are removed. A backslash is a backslash, since values are often paths.
func ReadEnvironment(path string) ([]Variable, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	variables, line := ParseEnvironment(data)
	if line > 0 {
		return nil, fmt.Errorf("line %d of %s is not NAME=VALUE", line, path)
	}
	return variables, nil
}

// ParseEnvironment reads settings. invalid is the number of the first line that is
// none, or 0. The text of a line is in no error: it may hold a key.
func ParseEnvironment(data []byte) (variables []Variable, invalid int) {
	lines := bufio.NewScanner(transform.NewReader(bytes.NewReader(data), unicode.BOMOverride(transform.Nop)))
	lines.Buffer(nil, len(data)+1)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		parts := environmentLine.FindStringSubmatch(line)
		if parts == nil {
			return nil, number
		}
		variables = append(variables, Variable{Name: parts[1], Value: unquote(strings.TrimSpace(parts[2]))})
	}
	return variables, 0
}

func unquote(value string) string {
	if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		return value[1 : len(value)-1]
	}
	return value
}
