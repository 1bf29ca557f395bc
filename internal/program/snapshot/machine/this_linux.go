package machine

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// This returns this machine with a version of criu.
func This(criu string) (Facts, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Facts{}, err
	}
	m := Facts{Kernel: unix.ByteSliceToString(name.Release[:]), Arch: runtime.GOARCH, CRIU: criu, PageSize: os.Getpagesize()}
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	defer func() { _ = file.Close() }()
	m.CPU, m.Vendor, m.Registers = processor(bufio.NewScanner(file))
	m.setFeatures()
	return m, nil
}

// processor returns the model, the vendor and the hash of the features of the first processor in
// /proc/cpuinfo. Other architectures than x86-64 name the vendor and the model by numbers.
func processor(lines *bufio.Scanner) (model, vendor, features string) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			if model != "" || features != "" {
				break // the next processor
			}
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			model = value
		case "vendor_id", "CPU implementer":
			vendor = value
		case "CPU part":
			model = value
			vendor += " " + value
		case "flags", "Features":
			words := strings.Fields(value)
			slices.Sort(words)
			sum := sha256.Sum256([]byte(strings.Join(words, " ")))
			features = hex.EncodeToString(sum[:8])
		}
	}
	return model, vendor, features
}
