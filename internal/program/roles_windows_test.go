package program

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/windows"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/job"
)

// roles are the programs that the test binary can be. They return exit codes.
var roles = map[string]func() int{
	"outputs": writesOutputs,
	"environment": func() int {
		here, err := os.Getwd()
		data, _ := json.Marshal(map[string]any{"environment": os.Environ(), "arguments": os.Args[1:], "directory": here})
		return worked(err, putFile(envResult, data))
	},
	"exit": func() int {
		fmt.Fprint(os.Stderr, os.Getenv("COMPLAINT"))
		code, _ := strconv.ParseUint(os.Getenv("CODE"), 0, 32)
		return int(code)
	},
	"saves": func() int { // saves at the stop, as the stop file says
		stopped := make(chan os.Signal, 1)
		signal.Notify(stopped, os.Interrupt)
		_ = os.WriteFile("ready", nil, 0o600)
		for len(stopped) == 0 && !exists(os.Getenv(envStop)) {
			time.Sleep(20 * time.Millisecond)
		}
		var note []byte
		err := retryHeld(func() (err error) { // the worker's rename may hold it still
			note, err = os.ReadFile(os.Getenv(envStop))
			return err
		})
		return max(worked(err, putFile(envCheckpoint, note)), exitTempFail)
	},
	"unaware": func() int { // has no handler for Ctrl-Break
		_ = os.WriteFile("ready", nil, 0o600)
		time.Sleep(time.Minute)
		return 97
	},
	"stubborn": func() int { // ignores Ctrl-Break, as its child and grandchild do
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		if os.Getenv("IDS") == "" {
			return worked(putFile(envCheckpoint, []byte("first")), sleepLong())
		}
		return worked(putIDs(2), putFile(envCheckpoint, []byte("first")), sleepLong())
	},
	"descendant": func() int { // holds a file open in the job's folder
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		more, _ := strconv.Atoi(os.Getenv("DESCENDANTS"))
		held, err := os.Create(filepath.Join(os.Getenv("TEMP"), "held by "+os.Getenv("DESCENDANTS")))
		err = first(err, putIDs(more), sleepLong())
		_ = held.Close()
		return worked(err)
	},
	"leaves children": func() int { return worked(putIDs(2)) },
	"worker": func() int { // runs a job in a scratch folder, until it is killed
		log := slog.New(slog.DiscardHandler)
		scratch, err := scratch.Open(os.Getenv("SCRATCH"), nil, log)
		if err != nil {
			return worked(err)
		}
		program, _ := os.Executable()
		k := Kind{Command: []string{program}, Environment: map[string]string{roleVariable: "stubborn", "IDS": os.Getenv("IDS")}}
		_, err = NewHandler(k, scratch, nil, nil, nil, log).Run(context.Background(), job.New(job.Spec{ID: "a"}, nil))
		return worked(err)
	},
	"long paths": func() int { // a checkpoint whose files have paths of more than 260 characters
		dir := filepath.Join(os.Getenv("TEMP"), "new")
		deep := filepath.Join(dir, strings.Repeat(`ä folder with a long name\`, 12))
		return worked(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "file"), []byte("deep"), 0o600),
			os.Rename(dir, os.Getenv(envCheckpoint)))
	},
}

// putIDs starts so many descendants, each a child of the one before, and appends this
// process's id to the file in IDS.
func putIDs(descendants int) error {
	file, err := os.OpenFile(os.Getenv("IDS"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, os.Getpid())
	if err := first(err, file.Close()); err != nil || descendants == 0 {
		return err
	}
	child := exec.Command(os.Args[0]) //nolint:noctx // it is killed
	child.Env = append(os.Environ(), roleVariable+"=descendant", "DESCENDANTS="+strconv.Itoa(descendants-1))
	if err := child.Start(); err != nil {
		return err
	}
	for started := 0; started < 3; time.Sleep(5 * time.Millisecond) { // all of them
		started = len(readIDs(os.Getenv("IDS")))
	}
	return nil
}

// readIDs returns the process ids in a file.
func readIDs(name string) (ids []int) {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if id, err := strconv.Atoi(lines.Text()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sleepLong waits for much longer than any test.
func sleepLong() error { time.Sleep(time.Minute); return nil }

// retryHeld repeats what fails while another process has a file open, as programs must.
func retryHeld(f func() error) error { return sandbox.WhileHeld(time.Second, f) }

// putFile puts a file where a variable says, by renaming it.
func putFile(variable string, data []byte) error {
	name := filepath.Join(os.Getenv("TEMP"), "new-"+variable)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	return retryHeld(func() error { return os.Rename(name, os.Getenv(variable)) })
}

func worked(errs ...error) int {
	if err := first(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 91
	}
	return 0
}

// errDiskFull is the error of a full disk.
const errDiskFull = windows.ERROR_DISK_FULL
