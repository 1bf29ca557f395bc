package checkpoint

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// escape makes free text fit for an HTTP header: percent-encoded UTF-8, cut to
// limit bytes on a character's border. A newline or an accent left as it is
// would make the service refuse every later write of the record.
func escape(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if escaped := url.PathEscape(s); len(escaped) <= limit {
		return escaped
	}
	const ellipsis = "%E2%80%A6"
	var out strings.Builder
	for _, r := range s {
		escaped := url.PathEscape(string(r))
		if out.Len()+len(escaped)+len(ellipsis) > limit {
			break
		}
		out.WriteString(escaped)
	}
	return out.String() + ellipsis
}

func unescape(s string) (string, error) { return url.PathUnescape(s) }
