package blobs

import (
	"net/http"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// conditions are a request's condition headers ("Specifying conditional
// headers for Blob service operations" in the REST documentation). Entity tags
// are kept without quotes.
type conditions struct {
	match, noneMatch       string
	modified, notModified  time.Time // If-Modified-Since, If-Unmodified-Since
	matchSet, noneMatchSet bool
}

func parseConditions(h http.Header) (conditions, error) {
	var c conditions
	var err error
	if c.match, c.matchSet, err = parseETag(h, "If-Match"); err != nil {
		return c, err
	}
	if c.noneMatch, c.noneMatchSet, err = parseETag(h, "If-None-Match"); err != nil {
		return c, err
	}
	if c.modified, err = parseSince(h, "If-Modified-Since"); err != nil {
		return c, err
	}
	c.notModified, err = parseSince(h, "If-Unmodified-Since")
	return c, err
}

// parseETag refuses an entity tag without quotes, as a listing shows it. The service accepts
// that form too ("the ETag can be specified in quotes"); HTTP does not, and a proxy between
// need not. So the emulator is stricter than the service.
func parseETag(h http.Header, key string) (tag string, set bool, err error) {
	value := h.Get(key)
	if strings.Contains(value, ",") {
		return "", true, protocol.ErrMultipleConditions.Because("%s has more than one entity tag", key)
	}
	if value == "" || value == "*" {
		return value, value != "", nil
	}
	inner, opens := strings.CutPrefix(value, `"`)
	inner, closes := strings.CutSuffix(inner, `"`)
	if !opens || !closes || strings.Contains(inner, `"`) {
		return "", true, protocol.ErrInvalidHeader.Because("%s %s is not an entity tag in quotes", key, value)
	}
	return inner, true, nil
}

func parseSince(h http.Header, key string) (time.Time, error) {
	value := h.Get(key)
	if value == "" {
		return time.Time{}, nil
	}
	t, err := http.ParseTime(value)
	if err != nil {
		return time.Time{}, protocol.ErrInvalidHeader.Because("%s %q is not an RFC 1123 date", key, value)
	}
	return t, nil
}

// checkRead decides whether a version may be read; v is nil where the blob
// does not exist. All conditions count, of If-None-Match and If-Modified-Since
// one is enough.
func (c conditions) checkRead(v *version) error {
	if c.noneMatch == "*" {
		return protocol.ErrUnsatisfiable
	}
	if v == nil {
		if c.matchSet {
			return protocol.ErrConditionNotMet
		}
		return errBlobNotFound
	}
	if c.matchSet && !v.matches(c.match) {
		return protocol.ErrConditionNotMet
	}
	if !c.notModified.IsZero() && v.modifiedAfter(c.notModified) {
		return protocol.ErrConditionNotMet
	}
	asked := c.noneMatchSet || !c.modified.IsZero()
	changed := (c.noneMatchSet && !v.matches(c.noneMatch)) ||
		(!c.modified.IsZero() && v.modifiedAfter(c.modified))
	if asked && !changed {
		return protocol.ErrNotModified
	}
	return nil
}

// checkWrite decides whether a version may be replaced or changed; v is nil
// where the blob does not exist. At most one entity tag and one date count,
// and the tag before the date. "If-None-Match: *" is left to the operations
// that create, which answer it with a conflict.
func (c conditions) checkWrite(v *version) error {
	if err := c.checkCombination(); err != nil {
		return err
	}
	met := true
	switch {
	case c.noneMatchSet:
		met = v == nil || c.noneMatch == "*" || !v.matches(c.noneMatch)
	case c.matchSet:
		met = v != nil && v.matches(c.match)
	case v == nil:
	case !c.modified.IsZero():
		met = v.modifiedAfter(c.modified)
	case !c.notModified.IsZero():
		met = !v.modifiedAfter(c.notModified)
	}
	if !met {
		return protocol.ErrConditionNotMet
	}
	return nil
}

// checkCombination refuses all pairs but If-Match with If-Unmodified-Since and
// If-None-Match with If-Modified-Since.
func (c conditions) checkCombination() error {
	wantsSame := c.matchSet || !c.notModified.IsZero()
	wantsChanged := c.noneMatchSet || !c.modified.IsZero()
	if wantsSame && wantsChanged {
		return protocol.ErrMultipleConditions
	}
	return nil
}

// createOnly reports "If-None-Match: *".
func (c conditions) createOnly() bool { return c.noneMatch == "*" }

// matches compares with an entity tag without quotes, or "*" for any.
func (v *version) matches(tag string) bool {
	return tag == "*" || strings.Trim(v.etag, `"`) == tag
}

// modifiedAfter compares in whole seconds, as the service shows them.
func (v *version) modifiedAfter(t time.Time) bool {
	return v.modified.Truncate(time.Second).After(t)
}
