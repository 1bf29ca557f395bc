//go:build unix

package program

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/job"
)

// roles are the programs that the test binary can be. They return exit codes.
var roles = map[string]func() int{
	"echo": func() int { // the payload is the result
		payload, err := os.ReadFile(os.Getenv(envPayload))
		return worked(err, putFile(envResult, payload))
	},
	"environment": func() int {
		here, err := os.Getwd()
		data, _ := json.Marshal(map[string]any{"environment": os.Environ(), "arguments": os.Args[1:], "directory": here})
		return worked(err, putFile(envResult, data))
	},
	"exit": func() int {
		fmt.Fprint(os.Stderr, os.Getenv("COMPLAINT"))
		code, _ := strconv.Atoi(os.Getenv("CODE"))
		return code
	},
	"signal": func() int { // ends itself by a signal
		number, _ := strconv.Atoi(os.Getenv("SIGNAL"))
		_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
		sleep()
		return 98
	},
	"print": func() int {
		fmt.Print(os.Getenv("STDOUT"))
		fmt.Fprint(os.Stderr, os.Getenv("STDERR"))
		return 0
	},
	"flood": func() int {
		for i := range 300_000 {
			fmt.Println("line", i)
		}
		return 0
	},
	"outputs":         writesOutputs,
	"replaces a name": replacesName,
	"count":           count,
	"stubborn": func() int { // ignores SIGTERM, after one checkpoint
		signal.Ignore(syscall.SIGTERM)
		if err := putFile(envCheckpoint, []byte("first")); err != nil {
			return worked(err)
		}
		sleep()
		return 97
	},
	"careless": func() int { // takes SIGTERM for its end, with the work half done
		onTerm(func() { os.Exit(0) })
		sleep()
		return 97
	},
	"unaware": func() int { // has no handler for SIGTERM
		_ = os.WriteFile("ready", nil, 0o600)
		sleep()
		return 97
	},
	"worker": func() int { // runs a job in a scratch folder, until it is killed
		log := slog.New(slog.DiscardHandler)
		scratch, err := scratch.Open(os.Getenv("SCRATCH"), nil, log)
		if err != nil {
			return worked(err)
		}
		program, _ := os.Executable()
		k := Kind{Command: []string{program}, Environment: map[string]string{roleVariable: "tells its id", "PID_FILE": os.Getenv("PID_FILE")}}
		_, err = NewHandler(k, scratch, nil, nil, nil, log).Run(context.Background(), job.New(job.Spec{ID: "a"}, nil))
		return worked(err)
	},
	"tells its id": func() int {
		_ = os.WriteFile(os.Getenv("PID_FILE"), []byte(strconv.Itoa(os.Getpid())), 0o600)
		sleep()
		return 97
	},
	"late result": func() int { // has its result in place when it is stopped
		onTerm(func() { os.Exit(worked(putFile(envResult, []byte("whole")))) })
		sleep()
		return 97
	},
	"saves": func() int { // saves at the stop, as the stop file says
		onTerm(func() {
			note, err := os.ReadFile(os.Getenv(envStop))
			os.Exit(max(worked(err, putFile(envCheckpoint, note)), exitTempFail))
		})
		sleep()
		return 97
	},
	"saves a folder": func() int {
		onTerm(func() {
			dir := filepath.Join(os.Getenv("TMPDIR"), "new")
			code := worked(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "a"), []byte("at the stop"), 0o600),
				os.Rename(dir, os.Getenv(envCheckpoint)))
			os.Exit(max(code, exitTempFail))
		})
		sleep()
		return 97
	},
	"forks": func() int { // leaves a child that ignores SIGTERM and holds its output
		child := exec.Command("/bin/sh", "-c", "trap '' TERM; sleep 600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		err := child.Start()
		code, _ := strconv.Atoi(os.Getenv("CODE"))
		return max(worked(err, putFile(envCheckpoint, []byte(strconv.Itoa(child.Process.Pid)))), code)
	},
	"leaves the stop to its child": func() int { // and saves the result of that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
		child := exec.Command("/bin/sh", "-c", "trap 'exit 3' TERM; : >ready; while :; do sleep 0.02; done")
		err := child.Run()
		if child.ProcessState == nil || child.ProcessState.ExitCode() != 3 {
			return worked(err)
		}
		return max(worked(putFile(envCheckpoint, []byte("the child was told"))), exitTempFail)
	},
	"half": func() int { // writes a checkpoint that it never renames
		_ = os.WriteFile(filepath.Join(os.Getenv("TMPDIR"), "checkpoint"), []byte("ha"), 0o600)
		return 3
	},
	"large checkpoint": func() int { return put(envCheckpoint, 300_000) },
	"large result":     func() int { return put(envResult, 1<<20+1) },
	"linked checkpoint": func() int {
		return worked(os.Symlink("/etc/hostname", os.Getenv(envCheckpoint)))
	},
	"linked result":    func() int { return worked(os.Symlink("/etc/hostname", os.Getenv(envResult))) },
	"result is a pipe": func() int { return worked(syscall.Mkfifo(os.Getenv(envResult), 0o600)) },
	"folder with a link": func() int {
		dir := filepath.Join(os.Getenv("TMPDIR"), "new")
		return worked(os.Mkdir(dir, 0o700), os.Symlink("/etc/hostname", filepath.Join(dir, "link")), os.Rename(dir, os.Getenv(envCheckpoint)))
	},
	"fills the disk": func() int { // with many files, and continues
		for i := 0; ; i++ {
			if err := os.WriteFile(fmt.Sprint(i), make([]byte, 50_000), 0o600); err != nil {
				return 96
			}
			time.Sleep(10 * time.Millisecond)
		}
	},
	"puts too much": func() int {
		return worked(putFile(envResult, make([]byte, 4<<20)))
	},
	"one large file": func() int {
		if err := os.Chdir(os.Getenv("ELSEWHERE")); err != nil { // the size of the job's folder is watched
			return worked(err)
		}
		return worked(os.WriteFile("large", make([]byte, 2<<20), 0o600))
	},
	"eats memory": func() int {
		debug.SetGCPercent(-1) // a collection that gets no memory ends by SIGSEGV, without a word about memory
		var all [][]byte
		for range 64 {
			piece := make([]byte, 16<<20)
			for i := range piece {
				piece[i] = 1
			}
			all = append(all, piece)
		}
		return len(all)
	},
	"progress": func() int {
		file, err := os.OpenFile(os.Getenv(envProgress), os.O_WRONLY|os.O_APPEND, 0)
		_, _ = file.WriteString(strings.ReplaceAll(os.Getenv("LINES"), "|", "\n"))
		onTerm(func() { os.Exit(exitTempFail) })
		if worked(err) == 0 {
			sleep()
		}
		return 97
	},
	"restores": func() int { // the restored checkpoint is the result
		name := os.Getenv(envRestore)
		if name == "" {
			return worked(putFile(envResult, []byte("fresh")))
		}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			name = filepath.Join(name, "a")
		}
		data, err := os.ReadFile(name)
		return worked(err, putFile(envResult, data))
	},
	"locks itself out": func() int {
		_ = os.MkdirAll("closed/inner", 0o700)
		_ = os.WriteFile("closed/inner/file", nil, 0o600)
		return worked(os.Chmod("closed/inner", 0), os.Chmod("closed", 0))
	},
}

