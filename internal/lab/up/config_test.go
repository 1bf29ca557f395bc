package up

import (
	"strings"
	"testing"
	"time"
)

func TestValidateNamesTheFlag(t *testing.T) {
	for flag, change := range map[string]func(*Config){
		"--vms":            func(c *Config) { c.VMs = 0 },
		"--files":          func(c *Config) { c.Files = -1 },
		"--job-time":       func(c *Config) { c.JobTime = -1 },
		"--eviction-delay": func(c *Config) { c.EvictionDelay = -1 },
		"--latency":        func(c *Config) { c.Local.Latency = time.Minute },
		"--throttle":       func(c *Config) { c.Local.Throttle = -1 },
		"--arm-port":       func(c *Config) { c.Local.ManagerPort = 70_000 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag+" ") {
			t.Errorf("Validate = %v, want an error that names %s", err, flag)
		}
	}
}
