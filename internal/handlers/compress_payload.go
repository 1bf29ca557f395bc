package handlers

import (
	"errors"
	"fmt"
)

// Levels of compression, as zstd counts them.
const (
	defaultLevel = 3
	maxLevel     = 19
)

// targetSuffix ends the name of a target that the payload does not name.
const targetSuffix = ".zst"

// CompressPayload names the blob to compress, and where to. Unknown fields are
// ignored.
type CompressPayload struct {
	// Container, Blob and Version name the source as in a [DigestPayload].
	Container string `json:"container"`
	Blob      string `json:"blob"`
	Version   string `json:"version,omitempty"`

	// TargetContainer must be one that the worker was allowed to write.
	TargetContainer string `json:"target_container"`

	// TargetBlob is the name of the blob to make, which must not exist.
	// Default: the source's name and ".zst".
	TargetBlob string `json:"target_blob,omitempty"`

	// Level is 1 to 19, as zstd counts; the encoder has four speeds and takes
	// the nearest. Default 3.
	Level int `json:"level,omitempty"`
}

// parseCompressPayload returns an error that names the field that is wrong.
func parseCompressPayload(raw []byte) (CompressPayload, error) {
	var p CompressPayload
	if err := decodePayload(raw, &p, `{"container":"data","blob":"2026/a.tar","target_container":"packed"}`); err != nil {
		return CompressPayload{}, err
	}
	if p.TargetBlob == "" && p.Blob != "" {
		p.TargetBlob = p.Blob + targetSuffix
	}
	if p.Level == 0 {
		p.Level = defaultLevel
	}
	fields := append(sourceFields(p.Container, p.Blob, p.Version),
		field{"target_container", checkContainer(p.TargetContainer)}, field{"target_blob", checkBlob(p.TargetBlob)}, field{"level", checkLevel(p.Level)})
	if err := firstWrong(fields); err != nil {
		return CompressPayload{}, err
	}
	if p.Container == p.TargetContainer && p.Blob == p.TargetBlob {
		return CompressPayload{}, errors.New("source and target are the same blob")
	}
	return p, nil
}

func checkLevel(level int) error {
	if level < 1 || level > maxLevel {
		return fmt.Errorf("is %d; a level is 1 to %d", level, maxLevel)
	}
	return nil
}
