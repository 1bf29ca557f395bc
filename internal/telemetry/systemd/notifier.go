package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

const (
	// statusEvery is how often the status is read, besides at changes.
	statusEvery = 15 * time.Second

	// stopMargin is the time for the end of the process after the drain.
	stopMargin = 10 * time.Second
)

// Config has the sources of a notifier's reports.
type Config struct {
	// DrainBudget is how long the worker may take to hand over when it is
	// asked to end.
	DrainBudget time.Duration

	// Status returns the worker's activity, in a few words.
	Status func() string

	// Healthy reports whether the worker's loops turn.
	Healthy func() bool

	// Log receives errors.
	Log *slog.Logger
}

// Notifier talks to the service manager.
type Notifier struct {
	Config
	watchdog time.Duration // the time after which a silent service is restarted; 0 if never
	present  bool          // there is a service manager to talk to
	changed  chan struct{} // holds one: there is something to tell

	mu       sync.Mutex
	stopping bool

	// The last messages; both belong to Run.
	status      string
	saidStop    bool
	saidTrouble bool
}

// New returns a notifier for the service manager that the environment names, if
// it does.
func New(c Config) *Notifier {
	n := &Notifier{Config: c, changed: make(chan struct{}, 1), present: os.Getenv("NOTIFY_SOCKET") != ""}
	if !n.present {
		return n
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		c.Log.Warn("service manager's watchdog is not used", "error", err)
	}
	n.watchdog = watchdog
	return n
}

// Changed reports that the status may have changed. It does not wait.
func (n *Notifier) Changed() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Stopping reports that the process was asked to stop. It does not wait.
func (n *Notifier) Stopping() {
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	n.Changed()
}

// Run reports that the worker is up, and then each change, until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	if !n.present {
		return
	}
	n.say(ctx, daemon.SdNotifyReady+"\n"+n.newStatus())
	ticker := time.NewTicker(n.interval())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			n.tell(ctx)
			return
		case <-n.changed:
			n.tell(ctx)
		case <-ticker.C:
			n.tell(ctx)
			if n.watchdog > 0 && n.Healthy() {
				n.say(ctx, daemon.SdNotifyWatchdog)
			}
		}
	}
}

// interval is half of the watchdog's, so that one message may be late.
func (n *Notifier) interval() time.Duration {
	if n.watchdog > 0 {
		return min(n.watchdog/2, statusEvery)
	}
	return statusEvery
}

// tell sends the changes.
func (n *Notifier) tell(ctx context.Context) {
	n.mu.Lock()
	stopping := n.stopping
	n.mu.Unlock()
	var lines []string
	if status := n.newStatus(); status != "" {
		lines = append(lines, status)
	}
	if stopping && !n.saidStop {
		n.saidStop = true
		extend := (n.DrainBudget + stopMargin).Microseconds()
		lines = append(lines, daemon.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extend))
	}
	if len(lines) > 0 {
		n.say(ctx, strings.Join(lines, "\n"))
	}
}

// newStatus returns the line of a status that was not told yet, or nothing.
func (n *Notifier) newStatus() string {
	status := n.Status()
	if status == n.status {
		return ""
	}
	n.status = status
	return "STATUS=" + status
}

// say sends a message. It logs the first failure; the worker continues without.
func (n *Notifier) say(ctx context.Context, message string) {
	_, err := daemon.SdNotify(false, message)
	if err != nil && !n.saidTrouble {
		n.saidTrouble = true
		n.Log.WarnContext(ctx, "systemd not notified of the worker's state; its watchdog may restart the worker", "error", err)
	}
}
