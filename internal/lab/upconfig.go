package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/arm"
)

// UpConfig describes a local Azure that stays until it is told to end.
type UpConfig struct {
	// Ports and whether managed identities are used. Control and Manager are
	// set by [Up].
	LocalConfig

	// VMs is how many there are at first, 1 … [MaxWorkers].
	VMs int

	// Flexible makes the scale set one of Flexible orchestration, as the one in
	// infra/bicep is: each VM is a resource of its own.
	Flexible bool

	// EvictionDelay is how long after a call of the resource manager a Preempt
	// appears.
	EvictionDelay time.Duration

	// Files, FileSize, Roots and JobTime are about the blobs to work on, as in
	// [Config]. Without files there are none.
	Files    int
	FileSize int64
	Roots    []string
	JobTime  time.Duration
}

// Default ports of `lab up`: those of blobs and queues are what Microsoft's
// emulators have.
const (
	DefaultBlobPort     = 10000
	DefaultQueuePort    = 10001
	DefaultMetadataPort = 10254
	DefaultManagerPort  = 8443
)

// DefaultUpConfig is what `lab up` does without flags.
func DefaultUpConfig() UpConfig {
	d := DefaultConfig()
	return UpConfig{
		LocalConfig: LocalConfig{
			BlobPort: DefaultBlobPort, QueuePort: DefaultQueuePort,
			MetadataPort: DefaultMetadataPort, ManagerPort: DefaultManagerPort,
		},
		EvictionDelay: arm.DefaultEvictionDelay,
		VMs:           2, Files: 8, FileSize: d.FileSize, JobTime: d.JobTime,
	}
}

// Validate says what must be changed, or returns nil.
func (c UpConfig) Validate() error {
	for flag, port := range map[string]int{
		"--blob-port": c.BlobPort, "--queue-port": c.QueuePort, "--metadata-port": c.MetadataPort, "--arm-port": c.ManagerPort,
	} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s %d is no port", flag, port)
		}
	}
	switch {
	case c.VMs < 1 || c.VMs > MaxWorkers:
		return fmt.Errorf("--vms %d is out of range: give 1 to %d", c.VMs, MaxWorkers)
	case c.Files < 0 || c.Files > MaxFiles:
		return fmt.Errorf("--files %d is out of range: give 0 to %d", c.Files, MaxFiles)
	case c.JobTime < 0:
		return errors.New("--job-time must not be negative")
	case c.EvictionDelay < 0:
		return errors.New("--eviction-delay must not be negative")
	}
	return nil
}
