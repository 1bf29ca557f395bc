package scenario

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed ready/*.json
var files embed.FS

const (
	readyFolder = "ready"
	extension   = ".json"
)

// Ready returns the names of the scenarios that come with the program, in
// alphabetical order.
func Ready() []string {
	entries, err := fs.ReadDir(files, readyFolder)
	if err != nil {
		panic(err) // the folder is in the program
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), extension))
	}
	return names
}

// ReadyText returns the text of a scenario that comes with the program, and
// whether there is one of that name.
func ReadyText(name string) ([]byte, bool) {
	text, err := fs.ReadFile(files, path.Join(readyFolder, name+extension))
	return text, err == nil
}

// Load returns a scenario that comes with the program.
func Load(name string) (Scenario, error) {
	text, ok := ReadyText(name)
	if !ok {
		return Scenario{}, fmt.Errorf("there is no scenario %s; there are %s", name, strings.Join(Ready(), ", "))
	}
	return Parse(name+extension, text)
}
