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

A job's id is its idempotency key.
Each id gets one outcome. Its handler may run more than once: what was done
since the last checkpoint is done again after a crash or a lost message, a
worker that was cut off runs on until it learns of its successor, and two
messages of one generated id (storage repeats a put whose reply was lost) may
run side by side until the first save of one is refused. An id of your own is
looked up first: no handler starts while another worker has the job, or once
it is over, for as long as its record is kept.
So after an interruption the same input can be put again, if the ids are its own.

Put and lines read the record of each id that is given before they put its job
(--no-check does not). A job that is over is skipped. One that is waiting or
running gets one more message, which resumes it should the one before be lost.
An id that stands for other work fails.

With --wait the program stays until the jobs have ended, those too that were
put or done before. Each result is printed when it is there: the id, a tab, and
the result as it is. Ctrl-C ends the waiting, not the jobs.

With --json standard output has an object per line: one when a job is enqueued,
skipped or failed, another when it is done, poison or cancelled, and at the end
a summary. A result that is JSON stands as it is, text as a string, and other
bytes as result_base64:

  {"id":"a","status":"enqueued","where":"line 1"}
  {"id":"a","status":"done","result":{"sha256":"9f86d081884c7d65…"}}
  {"summary":{"enqueued":1,"skipped":0,"failed":0,"waited":{"done":1,…},…}}

A job whose worker died is taken over by a new message only after an hour, since
its worker might be alive. --take-over is for when it is known to be dead: it
opens the job's record, so that the new message counts at once, and leaves jobs
alone that are done, poison or cancelled. A worker that was alive after all
loses what it has not saved.

Flags for storage can also be set in the environment, as SPOTWORKER_ and the
flag's name (--prefix is SPOTWORKER_PREFIX). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

Exit codes: 0 all jobs are on the queue or done before, and with --wait done; 78
wrong flags or configuration; 1 anything else, such as an id whose job is poison
or cancelled.`

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
	r := newReport(&f, newScreen(stdout, stderr, !f.Quiet))
	return r.finish(f.command.run(ctx, &session{report: r, flags: &f, stdin: stdin}))
}
