package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCompareMachines(t *testing.T) {
	if err := here.Compare(here); err != nil {
		t.Errorf("Compare with itself = %v", err)
	}
	for _, row := range []struct {
		change func(*Facts)
		want   string
	}{
		{func(m *Facts) { m.Kernel = "6.12.0" }, "the kernel was 6.12.0, here it is 6.18.1"},
		{func(m *Facts) { m.Vendor = "AuthenticAMD" }, "the processor's vendor was AuthenticAMD, here it is GenuineIntel"},
		{func(m *Facts) { m.Registers = "e7:576" }, "the layout of its registers was e7:576, here it is 7:576"},
		{func(m *Facts) { m.Features = featuresOf("fpu avx2").String() }, "it needs avx2, which this processor lacks"},
		{func(m *Facts) { m.CRIU = "4.2" }, "criu was 4.2, here it is 4.1.1"},
		{func(m *Facts) { m.Arch = "arm64" }, "the architecture was arm64"},
		{func(m *Facts) { m.PageSize = 65536 }, "the size of a page was 65536, here it is 4096"},
	} {
		then := here
		row.change(&then)
		err := then.Compare(here)
		if _, ok := errors.AsType[*MismatchError](err); !ok || !strings.Contains(err.Error(), row.want) {
			t.Errorf("Compare = %v, want %q", err, row.want)
		}
	}
}

func TestHashes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lib.so")
	write := func(text string, at int64) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Unix(at, 0), time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	write("one", 1)
	var h Hashes
	want, err := h.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	files := []File{want}
	if err := h.Check(files); err != nil {
		t.Errorf("Check of the same file = %v", err)
	}
	write("one", 2) // another time alone: an image of the same package may have that
	if err := h.Check(files); err != nil {
		t.Errorf("Check of the same content = %v", err)
	}
	write("two", 3)
	if err := h.Check(files); err == nil || !strings.Contains(err.Error(), name+" has other content here") {
		t.Errorf("Check of other content = %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	err = h.Check(files)
	if _, ok := errors.AsType[*MismatchError](err); !ok || !strings.Contains(err.Error(), "is missing here") {
		t.Errorf("Check of a missing file = %v", err)
	}
	var many []File
	for range maxNamed + 2 {
		many = append(many, want)
	}
	if err := h.Check(many); !strings.Contains(err.Error(), "and 2 more files differ") {
		t.Errorf("Check of %d missing files = %v", len(many), err)
	}
}
