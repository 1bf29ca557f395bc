// Command producer puts jobs on an Azure Storage queue.
// Run it with --help for its commands.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spotworker/spotworker/internal/cli"
)

// version is set by the linker.
var version = "devel"

const description = `Puts jobs on an Azure Storage queue, for workers to do.

The id of each job is printed, one per line, once the service has confirmed
that the job is on the queue; from then on it cannot be lost. What went wrong
and a summary go to standard error. Queues and containers that are missing are
created.

A job's id is its idempotency key: work that is put twice under one id is done
once. So after an interruption the same input can be put again, if the ids are
its own.

Flags for storage can also be set in the environment, as SPOTWORKER_ and the
flag's name (--prefix is SPOTWORKER_PREFIX). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

Exit codes: 0 all jobs are on the queue, 78 wrong flags or configuration,
1 anything else.`

func main() {
	cli.Exit("producer", run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var f flags
	program := cli.Program{
		Name: "producer", Description: description, Version: version,
		Vars: map[string]string{"max_parallel": strconv.Itoa(maxParallel)},
	}
	done, err := program.Parse(&f, args, stdout)
	if done || err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return f.command.run(ctx, &session{flags: &f, stdin: stdin, stdout: stdout, stderr: stderr})
}
