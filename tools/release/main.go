// Command release makes the parts of a release that are not programs; .goreleaser.yaml calls it.
//
//	release parts    completions, manual pages, licences, packages for VMs, release notes
//	release bill     the bill of materials of an archive, or of a Debian or RPM package
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/vmpackage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("give parts or bill")
	}
	switch arguments[0] {
	case "parts":
		return runParts(ctx, arguments[1:])
	case "bill":
		return runBill(arguments[1:])
	}
	return fmt.Errorf("%q: give parts or bill", arguments[0])
}

// runParts makes all parts in a folder.
func runParts(ctx context.Context, arguments []string) error {
	var p parts
	flags := flag.NewFlagSet("parts", flag.ContinueOnError)
	flags.StringVar(&p.out, "out", "", "`folder` of the parts")
	flags.StringVar(&p.version, "version", "", "of the release, such as v1.2.3")
	flags.BoolVar(&p.snapshot, "snapshot", false, "make no release notes")
	at := flags.String("time", "0", "time of all files, in `seconds` since 1970")
	// A variable, since a template of GoReleaser cannot leave an argument out.
	architectures := os.Getenv("PACKAGE_ARCHITECTURES")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(*at, 10, 64)
	if err != nil {
		return fmt.Errorf("-time: %w", err)
	}
	p.time = time.Unix(seconds, 0)
	if architectures != "" {
		p.architectures = strings.Split(architectures, ",")
	}
	return p.make(ctx)
}

// runBill writes the bill of materials of an archive or package: FILE DOCUMENT VERSION.
func runBill(arguments []string) error {
	const wanted = 3
	if len(arguments) != wanted {
		return errors.New("bill: give an archive, a document and a version")
	}
	bill, err := vmpackage.ArchiveBill(debOf(arguments[0]), arguments[2])
	if err != nil {
		return err
	}
	return os.WriteFile(arguments[1], bill, readable)
}

// rpmName is the name of an RPM package: name, version, release, architecture.
var rpmName = regexp.MustCompile(`^(.+?)-(\d[^-]*)-\d+\.(x86_64|aarch64)\.rpm$`)

// debOf returns the Debian package beside an RPM package, which has the same files, and any other
// file itself.
func debOf(file string) string {
	m := rpmName.FindStringSubmatch(filepath.Base(file))
	if m == nil {
		return file
	}
	architecture := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[m[3]]
	return filepath.Join(filepath.Dir(file), m[1]+"_"+m[2]+"_"+architecture+".deb")
}
