package jsonpos

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte("{\"a\": [1.50, \"b\\n\"],\n \"ü\": {\"c\": null, \"d\": true}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := Value{Data: Object{
		{Offset: 1, Name: "a", Value: Value{Offset: 6, Path: "a", Data: []Value{
			{Offset: 7, Path: "a[0]", Data: json.Number("1.50")},
			{Offset: 13, Path: "a[1]", Data: "b\n"},
		}}},
		{Offset: 22, Name: "ü", Value: Value{Offset: 28, Path: "ü", Data: Object{
			{Offset: 29, Name: "c", Value: Value{Offset: 34, Path: "ü.c"}},
			{Offset: 40, Name: "d", Value: Value{Offset: 45, Path: "ü.d", Data: true}},
		}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("value differs (-want +got):\n%s", diff)
	}
}

// TestErrorsNameThePosition: columns count characters, also characters of several bytes.
func TestErrorsNameThePosition(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "f:1:1: not JSON: it ends too early"},
		{"{\n  \"a\": [", "f:2:9: not JSON: it ends too early"},
		{"{\n  \"a\": 1,\n}", "f:3:1: not JSON: invalid character '}'"},
		{`["ü", x]`, "f:1:7: not JSON: invalid character 'x'"},
		{"[]\n ]", "f:2:2: not JSON: more text follows"},
		{`{} {}`, "f:1:4: not JSON: more text follows"},
		{`{"ü": 1, "ü": 2}`, "f:1:10: ü: this name is given twice"},
		{`{"k": {"a": 1, "a": 2}}`, "f:1:16: k.a: this name is given twice"},
		{strings.Repeat("[", 21) + "1" + strings.Repeat("]", 21), "f:1:22: more than 20 arrays"},
	} {
		_, err := Parse([]byte(tt.text))
		if got := Locate("f", []byte(tt.text), err); got == nil || !strings.HasPrefix(got.Error(), tt.want) {
			t.Errorf("Parse(%q) = %v, want %s...", tt.text, got, tt.want)
		}
	}
	if err := errors.New("other"); !errors.Is(Locate("f", nil, err), err) || Locate("f", nil, nil) != nil {
		t.Error("Locate changes an error without a position")
	}
}

// FuzzParse: valid JSON is parsed unless a name is given twice or it is
// nested too deep; every error has a position in the text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{``, `{"a": [1, {"b": null}], "c": "d"}`, `{"a":1,"a":2}`, "[1,\n2,]", `{} x`, `{1: 2}`,
		`["\ud800", 1e400]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := Parse(data)
		if err == nil {
			if !json.Valid(data) {
				t.Errorf("%q is not JSON and was parsed", data)
			}
			return
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Offset < 0 || e.Offset > len(data) || e.Problem == "" {
			t.Fatalf("Parse = %#v, want an Error with a position in the text", err)
		}
		if json.Valid(data) && strings.HasPrefix(e.Problem, "not JSON") {
			t.Errorf("Parse = %v for valid JSON", err)
		}
		line, column := position(data, e.Offset)
		lines := strings.Split(string(data), "\n")
		if line > len(lines) || column > len(lines[line-1])+1 {
			t.Errorf("error at %d:%d, which is outside of %q", line, column, data)
		}
	})
}
