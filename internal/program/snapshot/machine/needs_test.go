package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

var here = Facts{Kernel: "6.18.1", Arch: "amd64", CPU: "Intel(R)  Xeon; 2.10 | GHz", Vendor: "GenuineIntel", Registers: "7:576",
	Features: featuresOf("fpu avx").String(), CRIU: "4.1.1", PageSize: 4096}

// TestNeeds: a machine meets the needs of its own snapshots. Another one does not, and the
// error names each difference, also of files.
func TestNeeds(t *testing.T) {
	var h Hashes
	lib := filepath.Join(t.TempDir(), "lib.so")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(lib, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(len(text))+int64(text[0]), 0) // hashes are known by size and time
		if err := os.Chtimes(lib, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	file, err := h.Of(lib)
	if err != nil {
		t.Fatal(err)
	}
	needs := Needs(here, []File{file})
	if len(needs) > job.MaxNeeds || !strings.HasPrefix(needs, here.Offer()+" arch=amd64; kernel=6.18.1; cpu=Intel(R) Xeon? 2.10 ? GHz; ") {
		t.Errorf("Needs = %q", needs)
	}
	newer := here
	newer.CPU, newer.Features = "another", featuresOf("fpu avx avx2").String()
	for _, m := range []Facts{here, newer} {
		if err := m.CheckNeeds(needs, &h); err != nil {
			t.Errorf("CheckNeeds on %s = %v", m.CPU, err)
		}
	}
	wants := func(m Facts, want string) {
		t.Helper()
		err := m.CheckNeeds(needs, &h)
		if _, ok := errors.AsType[*MismatchError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckNeeds = %v, want %q", err, want)
		}
	}
	for want, change := range map[string]func(*Facts){
		"the kernel was 6.18.1, here it is 6.12.0": func(m *Facts) { m.Kernel = "6.12.0" },
		"the processor's vendor was GenuineIntel":  func(m *Facts) { m.Vendor = "AuthenticAMD" },
		"the layout of its registers was 7:576":    func(m *Facts) { m.Registers = "e7:576" },
		"it needs avx, which this processor lacks": func(m *Facts) { m.Features = featuresOf("fpu avx2").String() },
		"criu was 4.1.1, here it is 4.2":           func(m *Facts) { m.CRIU = "4.2" },
		"the architecture was amd64":               func(m *Facts) { m.Arch = "arm64" },
		"the size of a page was 4096":              func(m *Facts) { m.PageSize = 65536 },
	} {
		other := here
		change(&other)
		wants(other, want)
		if other.Offer() == here.Offer() {
			t.Errorf("%s: the offer is the same", want)
		}
	}
	write("two")
	wants(here, lib+" has other content here")
	write("longer")
	wants(here, lib+" has other content here")
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	wants(here, lib+" is missing here")
	if err := os.Mkdir(lib, 0o700); err != nil {
		t.Fatal(err)
	}
	wants(here, lib+" has other content here")
}

// TestNeedsOfManyFiles: needs have as many files as there is room for, and none of them is
// damaged.
func TestNeedsOfManyFiles(t *testing.T) {
	for _, n := range []int{0, 1, 20, 60, 400} {
		var all []File
		for i := range n {
			all = append(all, File{Path: fmt.Sprintf("/usr/lib/x86_64-linux-gnu/lib%d.so.%d", i*7919, i), Size: int64(i) << 20,
				SHA256: fmt.Sprintf("%064x", i*104729)})
		}
		needs := Needs(here, all)
		_, packed, _ := strings.Cut(needs, " | ")
		files, err := unpackFiles(packed)
		if err != nil || len(needs) > job.MaxNeeds || len(files) > n || len(files) < min(n, 20) {
			t.Fatalf("%d of %d files in %d bytes, %v", len(files), n, len(needs), err)
		}
		t.Logf("%d of %d files in %d bytes", len(files), n, len(needs))
		for i, f := range files {
			if want := all[i]; f.Path != want.Path || f.Size != want.Size || f.SHA256 != want.SHA256[:2*hashPrefix] {
				t.Errorf("file %d = %+v, want the start of %+v", i, f, want)
			}
		}
	}
}

// TestForeignNeeds: needs in another form, of a newer version or damaged, say nothing.
func TestForeignNeeds(t *testing.T) {
	own := Needs(here, []File{{Path: "/lib", Size: 3, SHA256: strings.Repeat("ab", 32)}})
	shown, _, _ := strings.Cut(own, " | ")
	for _, needs := range []string{"", "abc", "abc x", "abc page=x", shown + " | ?", shown + " | AAAA",
		shown + " | " + strings.Repeat("A", 900),
		shown + " | " + packFiles([]File{{Path: "relative", Size: 1, SHA256: "00112233"}})} {
		if err := here.CheckNeeds(needs, &Hashes{}); err != nil {
			t.Errorf("CheckNeeds(%q) = %v", needs, err)
		}
	}
}
