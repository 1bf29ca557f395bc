package workercmd

import (
	"fmt"
	"runtime"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/sources"
)

// flags are the worker's settings.
type flags struct {
	cli.Storage
	cli.Log

	DataContainer         []string         `help:"Container that digest jobs may read. May be given several times. Without it there are no such jobs." group:"Jobs" placeholder:"NAME"`
	KindsFile             string           `help:"File with the kinds of jobs whose work a command does; docs/process.md has its form." group:"Jobs" placeholder:"FILE"`
	ProgramUsers          string           `help:"User ids that commands run as, one for each job, as FIRST-LAST: jobs then cannot read the worker's memory or each other's files. They are divided among up to four workers that share --runtime-dir. none: commands run as the worker's user. Linux; needs CAP_SETUID, CAP_SETGID and CAP_KILL." default:"none" group:"Jobs" placeholder:"FIRST-LAST"`
	ControlGroups         bool             `help:"Run each command in a control group of its own, which ends as a whole and has total_memory and cpus as its limits. It takes Linux and a service manager that delegates this worker's group to it (Delegate= in its unit, as in the VM package)." group:"Jobs"`
	Scratch               string           `help:"Folder for the working folders of commands. Default: that for temporary files." group:"Jobs" placeholder:"FOLDER"`
	InputCache            int64            `help:"How much of its file system the cache of jobs' input files may take, in GiB; 0 is half of it. It is in the folder of --scratch, and the workers of one user on a machine share it." default:"0" group:"Jobs" placeholder:"GIB"`
	InputContainer        []string         `help:"Container that jobs may take input files from. May be given several times. Default: every container that the identity may read, except those of the deployment itself." group:"Jobs" placeholder:"NAME"`
	InputAccount          []string         `help:"Blob endpoint of another storage account that jobs may take input files from, with the worker's identity: https://ACCOUNT.blob.core.windows.net. May be given several times." group:"Jobs" placeholder:"URL"`
	DefaultKind           string           `help:"Kind of the messages that are not envelopes, such as those of az storage message put. Without it they go to the poison queue." group:"Jobs" placeholder:"KIND"`
	TakeFrom              []sources.Choice `help:"Queues to claim jobs from, in turn: spot, the queue of jobs; on-demand, that of the jobs which Spot VMs did not finish. On VMs of regular priority give on-demand, or both." enum:"spot,on-demand" default:"spot" group:"Jobs"`
	MoveAfter             int              `help:"Interruptions after which a job goes to the on-demand queue when it is handed over. 0 is never. It needs workers that take from there." default:"0" group:"Jobs"`
	Changeover            time.Duration    `help:"How long a job waits for a worker after it moved to the on-demand queue, for a VM to start and its state to be read: 10m where that queue's VMs start from none. With it, a job that may miss its deadline moves there when it is handed over, when the next worker claims it, or while it waits and this worker finds it. 0s: none does. It needs workers that take from there." default:"0s" group:"Jobs"`
	Concurrency           int              `help:"Jobs at once. 0 is one per processor." default:"0" group:"Jobs"`
	PayloadMemory         int64            `help:"Memory for the payloads of all jobs at once, in MiB, at least 64. Payloads of up to 48 KiB do not count. A job waits until there is room; a command's payload counts only until it is in its file." default:"1024" group:"Jobs" placeholder:"MIB"`
	JobLogSize            int              `help:"How much is kept of what each job prints and logs, for spotctl logs, in KiB: 4 to 1024, or 0 for nothing. The last of it is kept, with the job's checkpoints. All who may read the deployment's blobs can read it." default:"64" group:"Jobs" placeholder:"KIB"`
	Visibility            time.Duration    `help:"Visibility timeout of messages, after which the jobs of a worker that died without notice return to the queue, 3s to 5m. They are renewed every third of it, at the cost of one call each." default:"30s" group:"Jobs"`
	CheckpointInterval    string           `help:"Time between two saves of a job's changed state; auto chooses what costs the least, by what a save takes and how often VMs are lost." default:"auto" group:"Checkpoints"`
	MinCheckpointInterval time.Duration    `help:"Shortest time that auto chooses, and the one while notices cannot be relied on." default:"5s" group:"Checkpoints"`
	MaxCheckpointInterval time.Duration    `help:"Longest time that auto chooses." default:"10m" group:"Checkpoints"`
	EvictionRate          float64          `help:"Evictions to expect of a VM, in percent per hour; Azure publishes it for each size and region. Evictions that the workers observe are taken into account." default:"5" group:"Checkpoints"`
	DrainBudget           time.Duration    `help:"Time to hand everything over after SIGTERM. After a notice the platform's own time counts." default:"10s" group:"Eviction"`
	StopWithStdin         bool             `help:"End when standard input is closed, as after SIGTERM: for a program that starts the worker where there are no signals, as on Windows." group:"Eviction"`
	MetadataEndpoint      string           `help:"Metadata service that announces evictions; none runs without." default:"${metadata_endpoint}" group:"Eviction"`
	VMName                string           `help:"Name of this VM as scheduled events have it, in place of what the metadata service says." group:"Eviction" placeholder:"NAME"`
	EventsAPIVersion      string           `help:"api-version of scheduled events: auto asks for the newest and falls back, a date asks for that one only." default:"auto" group:"Eviction"`
	Acknowledge           string           `help:"Scheduled events to acknowledge, so that they start early, once everything is saved or handed over: self, those that name this VM alone; leader, also those that name several VMs, by the first of them when the workers of all are ready; never. Several workers on one VM need --runtime-dir for that." enum:"self,leader,never" default:"self" group:"Eviction"`
	Instance              string           `help:"Name that tells up to four workers on one VM apart: letters, digits and underscores." default:"0" group:"Several workers on one VM"`
	RuntimeDir            string           `help:"Folder that the workers of this VM share while they run. Without one a worker behaves as the only one on its VM." env:"SPOTWORKER_RUNTIME_DIR,RUNTIME_DIRECTORY" group:"Several workers on one VM" placeholder:"DIR"`
	Listen                string           `help:"Address for /healthz and /metrics: HOST:PORT, where port 0 is a free one; none; or auto, 127.0.0.1 with port ${listen_port} plus the instance, or a free port where that is no number." default:"auto" group:"Operation"`
	MetricsPush           string           `help:"Remote-write endpoint of Prometheus that gets the metrics every 15 s and when a drain has ended, as of Azure Monitor managed Prometheus, which also gets an access token of the worker's identity. Without it metrics are only served." group:"Operation" placeholder:"URL"`
	Version               kong.VersionFlag `help:"Print the version and exit." env:"-"`

	version string // of the program
}

