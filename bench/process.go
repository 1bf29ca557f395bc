package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// answerTimeout is how long a process may take to answer a line.
const answerTimeout = 30 * time.Second

// process is a child that answers lines of standard input with lines of JSON.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	output *os.File // closed with the process, so that no read waits for ever
	log    string   // file of its log
	stop   sync.Once
}

// startProcess starts a program on a core, with GOMAXPROCS=1. Its log goes to a file,
// as a service's log does.
func (b *bench) startProcess(ctx context.Context, core int, env []string, program string, args ...string) (*process, error) {
	log, err := os.CreateTemp(b.folder, "log-")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	program, args = b.pin(core, program, args)
	cmd := command(ctx, env, program, args)
	cmd.Stdout, cmd.Stderr = write, log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, read.Close())
	}
	return &process{cmd: cmd, in: in, out: bufio.NewScanner(read), output: read, log: log.Name()}, nil
}

// pin returns how to run a program on a core, or as it is where that is not possible.
func (b *bench) pin(core int, program string, args []string) (string, []string) {
	if !b.pinned {
		return program, args
	}
	return b.self, append([]string{"pin", fmt.Sprintf("--priority=%d", b.Priority), strconv.Itoa(b.cores[core]), program, "--"}, args...)
}

// command is a program with GOMAXPROCS=1.
func command(ctx context.Context, env []string, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // programs that this one built
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=1"), env...)
	return cmd
}

// answer reads the next line into v.
func (p *process) answer(v any) error { return p.answerWithin(answerTimeout, v) }

func (p *process) answerWithin(limit time.Duration, v any) error {
	if err := p.output.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if !p.out.Scan() {
		return fmt.Errorf("%s ended or did not answer: %w", p.cmd.Path, errors.Join(p.out.Err(), io.ErrUnexpectedEOF))
	}
	return json.Unmarshal(p.out.Bytes(), v)
}

// ask writes a line and reads the answer into v.
func (p *process) ask(v any) error {
	if _, err := p.in.Write([]byte("\n")); err != nil {
		return err
	}
	return p.answer(v)
}

// kill ends the process and waits for it.
func (p *process) kill() {
	p.stop.Do(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // killed
		_ = p.output.Close()
		_ = os.Remove(p.log)
	})
}

// storageProcess is a running storage account.
type storageProcess struct {
	*process
	connectionString string
}

// startStorage starts a storage account with so many jobs; more are flags of its process.
func (b *bench) startStorage(ctx context.Context, latency time.Duration, messages int, more ...string) (*storageProcess, error) {
	args := append([]string{"storage", "--latency", latency.String(), "--messages", strconv.Itoa(messages)}, more...)
	p, err := b.startProcess(ctx, storageCore, []string{"GOGC=400"}, b.self, args...)
	if err != nil {
		return nil, err
	}
	var first opened
	if err := p.answer(&first); err != nil {
		p.kill()
		return nil, fmt.Errorf("start the storage: %w", err)
	}
	return &storageProcess{p, first.ConnectionString}, nil
}

func (s *storageProcess) counts() (counts, error) {
	var c counts
	err := s.ask(&c)
	return c, err
}
