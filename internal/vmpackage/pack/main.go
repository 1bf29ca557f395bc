// Command pack makes the packages for VMs; make package calls it. With -package it
// adds a configuration to an existing package and writes the file that -out names. With
// -image it makes a container image.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/vmpackage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var c vmpackage.Config
	flag.StringVar(&c.Worker, "worker", "./cmd/worker", "`folder` of the worker's main package")
	flag.StringVar(&c.Handlers, "handlers", "", "`folder` with programs for jobs and kinds.json")
	flag.StringVar(&c.Version, "version", "", "what the package calls itself")
	flag.StringVar(&c.Out, "out", "dist", "`folder` that the packages go into")
	architectures := flag.String("architectures", "", "such as amd64,arm64; empty for all there are")
	at := flag.String("time", "0", "time of all files, in `seconds` since 1970")
	archive := flag.String("package", "", "`file` of a package to add -configuration to, in place of making any")
	flag.StringVar(&c.SigningKey, "sign", "",
		"`file` of the private SSH key, or of the public one of a key in an agent, to sign packages with")
	configuration := flag.String("configuration", "", "`file` with settings, which becomes worker.env")
	image := flag.Bool("image", false, "make a container image in place of packages, for amd64 and arm64 if -architectures is empty")
	flag.Parse()
	if *archive != "" {
		return vmpackage.Configure(*archive, *configuration, c.Out)
	}
	seconds, err := strconv.ParseInt(*at, 10, 64)
	if err != nil {
		return fmt.Errorf("-time %q is no number of seconds", *at)
	}
	c.Time = time.Unix(seconds, 0)
	if *architectures != "" {
		c.Architectures = strings.Split(*architectures, ",")
	}
	if *image {
		return makeImage(ctx, c)
	}
	packages, err := vmpackage.Make(ctx, c)
	for _, p := range packages {
		fmt.Printf("%s: %s, %.1f MiB\n", p.Path, p.Release, float64(p.Size)/(1<<20))
	}
	return err
}

// makeImage makes the container image and prints its path.
func makeImage(ctx context.Context, c vmpackage.Config) error {
	if len(c.Architectures) == 0 {
		c.Architectures = []string{"amd64", "arm64"}
	}
	path, err := vmpackage.MakeImage(ctx, c)
	if err == nil {
		fmt.Println(path)
	}
	return err
}
