package scratch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary a worker that opens a scratch folder on request.
const roleVariable = "SPOTWORKER_TEST_SCRATCH"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// serve opens a scratch folder on request, and reports whether it is still there.
func serve() error {
	fmt.Println("ready")
	var s *Root
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		var err error
		if orders.Text() == "open" {
			s, err = Open(os.Getenv("SCRATCH"), nil, slog.New(slog.DiscardHandler))
		} else if _, err = os.Stat(lockOf(s.home.dir)); err == nil && !s.home.isThere() {
			err = errors.New("the folder is another one")
		}
		if err != nil {
			fmt.Println("lost:", err)
			continue
		}
		fmt.Println(orders.Text())
	}
	return s.Close()
}

// rig has the log of scratch folders.
type rig struct {
	t *testing.T

	mu   sync.Mutex
	text bytes.Buffer
}

func (b *rig) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *rig) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }

// logged returns how many lines have that message.
func (b *rig) logged(msg string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), `"msg":"`+msg+`"`)
}