// policy returns the checkpoint policy that the flags describe.
func (f *flags) policy() (checkpoint.Policy, error) {
	p := checkpoint.DefaultPolicy()
	p.Shortest, p.Longest, p.EvictionRate = f.MinCheckpointInterval, f.MaxCheckpointInterval, f.EvictionRate/100
	switch {
	case p.Shortest <= 0:
		return p, fmt.Errorf("--min-checkpoint-interval is %s; it must be more than 0s", p.Shortest)
	case p.Longest <= 0:
		return p, fmt.Errorf("--max-checkpoint-interval is %s; it must be more than 0s", p.Longest)
	case !(f.EvictionRate > 0 && f.EvictionRate <= 100):
		return p, fmt.Errorf("--eviction-rate is %g; it must be more than 0, up to 100 percent per hour", f.EvictionRate)
	case f.CheckpointInterval == "auto":
		return p, p.Validate()
	}
	var err error
	if p.Interval, err = time.ParseDuration(f.CheckpointInterval); err != nil || p.Interval <= 0 {
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

// payloadMemory returns the memory for payloads in bytes. 0, which the worker would
// read as its default, becomes 1, which it refuses.
func (f *flags) payloadMemory() int64 {
	const most = 1 << 40 // MiB
	return max(min(f.PayloadMemory, most)<<20, 1)
}

// jobLogSize returns how much is kept of a job's log in bytes. A number that is out of
// range stays out of range; 0, which keeps nothing, needs no size.
func (f *flags) jobLogSize() int {
	const most = 1 << 30 // KiB
	if f.JobLogSize == 0 {
		return joblog.DefaultSize
	}
	return min(max(f.JobLogSize, -1), most) << 10
}

// connections returns how many connections to storage are kept while they are idle: as
// many as short jobs in all slots use at once. Long jobs use far fewer, since their
// writes and renewals take turns.
func connections(slots int) int { return min(2*slots, mostConnections) + spareConnections }
