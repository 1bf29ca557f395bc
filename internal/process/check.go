package process

import (
	"fmt"
	"os"

	"github.com/spotworker/spotworker/internal/jsonpos"
)

// CheckKinds reads a kinds file as [ReadKinds] does, but does not look for the
// commands and folders that it names: they may be on another machine.
func CheckKinds(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("kinds file: %w", err)
	}
	_, err = parseKinds(data)
	return jsonpos.Locate(file, data, err)
}
