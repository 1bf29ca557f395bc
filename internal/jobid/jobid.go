// Package jobid defines which job ids and kinds are valid, and the blob name that
// belongs to an id. It imports nothing of this module, so that packages queue and
// checkpoint can both use it.
package jobid

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Limits on names, in bytes.
const (
	MaxID    = 128
	MaxKind  = 64
	MaxGroup = 64
)

// Validate reports why id cannot be a job id, or nil. An id is 1–128 of
// A–Z a–z 0–9 . _ ~ - and neither starts nor ends with a dot, so that it is
// a blob name, an HTTP header value and a file name as it stands.
func Validate(id string) error {
	if err := validate(id, MaxID, "._~-"); err != nil {
		return fmt.Errorf("job id %s: %w", quote(id), err)
	}
	return nil
}

// ValidateKind reports why kind cannot name a kind of job, or nil. A kind is
// 1–64 of A–Z a–z 0–9 . _ - and neither starts nor ends with a dot.
func ValidateKind(kind string) error {
	if err := validate(kind, MaxKind, "._-"); err != nil {
		return fmt.Errorf("kind %s: %w", quote(kind), err)
	}
	return nil
}

// ValidateGroup reports why group cannot name a group of jobs, or nil. A group has the form
// of a kind.
func ValidateGroup(group string) error {
	if err := validate(group, MaxGroup, "._-"); err != nil {
		return fmt.Errorf("group %s: %w", quote(group), err)
	}
	return nil
}

// Path returns "hhh/id", where hhh are the first three hex digits of the id's
// SHA-256. Ids in sequence then spread over the storage service's partitions,
// which it forms by name.
func Path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:2])[:3] + "/" + id
}

func validate(s string, limit int, punctuation string) error {
	if s == "" {
		return fmt.Errorf("must not be empty")
	}
	if len(s) > limit {
		return fmt.Errorf("has %d bytes; at most %d are allowed", len(s), limit)
	}
	if s[0] == '.' || s[len(s)-1] == '.' {
		return fmt.Errorf("must neither start nor end with a dot")
	}
	for i := range len(s) {
		if !allowed(s[i], punctuation) {
			return fmt.Errorf("has %q at byte %d; allowed are A-Z a-z 0-9 and %s", s[i], i, punctuation)
		}
	}
	return nil
}

func allowed(c byte, punctuation string) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte(punctuation, c) >= 0
}

// quote shows a name in an error without letting a hostile one fill the log.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
