package handlers

import (
	"math"
	"strconv"
	"strings"
)

// CompressResult is the result of a compress job. Its fields come in this order.
type CompressResult struct {
	// Algorithm is "zstd".
	Algorithm string `json:"algorithm"`

	// Container, Blob and Version are the payload's; Bytes and SHA256 are the
	// source's size and hash, ETag the version that was read, quotes included.
	Container string `json:"container"`
	Blob      string `json:"blob"`
	Version   string `json:"version,omitempty"`
	ETag      string `json:"etag"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"`

	// TargetContainer and TargetBlob say where the compressed blob is,
	// TargetBytes and TargetSHA256 its size and hash.
	TargetContainer string `json:"target_container"`
	TargetBlob      string `json:"target_blob"`
	TargetBytes     int64  `json:"target_bytes"`
	TargetSHA256    string `json:"target_sha256"`

	// Ratio is the source's size over the target's, to three places.
	Ratio float64 `json:"ratio"`
}

// label is what a target says about how it was made, in its metadata: enough to
// give the result again when the worker that made it did not get to say so.
type label struct {
	Key          string
	ETag         string
	Bytes        int64
	SourceSHA256 string
	SHA256       string

	written int64 // the target's size, which the service tells
}

// Keys of a target's metadata (docs/FORMATS.md).
const (
	labelKey          = "spotworkerjob"
	labelETag         = "sourceetag"
	labelBytes        = "sourcebytes"
	labelSourceSHA256 = "sourcesha256"
	labelSHA256       = "sha256"
)

func (l *label) metadata() map[string]*string {
	return map[string]*string{
		labelKey: new(l.Key), labelETag: new(l.ETag), labelBytes: new(strconv.FormatInt(l.Bytes, 10)),
		labelSourceSHA256: new(l.SourceSHA256), labelSHA256: new(l.SHA256),
	}
}

// labelOf reads a target's metadata. HTTP libraries change the case of its keys.
func labelOf(metadata map[string]*string) label {
	values := map[string]string{}
	for key, value := range metadata {
		if value != nil {
			values[strings.ToLower(key)] = *value
		}
	}
	size, err := strconv.ParseInt(values[labelBytes], 10, 64)
	if err != nil {
		return label{} // nobody's: we write a number
	}
	return label{
		Key: values[labelKey], ETag: values[labelETag], Bytes: size,
		SourceSHA256: values[labelSourceSHA256], SHA256: values[labelSHA256],
	}
}

// result is what a finished job returns.
func (l *label) result(p CompressPayload) ([]byte, error) {
	return encodeResult(CompressResult{
		Algorithm: "zstd", Container: p.Container, Blob: p.Blob, Version: p.Version,
		ETag: l.ETag, Bytes: l.Bytes, SHA256: l.SourceSHA256,
		TargetContainer: p.TargetContainer, TargetBlob: p.TargetBlob, TargetBytes: l.written, TargetSHA256: l.SHA256,
		Ratio: math.Round(1000*float64(l.Bytes)/float64(l.written)) / 1000,
	})
}
