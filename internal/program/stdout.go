package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// setResult reads where the result of a program is.
func (k *parsedKind) setResult(v jsonpos.Value) error {
	switch v.Data {
	case "stdout", "file":
		k.result, k.ResultStdout = v.Data.(string), v.Data == "stdout"
		return nil
	}
	return v.Errorf(`give "stdout", so that the standard output of a program that writes no result file is the result, or "file"`)
}

// stdout keeps the standard output of a program, as its result or as an output. A checkpoint
// has the output up to it, as an output of the job, so that the next delivery adds to it. Nil
// does nothing.
type stdout struct {
	job    *job.Job
	folder *folder
	file   *os.File

	mu   sync.Mutex
	size int64 // bytes
	err  error // of the file

	// mark is how much belongs to the last checkpoint. A program's words reach the worker
	// later than its files: so it is set one look after the look that found a checkpoint,
	// and until then all belongs to it.
	mark  int64
	fresh bool  // the last look found a checkpoint
	sent  int64 // bytes that the output has
}

// openStdout makes the file, with the standard output that belongs to the restored checkpoint.
func openStdout(ctx context.Context, k *Kind, j *job.Job, f *folder) (*stdout, error) {
	if !k.ResultStdout {
		return nil, nil
	}
	s := &stdout{job: j, folder: f}
	err := f.User.Do(func() (err error) {
		s.file, err = os.OpenFile(filepath.Join(f.Dir, command.Stdout), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	j.Cleanup(func() { _ = s.file.Close() })
	continues := f.frozen != nil || f.restored && (len(f.ownFiles) == 0 || f.resumes)
	for _, o := range j.Outputs() {
		if o.Path != command.Stdout {
			continue
		}
		if !continues {
			j.RemoveOutput(o.Path)
			break
		}
		content, err := openRecorded(ctx, j, o.Path)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(s, content)
		if err := errors.Join(err, content.Close(), s.err); err != nil {
			return nil, err
		}
		s.mark, s.sent = s.size, s.size
	}
	return s, nil
}

// Write adds to the standard output. It never fails, since the program would block.
func (s *stdout) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		var n int
		n, s.err = s.file.WriteAt(p, s.size)
		s.size += int64(n)
	}
	return len(p), nil
}

// look records whether a look at the program found a checkpoint.
func (s *stdout) look(checkpoint bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh {
		s.mark = s.size
	}
	s.fresh = checkpoint
}

// send sends the standard output: with all, or what belongs to the last checkpoint.
func (s *stdout) send(ctx context.Context, all bool) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	size, sent := s.size, s.sent
	if !all && !s.fresh {
		size = s.mark
	}
	err := s.err
	s.mu.Unlock()
	switch {
	case err != nil:
		return s.folder.asInterruption(fmt.Errorf("keep the standard output: %w", err))
	case s.isTaken() && !all:
		return nil // a checkpoint is worth more; the end of the program reports it
	case s.isTaken():
		return job.Permanent(fmt.Errorf("output %s: %w: that name is for the standard output: give the file another one", command.Stdout,
			paths.ErrRefused))
	case size == sent:
		return nil
	case size == 0:
		s.job.RemoveOutput(command.Stdout)
	default:
		content := io.NewSectionReader(s.file, 0, size)
		if _, err := s.job.SendOutputOfSize(ctx, command.Stdout, size, content); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.sent = size
	s.mu.Unlock()
	return nil
}

// isTaken reports whether the program has an output of that name.
func (s *stdout) isTaken() bool {
	return s.folder.User.Do(func() error {
		_, err := os.Lstat(filepath.Join(s.folder.output, command.Stdout))
		return err
	}) == nil
}

// result returns the result of a program that is done: own, or without one the standard
// output, of which a long one is cut to its end. What is not the whole result is an output.
func (s *stdout) result(ctx context.Context, own []byte) ([]byte, error) {
	if s == nil {
		return own, nil
	}
	if s.err == nil && own == nil && s.size <= job.MaxResult && !s.isTaken() {
		s.job.RemoveOutput(command.Stdout)
		if s.size == 0 {
			return nil, nil
		}
		data := make([]byte, s.size)
		_, err := s.file.ReadAt(data, 0)
		return data, err
	}
	if err := s.send(ctx, true); err != nil || own != nil {
		return own, err
	}
	data := make([]byte, job.MaxResult)
	_, err := s.file.ReadAt(data, s.size-job.MaxResult)
	return data, err
}
