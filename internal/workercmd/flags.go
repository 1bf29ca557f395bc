package workercmd

import (
	"fmt"
	"runtime"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/text/durations"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/sources"
)

// flags are the worker's settings.
type flags struct {
	cli.Storage
	cli.Log
	cli.Format

	DataContainer  []string         `help:"${about_data_container}" group:"Jobs" placeholder:"NAME"`
	KindsFile      string           `help:"${about_kinds_file}" group:"Jobs" placeholder:"FILE"`
	Commands       bool             `help:"${about_commands}" group:"Jobs"`
	ProgramUsers   string           `help:"${about_program_users}" default:"none" group:"Jobs" placeholder:"FIRST-LAST"`
	ControlGroups  bool             `help:"${about_control_groups}" group:"Jobs"`
	Scratch        string           `help:"${about_scratch}" group:"Jobs" placeholder:"FOLDER"`
	InputCache     int64            `help:"${about_input_cache}" default:"0" group:"Jobs" placeholder:"GIB"`
	InputContainer []string         `help:"${about_input_container}" group:"Jobs" placeholder:"NAME|URL"`
	DefaultKind    string           `help:"${about_default_kind}" group:"Jobs" placeholder:"KIND"`
	TakeFrom       []sources.Choice `help:"${about_take_from}" enum:"spot,on-demand" default:"spot" group:"Jobs"`
	MoveAfter      int              `help:"${about_move_after}" default:"0" group:"Jobs"`
	Changeover     time.Duration    `help:"${about_changeover}" default:"0s" group:"Jobs"`
	Concurrency    int              `help:"Jobs at once. 0 is one per processor." default:"0" group:"Jobs"`
	ExitWhenIdle   time.Duration    `help:"${about_exit_when_idle}" default:"0s" group:"Jobs"`

	CheckpointInterval string `help:"${about_checkpoint_interval}" default:"auto" group:"Checkpoints"`

	DrainBudget      time.Duration `help:"${about_drain_budget}" default:"10s" group:"Eviction"`
	StopWithStdin    bool          `help:"${about_stop_with_stdin}" group:"Eviction"`
	MetadataEndpoint string        `help:"${about_metadata_endpoint}" default:"${metadata_endpoint}" group:"Eviction"`
	VMName           string        `help:"${about_vm_name}" group:"Eviction" placeholder:"NAME"`
	Acknowledge      string        `help:"${about_acknowledge}" enum:"self,leader,never" default:"self" group:"Eviction"`

	Instance   string `help:"${about_instance}" default:"0" group:"Several workers on one VM"`
	RuntimeDir string `help:"${about_dir}" env:"SPOTWORKER_RUNTIME_DIR,RUNTIME_DIRECTORY" group:"Several workers on one VM" placeholder:"DIR"`

	Listen      string `help:"${about_listen}" default:"auto" group:"Operation"`
	MetricsPush string `help:"${about_metrics_push}" group:"Operation" placeholder:"URL"`
	DepthMetric string `help:"${about_depth_metric}" group:"Operation" placeholder:"URL"`
	OnEvent     string `help:"${about_on_event}" group:"Operation" placeholder:"PROGRAM"`

	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`

	version string               // of the program
	adjust  func(*worker.Config) // nil: see Options
	service bool                 // a service manager has started the worker
}

// policy returns the checkpoint policy that the flags describe.
func (f *flags) policy() (checkpoint.Policy, error) {
	p := checkpoint.DefaultPolicy()
	if f.CheckpointInterval == "auto" {
		return p, nil
	}
	var err error
	if p.Interval, err = durations.Parse(f.CheckpointInterval); err != nil || p.Interval <= 0 {
		return p, fmt.Errorf("--checkpoint-interval is %.40q; it must be auto, or a time such as 30s", f.CheckpointInterval)
	}
	return p, p.Validate()
}

// mostConnections bounds the connections that are kept for jobs.
const mostConnections = 2048

// spareConnections are for calls that belong to no job: claims, heartbeats.
const spareConnections = 4

// slots returns how many jobs run at once.
func (f *flags) slots() int {
	if f.Concurrency == 0 {
		return min(runtime.GOMAXPROCS(0), worker.MaxConcurrency)
	}
	return f.Concurrency
}

// connections returns how many connections to storage are kept while they are idle: as
// many as short jobs in all slots use at once. Long jobs use far fewer, since their
// writes and renewals take turns.
func connections(slots int) int { return min(2*slots, mostConnections) + spareConnections }
