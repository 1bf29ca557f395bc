package jobid

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	tests := []struct {
		id      string
		problem string // part of the error; empty when the id is good
	}{
		{"a", ""},
		{"0192f0c1-7e1c-7000-8000-0123456789ab", ""},
		{"a.b_c~d-E9", ""},
		{strings.Repeat("x", 128), ""},
		{"", "must not be empty"},
		{strings.Repeat("x", 129), "129 bytes"},
		{".hidden", "dot"},
		{"trailing.", "dot"},
		{"..", "dot"},
		{"a/b", `'/'`},
		{`a\b`, `'\\'`},
		{"a b", `' '`},
		{"a\nb", `'\n'`},
		{"é", "at byte 0"},
	}
	for _, tt := range tests {
		err := Validate(tt.id)
		switch {
		case tt.problem == "" && err != nil:
			t.Errorf("Validate(%q) = %v, want nil", tt.id, err)
		case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("Validate(%q) = %v, want an error that names %q", tt.id, err, tt.problem)
		}
	}
}

func TestValidateKindRefusesTilde(t *testing.T) {
	if err := ValidateKind("a~b"); err == nil {
		t.Error("ValidateKind(a~b) = nil, want an error")
	}
	if err := ValidateKind("digest"); err != nil {
		t.Errorf("ValidateKind(digest) = %v, want nil", err)
	}
}

func TestPath(t *testing.T) {
	// sha256("abc") starts with ba7816bf.
	if got, want := Path("abc"), "ba7/abc"; got != want {
		t.Errorf("Path(abc) = %q, want %q", got, want)
	}
}
