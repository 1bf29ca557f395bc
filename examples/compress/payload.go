package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Levels of compression, as zstd counts them.
const (
	defaultLevel = 3
	maxLevel     = 19
)

// payload names the blob to compress, and the target.
type payload struct {
	Container string `json:"container"`
	Blob      string `json:"blob"`

	TargetContainer string `json:"target_container"`

	// TargetBlob must not exist. Default: the source's name and ".zst".
	TargetBlob string `json:"target_blob,omitempty"`

	// Level is 1 to 19. The encoder has four speeds and takes the nearest. Default 3.
	Level int `json:"level,omitempty"`
}

func (p payload) withDefaults() payload {
	p.TargetBlob = cmp.Or(p.TargetBlob, p.Blob+".zst")
	p.Level = cmp.Or(p.Level, defaultLevel)
	return p
}

// Validate returns why no attempt can succeed, or nil. The worker dead-letters such a job.
func (p payload) Validate() error {
	p = p.withDefaults()
	switch {
	case !isBlobName(p.Blob):
		return fmt.Errorf("payload: blob is %.80q, which is not a blob's name", p.Blob)
	case !isBlobName(p.TargetBlob):
		return fmt.Errorf("payload: target_blob is %.80q, which is not a blob's name", p.TargetBlob)
	case p.Level < 1 || p.Level > maxLevel:
		return fmt.Errorf("payload: level is %d; a level is 1 to %d", p.Level, maxLevel)
	case p.Container == p.TargetContainer && p.Blob == p.TargetBlob:
		return errors.New("payload: source and target are the same blob")
	}
	return nil
}

// isBlobName rejects names that do not reach the service unchanged. A client that resolves
// "a/../b" would read or write another blob, possibly in another container.
func isBlobName(name string) bool {
	if name == "" || strings.Contains(name, `\`) || strings.ContainsFunc(name, unicode.IsControl) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasSuffix(part, ".") })
}
