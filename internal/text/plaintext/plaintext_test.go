package plaintext

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestForms(t *testing.T) {
	for _, row := range []struct{ name, text, line, block, field string }{
		{"plain", "all is well", "all is well", "all is well", "all is well"},
		{"other languages", "größer 数学 🙂", "größer 数学 🙂", "größer 数学 🙂", "größer 数学 🙂"},
		{"lines", "a\nb\r\n\tc", "a b   c", "a\nb\ufffd\n\tc", `a\nb\r\n\tc`},
		{"clears the screen", "\x1b[2J\x1b[1;1H", "\ufffd[2J\ufffd[1;1H", "\ufffd[2J\ufffd[1;1H", "\x1b[2J\x1b[1;1H"},
		{"C1 control", "\u009b2J\u0085", "\ufffd2J\ufffd", "\ufffd2J\ufffd", "\u009b2J\u0085"},
		{"separators", "a\u2028b\u2029c", "a\ufffdb\ufffdc", "a\ufffdb\ufffdc", "a\u2028b\u2029c"},
		{"reversed", "a\u202eb\u2066c\u200ed", "a\ufffdb\ufffdc\ufffdd", "a\ufffdb\ufffdc\ufffdd", "a\u202eb\u2066c\u200ed"},
		{"invalid UTF-8", "a\xffb", "a\ufffdb", "a\ufffdb", "a\xffb"},
		{"wide spaces", "a\u00a0b\u3000c", "a\u00a0b\u3000c", "a\u00a0b\u3000c", "a\u00a0b\u3000c"},
	} {
		if got := Line(row.text); got != row.line {
			t.Errorf("%s: Line(%q) = %q, want %q", row.name, row.text, got, row.line)
		}
		if got := Block(row.text); got != row.block {
			t.Errorf("%s: Block(%q) = %q, want %q", row.name, row.text, got, row.block)
		}
		if got := Field(row.text); got != row.field {
			t.Errorf("%s: Field(%q) = %q, want %q", row.name, row.text, got, row.field)
		}
	}
}

func TestMessage(t *testing.T) {
	const text = "no such frame\nspotctl: job b is done\x1b[2J\n"
	if got, want := Message(text), "no such frame\n  spotctl: job b is done\ufffd[2J"; got != want {
		t.Errorf("Message(%q) = %q, want %q", text, got, want)
	}
}

// FuzzJSON: the value stays, and a terminal can print it.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`"plain"`, "{\"a\":\"\u009b2J\"}\n", "\"\u202e\U000e0041 \u00e9\"", `"\u001b"`, "[\"\x7f\"]", "\"\ufffd\xff\"", "[1,\r\n\t2]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := JSON(raw)
		for _, r := range string(got) {
			if !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) && !strings.ContainsRune("\n\r\t", r) {
				t.Fatalf("JSON(%q) = %q has %U", raw, got, r)
			}
		}
		var before, after any
		if json.Unmarshal(raw, &before) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("JSON(%q) = %q: %v, %v; want the value %v", raw, got, after, err, before)
		}
	})
}

// FuzzLine: any text comes out as one line of printable text.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{"", "a\nb", "\x1b]0;title\a", "\u202e", "\xff\xfe", strings.Repeat("\t", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, got := range map[string]string{"Line": Line(text), "Line of a Field": Line(Field(text))} {
			if !utf8.ValidString(got) {
				t.Fatalf("%s(%q) = %q, which is not UTF-8", name, text, got)
			}
			for _, r := range got {
				if !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) {
					t.Fatalf("%s(%q) = %q has %U", name, text, got, r)
				}
			}
		}
	})
}
