package machine

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestProcessor(t *testing.T) {
	// A sample of an Ampere Altra.
	const one = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"
	of := func(text string) (string, string, string) {
		return processor(bufio.NewScanner(strings.NewReader(text)))
	}
	model, vendor, features := of(one + strings.ReplaceAll(one, "0xd0c", "0xd40"))
	if model != "0xd0c" || vendor != "0x41 0xd0c" || features == "" {
		t.Errorf("processor = %q, %q, %q", model, vendor, features)
	}
	if _, _, same := of(strings.Replace(one, "fp asimd", "asimd fp", 1)); same != features {
		t.Error("another order of the features is another processor")
	}
	if _, _, other := of(strings.Replace(one, "asimd", "sve", 1)); other == features {
		t.Error("another feature is the same processor")
	}
	if model, vendor, _ := of("vendor_id\t: GenuineIntel\nmodel name\t: Xeon\n\n"); model != "Xeon" || vendor != "GenuineIntel" {
		t.Errorf("processor = %q, %q", model, vendor)
	}
}

// TestNamesOfFeatures: the features that the kernel shows of this processor are here under the same names.
func TestNamesOfFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return
	}
	here, err := This("4.1")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, flags, _ := strings.Cut(string(shown), "\nflags")
	flags, _, _ = strings.Cut(flags, "\n")
	if lacks := lacking(featuresOf(flags).String(), here.Features); lacks != "" || featuresOf(flags) == (features{}) {
		t.Errorf("of the flags%s: %s", flags, lacks)
	}
}
