package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// workers are the worker processes that lab up starts: one on each VM. They report to the
// controller's loop, which owns ready and failed.
type workers struct {
	fleet  *lab.Fleet
	logs   string          // folder of their logs
	news   chan news       // of all workers
	over   chan struct{}   // closed when nothing receives news
	ready  map[string]bool // VMs whose worker has taken jobs
	failed bool            // whether a worker ended unexpectedly
}

// news are something that a worker did: it takes jobs, has drained, or has ended unexpectedly.
type news struct {
	vm      string
	what    change
	details string
}

type change int

const (
	takesJobs change = iota
	drained          // details are the number of released jobs, and the time since the notice
	ended            // details are the last words of its log
)

// work starts the workers, serves until ctx ends, and ends the workers.
func (u *up) work(ctx context.Context) error {
	if err := u.openWorkers(); err != nil {
		return err
	}
	if err := u.startWorkers(ctx); err != nil {
		u.killWorkers()
		return err
	}
	if ctx.Err() == nil {
		u.guideAndServe(ctx)
	}
	return u.endWorkers()
}

// openWorkers prepares the workers, of which none runs yet.
func (u *up) openWorkers() (err error) {
	w := &u.workers
	w.news, w.over, w.ready = make(chan news), make(chan struct{}), map[string]bool{}
	if w.logs, err = os.MkdirTemp("", "spotworker-lab-logs-"); err != nil {
		return err
	}
	if u.config.Worker == "" {
		if u.config.Worker, err = os.Executable(); err != nil {
			return err
		}
	}
	args := []string{labworker.Command, "--data-container=" + lab.InputContainer, "--default-kind=digest", "--scratch=" + u.folder}
	if u.config.KindsFile != "" {
		args = append(args, "--kinds-file="+u.config.KindsFile)
	}
	if u.config.Commands {
		args = append(args, "--commands")
	}
	w.fleet = lab.NewFleet(lab.FleetConfig{
		Worker: u.config.Worker, ConnectionString: u.local.ConnectionString, Endpoint: u.local.Endpoint, Args: args, Logs: w.logs,
		OnLine: w.read,
		OnEnd:  func(vm *lab.VM, err error) { w.tell(news{vm.Name, ended, lastWords(vm.LogFile, err)}) },
	})
	return nil
}

// startWorkers starts a worker on each VM, and waits until all of them take jobs. It returns
// nil if ctx ends before.
func (u *up) startWorkers(ctx context.Context) error {
	w, vms := &u.workers, u.present()
	for _, vm := range vms {
		if _, err := w.fleet.Start(vm); err != nil {
			return err
		}
	}
	for len(w.ready) < len(vms) {
		select {
		case n := <-w.news:
			if n.what == ended {
				return fmt.Errorf("the worker on %s ended before it took jobs: %s", n.vm, n.details)
			}
			w.ready[n.vm] = true
		case <-ctx.Done():
			return nil
		}
	}
	u.narrator.Say("%s started, and a worker on each. Their logs are in %s.", strings.Join(vms, ", "), w.logs)
	return nil
}

// read reads a line of a worker's log.
func (w *workers) read(vm string, raw []byte) {
	var line struct {
		Msg, To     string
		Released    int
		SinceNotice string `json:"since_notice"`
	}
	switch err := json.Unmarshal(raw, &line); {
	case err != nil: // not of the log, such as a panic
	case line.Msg == "state changed" && line.To == lifecycle.Process.String():
		w.tell(news{vm: vm, what: takesJobs})
	case line.Msg == "drained":
		w.tell(news{vm, drained, text.Plural(line.Released, "job") + ", " + line.SinceNotice})
	}
}

func (w *workers) tell(n news) {
	select {
	case w.news <- n:
	case <-w.over:
	}
}

// hear prints what a worker did, and replaces a VM whose worker has ended. A worker that never took
// jobs would end in the same way on another VM: it is not replaced.
func (u *up) hear(n news) {
	switch {
	case u.gone[n.vm]:
	case n.what == takesJobs && !u.workers.ready[n.vm]:
		u.workers.ready[n.vm] = true
		u.narrator.Say("The worker on %s takes jobs.", n.vm)
	case n.what == drained:
		u.observe(time.Now()) // the notice is said first
		u.narrator.Say("The worker on %s has released %s after it read the notice.", n.vm, n.details)
	case n.what == ended && !u.workers.ready[n.vm]:
		u.workers.failed = true
		u.narrator.Say("The worker on %s ended before it took jobs: %s. Correct that, and evict the VM: another replaces it.",
			n.vm, n.details)
	case n.what == ended:
		u.workers.failed = true
		next := u.replace(n.vm)
		u.narrator.Say("The worker on %s ended unexpectedly: %s. %s replaces the VM. Its jobs continue 30 s after the last renewal of "+
			"their messages.", n.vm, n.details, next)
		u.startWorker(next)
	}
}

// startWorker starts a worker on a VM that replaces another.
func (u *up) startWorker(vm string) {
	if _, err := u.workers.fleet.Start(vm); err != nil {
		u.narrator.Say("%v.", err)
	}
}

// kill kills the worker of a VM that is gone. It does not wait: the worker's last news are to be
// received first.
func (w *workers) kill(name string) {
	for _, vm := range w.fleet.Running() {
		if vm.Name == name {
			go vm.Kill()
		}
	}
}

// killWorkers ends the workers after one of them could not be started. The logs stay.
func (u *up) killWorkers() {
	close(u.workers.over)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = u.workers.fleet.Close(now) // what it says of killed workers explains nothing
	u.sayLogs()
}

func (u *up) sayLogs() { u.narrator.Say("The workers' logs stay in %s.", u.workers.logs) }

// endWorkers lets the workers hand over their jobs and end. It kills them when the person
// loses patience. The logs stay if a worker failed.
func (u *up) endWorkers() error {
	w := &u.workers
	close(w.over)
	impatient := context.Background()
	if u.config.Patience != nil {
		var stop context.CancelFunc
		impatient, stop = u.config.Patience()
		defer stop()
	}
	ctx, cancel := context.WithTimeout(impatient, lab.HandOver)
	defer cancel()
	if n := len(w.fleet.Running()); n > 0 {
		u.down.Store(false) // they save their jobs' states
		u.narrator.Say("The workers save their jobs and end. Ctrl-C again kills them.")
	}
	err := w.fleet.Close(ctx)
	switch {
	case impatient.Err() != nil:
		u.narrator.Say("The workers were killed.")
		err = nil
	case err != nil:
		w.failed = true
	}
	if w.failed {
		u.sayLogs()
		return err
	}
	return errors.Join(err, sandbox.RemoveTree(w.logs))
}

// mostWords is how much of the end of a log is searched for its last words.
const mostWords = 16 << 10

// lastWords returns in one line how a worker ended, and the end of its log: a panic, or else the last
// line.
func lastWords(log string, exit error) string {
	how := "exit status 0"
	if exit != nil {
		how = exit.Error()
	}
	file, err := os.Open(log)
	if err != nil {
		return how
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > mostWords {
		_, _ = file.Seek(-mostWords, io.SeekEnd)
	}
	end, _ := io.ReadAll(file)
	var last []byte
	for line := range bytes.Lines(end) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		last = line
		if bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: ")) {
			break
		}
	}
	var entry struct{ Msg, Error string }
	if json.Unmarshal(last, &entry) == nil && entry.Msg != "" {
		last = []byte(strings.TrimSuffix(entry.Msg+": "+entry.Error, ": "))
	}
	if len(last) == 0 {
		return how
	}
	return how + ", and its log ends with: " + plaintext.Line(string(last))
}