// count adds up 0 … N-1, one number at a time. It saves after each, in whole
// files, and stops when it is asked to. With MOST it adds up so many and then waits for
// that.
func count() int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	var state struct{ Next, Sum int }
	if data, err := os.ReadFile(os.Getenv(envRestore)); err == nil && json.Unmarshal(data, &state) != nil {
		return 93
	}
	n, _ := strconv.Atoi(os.Getenv("N"))
	most, bounded := os.LookupEnv("MOST")
	left, _ := strconv.Atoi(most)
	for ; state.Next < n; left-- {
		if bounded && left == 0 {
			<-term
			return exitTempFail
		}
		select {
		case <-term:
			return exitTempFail
		case <-time.After(20 * time.Millisecond):
		}
		state.Sum += state.Next
		state.Next++
		data, _ := json.Marshal(state)
		if err := putFile(envCheckpoint, data); err != nil {
			return 92
		}
	}
	return worked(putFile(envResult, []byte(strconv.Itoa(state.Sum))))
}

// putFile puts a file where a variable says, by renaming it.
func putFile(variable string, data []byte) error {
	name := filepath.Join(os.Getenv("TMPDIR"), "new-"+variable)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	return os.Rename(name, os.Getenv(variable))
}

func put(variable string, size int) int {
	return worked(putFile(variable, []byte(strings.Repeat("x", size))))
}

func worked(errs ...error) int {
	for _, err := range errs {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 91
		}
	}
	return 0
}

func onTerm(act func()) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		act()
	}()
	_ = os.WriteFile("ready", nil, 0o600)
}

// sleep waits for much longer than any test.
// sleep sleeps for longer than the tests are patient.
func sleep() { time.Sleep(10 * time.Minute) }

// errDiskFull is the error of a full disk.
const errDiskFull = syscall.ENOSPC
