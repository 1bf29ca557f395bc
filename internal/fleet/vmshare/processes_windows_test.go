package vmshare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

const pathVariable = "RUNTIMEDIR_TEST_PATH"

// child is a worker of the test below: it has its place until it is killed.
func child() {
	d, err := Open(context.Background(), Config{Path: os.Getenv(pathVariable), Instance: os.Getenv(childVariable)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	time.Sleep(time.Minute)
	d.Close()
}

// TestTwoProcesses has a worker beside another process's, which is killed.
func TestTwoProcesses(t *testing.T) {
	path := t.TempDir()
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), childVariable+"=0", pathVariable+"="+path)
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill() }) // fails when it has ended
	if said, err := bufio.NewReader(output).ReadString('\n'); said != "open\n" {
		t.Fatalf("the other worker says %q, %v, want that it is open", said, err)
	}
	if _, err := Open(t.Context(), Config{Path: path, Instance: "0"}); !isInUse(err) {
		t.Errorf("Open the other's name = %v, want an InUseError", err)
	}
	second, err := Open(t.Context(), Config{Path: path, Instance: "1"})
	if err != nil {
		t.Fatalf("Open another name = %v", err)
	}
	defer second.Close()
	if second.Place() != 1 {
		t.Errorf("place of the second worker = %d, want 1", second.Place())
	}
	_ = other.Process.Kill()
	_ = other.Wait()
	third, err := Open(t.Context(), Config{Path: path, Instance: "0"})
	if err != nil {
		t.Fatalf("Open the name of a killed worker = %v", err)
	}
	defer third.Close()
	if third.Place() != 0 {
		t.Errorf("place of the next worker = %d, want the killed one's, 0", third.Place())
	}
}

func isInUse(err error) bool {
	_, ok := errors.AsType[*InUseError](err)
	return ok
}

// TestSinceBoot compares the clock of all processes with this process's.
func TestSinceBoot(t *testing.T) {
	begun := time.Now()
	before := sinceBoot()
	time.Sleep(50 * time.Millisecond)
	if counted, passed := sinceBoot()-before, time.Since(begun); counted < 30*time.Millisecond || counted > passed+20*time.Millisecond {
		t.Errorf("sinceBoot counted %s in %s, want the same but for a tick of 16 ms", counted, passed)
	}
}
