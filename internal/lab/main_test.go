package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary act as a worker: started as one, its first
// argument is its role.
func TestMain(m *testing.M) {
	if strings.Contains(strings.Join(os.Args, " "), "--metadata-endpoint=") {
		fakeWorker(os.Args[1])
		return
	}
	goleak.VerifyTestMain(m)
}

// fakeWorker logs its environment and arguments, and ends as its role requires.
func fakeWorker(role string) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	out := bufio.NewWriter(os.Stderr)
	line := func(msg string, values []string) {
		raw, _ := json.Marshal(map[string]any{"msg": msg, "values": values})
		fmt.Fprintf(out, "%s\n", raw)
	}
	line("environment", os.Environ())
	line("arguments", os.Args)
	line("ready", nil)
	out.Flush()
	if role == "stubborn" {
		for { // until it is killed
			time.Sleep(time.Hour)
		}
	}
	<-terminated
}
