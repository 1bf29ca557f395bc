package charset

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestText(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "a": "a", "é\xff": "é\xff", "\xef\xbb\xbfé\xff": "é\xff", "\xef\xbb\xbf": "",
		"\xff\xfe\xe9\x00\n\x00": "é\n", "\xfe\xff\x00{\xd8\x3d\xdd\x25": "{🔥", "\xff\xfea\x00\x00\xd8": "a\uFFFD",
	} {
		if got := string(Text([]byte(given))); got != want {
			t.Errorf("Text(%q) = %q, want %q", given, got, want)
		}
		got, err := io.ReadAll(iotest.OneByteReader(Reader(iotest.OneByteReader(strings.NewReader(given)))))
		if string(got) != want || err != nil {
			t.Errorf("Reader(%q) = %q, %v, want %q", given, got, err, want)
		}
	}
}
