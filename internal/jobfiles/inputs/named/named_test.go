package named

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/job"
)

func TestParse(t *testing.T) {
	want := []job.Input{
		{Container: "data", Blob: "a/b c.bin", ETag: `"0x8DC"`, To: "in/b"},
		{Container: "$web", Prefix: "x/"}, {Container: "data", Manifest: "list"}, {Container: "data"},
		{Account: "https://Other.blob.core.windows.net/", Container: "data", Blob: "ä"},
	}
	raw, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(raw)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Parse(Encode) = %v (-want +got)\n%s", err, diff)
	}
	if raw, err := Encode(nil); raw != nil || err != nil {
		t.Errorf("Encode of none = %q, %v", raw, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:    "must be a list",
		`["a"]`: "input 1: it is a JSON string; it must be an object",
		`[{}]`:  "field container is missing or empty",
		`[{"container":"data","blob":"a"},{"container":"a b"}]`:             `input 2: field container is "a b"`,
		`[{"container":"data/../jobs"}]`:                                    "no name of a container",
		`[{"container":"data","bolb":"a"}]`:                                 `unknown field "bolb"; known are account, container`,
		`[{"container":"data","blob":7}]`:                                   "field blob is a JSON number; it must be a string",
		`[{"container":"data","blob":"a","prefix":"b"}]`:                    "more than one of blob, prefix and manifest",
		`[{"container":"data","blob":"a/../b"}]`:                            "field blob has a part that ends with a dot",
		`[{"container":"data","blob":"a\\b"}]`:                              "backslash",
		`[{"container":"data","prefix":"../b"}]`:                            "field prefix has a part that ends with a dot",
		`[{"container":"data","blob":"https://a/b"}]`:                       "is a URL",
		`[{"container":"data","blob":"a","etag":"0x8DC"}]`:                  "quotes included",
		`[{"container":"data","prefix":"a","etag":"\"0x8DC\""}]`:            "field etag",
		`[{"container":"data","manifest":"a","to":"b"}]`:                    "not for a manifest",
		`[{"container":"data","blob":"a","to":"../b"}]`:                     "leave the folder",
		`[{"container":"data","blob":"a","to":"/etc/passwd"}]`:              "must be relative",
		`[{"container":"data","blob":"a","to":"a//b"}]`:                     "a part of the path is empty",
		`[{"container":"data","blob":"a","to":"a\u0000b"}]`:                 "control characters",
		`[{"container":"data","blob":"a","to":"C:\\b"}]`:                    "no backslash",
		`[{"container":"data","account":"http://a.blob.core.windows.net"}]`: "field account is",
		`[{"container":"data","account":"https://user:secret@a"}]`:          "field account is",
		`[{"container":"data","account":"https://a?sig=secret"}]`:           "field account is",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for path, want := range map[string]string{
		"a": "", "a/b.c/d e": "", "ünïcode/文件": "", "..a/b..": "", "a:b": "", "con": "",
		"": "empty", ".": "leave", "a/./b": "leave", "..": "leave", "a/..": "leave", "a/": "empty", "/a": "relative",
		"a\nb": "control", "a\\b": "backslash", "\xff": "control",
		strings.Repeat("a", 256): "255", strings.Repeat("a/", 512) + "a": "1024",
	} {
		if err := CheckPath(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckPath(%.40q) = %v, want %q", path, err, want)
		}
	}
}

func TestCheckWindowsPath(t *testing.T) {
	for path, ok := range map[string]bool{
		"a/b.txt": true, "console": true, "com": true, "comx": true, "com10": true, "nul1": true, "a.nul": true,
		"CON": false, "a/nul.txt": false, "Com1": false, "lpt9.tar.gz": false, "aux .c": false, "COM¹": false,
		"a:b": false, "a?": false, "a*": false, `a"b`: false, "a|b": false, "a<b": false, "dot.": false, "space ": false, "folder./a": false,
	} {
		if err := CheckWindowsPath(path); (err == nil) != ok {
			t.Errorf("CheckWindowsPath(%q) = %v, want accepted %t", path, err, ok)
		}
	}
}

// FuzzParse: for any message, an accepted input names a container and a path that stays
// in the folder, and is the same when it is written again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"container":"data","blob":"a","to":"b/c","etag":"\"x\""},{"container":"data","prefix":"a/"}]`))
	f.Add([]byte(`[{"account":"https://a.blob.core.windows.net","container":"data","manifest":"m"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Parse(data)
		if err != nil {
			return
		}
		for _, in := range all {
			if in.To != "" && (strings.HasPrefix(in.To, "/") || strings.Contains("/"+in.To+"/", "/../")) {
				t.Errorf("path %q leaves the folder", in.To)
			}
		}
		raw, err := Encode(all)
		if err != nil {
			t.Fatalf("Encode of what Parse accepted = %v", err)
		}
		if len(all) == 0 {
			return
		}
		again, err := Parse(raw)
		if diff := cmp.Diff(all, again); err != nil || diff != "" {
			t.Errorf("read again: %v\n%s", err, diff)
		}
	})
}
