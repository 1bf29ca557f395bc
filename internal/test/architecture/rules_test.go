// Package architecture checks which packages of the module may import each other
// (docs/DESIGN.md, "Packages"), how many files a package has, and its language. It
// consists of tests only.
//
// The rules are the tables in this file and in language_test.go. To change a rule,
// change its row and its reason; a test cannot opt out.
package architecture

// importRule forbids imports. Patterns are the go command's: "./x" is the module's
// package x, "./x/..." the same and all packages below it, "." the root package; a
// pattern without the dot names a package of another module.
type importRule struct {
	name string
	// in and notIn say which packages are bound.
	in, notIn []string
	// tests says that test files are bound too. Most rules leave them free:
	// a test may look at a package from above.
	tests bool
	// forbids and allows name the imports that they may not and may have.
	forbids, allows []string
	// reason is printed for the author of a violation.
	reason string
}

const (
	sdk        = "github.com/Azure/..."
	azidentity = "github.com/Azure/azure-sdk-for-go/sdk/azidentity/..."
)

var importRules = []importRule{
	// cmd -> worker -> {queue, checkpoint, job}
	{
		name:    "job stands alone",
		in:      []string{"./job/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./job/..."},
		reason:  "the public contract for handlers must not tie them to the engine or to Azure",
	},
	{
		name:    "jobid stands alone",
		in:      []string{"./internal/jobid/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/jobid/..."},
		reason:  "it is vocabulary that others share, so it may depend on none of them",
	},
	{
		name:    "retry stands alone",
		in:      []string{"./internal/retry/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/retry/..."},
		reason:  "every package that waits needs it, so it may depend on none of them",
	},
	{
		name:    "deadline stands alone",
		in:      []string{"./internal/delivery/deadline/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/delivery/deadline/..."},
		reason:  "workers and tools for operators judge by it, from what each of them knows",
	},
	{
		name:    "plaintext stands alone",
		in:      []string{"./internal/text/plaintext/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/text/plaintext/..."},
		reason:  "every package that prints or records untrusted text needs it, so it may depend on none of them",
	},
	{
		name:    "durations stands alone",
		in:      []string{"./internal/text/durations/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/text/durations/..."},
		reason:  "flags, lines of jobs and files of settings read durations in one way, and know nothing else of each other",
	},
	{
		name:    "jsonpos stands alone",
		in:      []string{"./internal/text/jsonpos/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/text/jsonpos/..."},
		reason:  "it parses text for the worker and for the lab, and knows what neither file means",
	},
	{
		name:    "tokenproxy knows the monitor's limit alone",
		in:      []string{"./internal/program/tokenproxy/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/program/tokenproxy/...", "./internal/telemetry/monitor"},
		reason:  "it is handed what gives tokens; a way of its own to the identity would be a second one to guard",
	},
	{
		name:    "sandbox stands alone",
		in:      []string{"./internal/host/sandbox/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/host/sandbox/..."},
		reason:  "it changes the user that files are read as; what it is used for must not run in there by accident",
	},
	{
		name:    "lifecycle stands alone",
		in:      []string{"./internal/lifecycle/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/lifecycle/..."},
		reason:  "a table of states stays pure only while it knows nothing of what runs in them",
	},
	{
		name:    "health stands alone",
		in:      []string{"./internal/telemetry/health/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/telemetry/health/..."},
		reason:  "whether loops turn is a matter of times; knowing what the loops do would invite to judge that too",
	},
	{
		name:    "activity stands alone",
		in:      []string{"./internal/fleet/activity/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/fleet/activity/..."},
		reason:  "what a worker counts and what a reader of heartbeats adds up is the same, and needs neither",
	},
	{
		name:    "metrics stands alone",
		in:      []string{"./internal/telemetry/metrics/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/telemetry/metrics/...", "./internal/fleet/activity"},
		reason:  "it takes words and numbers, so that what is counted need not know Prometheus, nor Prometheus jobs",
	},
	{
		name:    "Prometheus is in one place",
		in:      []string{"./..."},
		notIn:   []string{".", "./internal/telemetry/metrics/...", "./internal/workercmd"}, // a program hands in its registry there
		forbids: []string{"github.com/prometheus/..."},
		reason:  "a metric made elsewhere would land in a registry that is not served, or have no line in docs/metrics.md",
	},
	{
		name:    "the SDK for traces is in one place",
		in:      []string{"./..."},
		notIn:   []string{"./internal/telemetry/tracing/..."},
		forbids: []string{"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/...", "go.opentelemetry.io/proto/..."},
		reason:  "what records spans need not know whether and where they are sent; programs that import the client bring their own SDK",
	},
	{
		name:    "tracing stands alone",
		in:      []string{"./internal/telemetry/tracing"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/telemetry/tracing"},
		reason:  "producer, client and engine record spans through it, and it knows none of them",
	},
	{
		name:    "monitor knows health alone",
		in:      []string{"./internal/telemetry/monitor/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/telemetry/monitor/...", "./internal/telemetry/health"},
		reason:  "what it serves is handed to it; a server that reached into the worker could hang with it",
	},
	{
		name:    "hook knows printable text alone",
		in:      []string{"./internal/telemetry/hook/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/telemetry/hook/...", "./internal/text/plaintext"},
		reason:  "it reads the log; a program of an operator must not reach the worker behind it",
	},
	{
		name:    "systemd stands alone",
		in:      []string{"./internal/telemetry/systemd/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/telemetry/systemd/..."},
		reason:  "it forwards states to a service manager that is not always there",
	},
	{
		name:    "winservice stands alone",
		in:      []string{"./internal/windows/winservice/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/windows/winservice/..."},
		reason:  "it runs whatever it is handed as a service; what a worker is, it need not know",
	},
	{
		name:    "winsetup knows the service alone",
		in:      []string{"./internal/windows/winsetup/..."},
		forbids: []string{"./...", sdk},
		allows: []string{"./internal/windows/winsetup/...", "./internal/windows/winservice", "./internal/text/plaintext", "./internal/retry",
			"./internal/host/sandbox"},
		reason: "it installs a program and asks whether that starts; a worker judges its settings itself",
	},
	{
		name:    "preempt imports no sibling",
		in:      []string{"./internal/preempt/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/preempt/...", "./internal/retry"},
		reason:  "the watcher reports and the worker decides; knowing jobs or queues would turn that round",
	},
	{
		name:    "notice knows preempt alone",
		in:      []string{"./notice"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/preempt"},
		reason:  "it is for programs without a worker, which should link no storage SDK",
	},
	{
		name:    "queue imports no sibling",
		in:      []string{"./internal/queue/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/queue/...", "./internal/jobid", "./internal/storage/listing", "./internal/storage/messagelist"},
		reason:  "messages and records are joined in one place, the worker; queue takes the SDK's clients",
	},
	{
		name:    "checkpoint imports no sibling",
		in:      []string{"./internal/checkpoint/..."},
		forbids: []string{"./..."},
		allows: []string{"./internal/checkpoint/...", "./internal/jobid", "./internal/checkpoint/ledger", "./internal/text/plaintext",
			"./internal/storage/readahead", "./internal/retry", "./internal/storage/listing"},
		reason: "messages and records are joined in one place, the worker; checkpoint takes the SDK's clients",
	},
	{
		name:    "program knows the contract only",
		in:      []string{"./internal/program/..."},
		notIn:   []string{"./internal/program/tokenproxy"}, // it has a rule of its own
		forbids: []string{"./...", sdk},
		allows: []string{"./internal/program/...", "./internal/jobid", "./internal/text/jsonpos", "./internal/jobfiles/outputs/paths",
			"./internal/text/plaintext", "./internal/retry", "./internal/text/durations", "./internal/host/...", "./job"},
		reason: "it is a handler like a stranger's; what it needs beyond package job, strangers would need too",
	},
	{
		name:    "trees and folders know no jobs",
		in:      []string{"./internal/program/printed", "./internal/host/resource", "./internal/program/scratch", "./internal/program/tree/..."},
		forbids: []string{"./...", sdk},
		allows: []string{"./internal/program/archive", "./internal/text/plaintext", "./internal/host/resource", "./internal/program/tree/...",
			"./internal/host/sandbox", "./job"},
		reason: "starting, ending, measuring and removing what a program leaves is the same whatever its job is",
	},
	{
		name:    "snapshot knows processes alone",
		in:      []string{"./internal/program/snapshot"},
		forbids: []string{"./...", sdk},
		allows: []string{"./internal/program/snapshot", "./internal/program/tree/...", "./internal/program/printed",
			"./internal/host/sandbox"},
		reason: "it freezes and restores a program in a folder; kinds, checkpoints and jobs are the handler's",
	},
	{
		name:    "ledger stands alone",
		in:      []string{"./internal/checkpoint/ledger"},
		forbids: []string{"./...", sdk},
		reason:  "it is arithmetic on durations; what was measured is handed to it",
	},
	{
		name:    "archive stands alone",
		in:      []string{"./internal/program/archive/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/program/archive/...", "./internal/host/filetype"},
		reason:  "it turns folders into bytes and back, and knows nothing of what the bytes are for",
	},
	{
		name:    "joblog imports no sibling",
		in:      []string{"./internal/jobfiles/joblog/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/jobfiles/joblog/...", "./internal/jobid", "./internal/storage/listing"},
		reason:  "a log decides nothing: what knows no record, no message and no drain can hold none of them up",
	},
	{
		name:    "outputs imports no sibling",
		in:      []string{"./internal/jobfiles/outputs/..."},
		forbids: []string{"./..."},
		allows: []string{"./internal/jobfiles/outputs/...", "./internal/host/filetype", "./internal/jobid", "./internal/storage/listing",
			"./internal/storage/upload"},
		reason: "it stores files and lists; which of them count, the job's record says",
	},
	{
		name:    "output folders know no storage",
		in:      []string{"./internal/program/outfolder", "./internal/jobfiles/outputs/paths"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/host/filetype", "./internal/jobfiles/outputs/paths"},
		reason:  "they face a hostile program: what they find goes to storage through package job",
	},
	{
		name:    "presence imports no sibling",
		in:      []string{"./internal/fleet/presence/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/fleet/presence/...", "./internal/fleet/activity", "./internal/storage/listing"},
		reason:  "a worker says what it does through it, and tools read that, without either knowing the other",
	},
	{
		name:    "control imports no sibling",
		in:      []string{"./internal/fleet/control/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/fleet/control/...", "./internal/retry"},
		reason:  "operators ask through it and workers read it, without either knowing the other",
	},
	{
		name:    "runtimedir knows the metadata budget alone",
		in:      []string{"./internal/fleet/vmshare/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/fleet/vmshare/...", "./internal/preempt", "./internal/retry"},
		reason:  "it keeps what the workers of one VM share, and nothing of what they do",
	},
	{
		name:    "haste imports no sibling",
		in:      []string{"./internal/storage/hedge/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/storage/hedge/...", "./internal/ordered"},
		reason:  "the worker and its clients share it, and it knows neither",
	},
	{
		name:    "messagelist imports no sibling",
		in:      []string{"./internal/storage/messagelist/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/storage/messagelist/..."},
		reason:  "the queue and its client's pipeline share it, and it knows neither",
	},
	{
		name:    "outage imports no sibling",
		in:      []string{"./internal/storage/outage/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/storage/outage/..."},
		reason:  "the worker and its clients share it, and it knows neither",
	},
	{
		name:    "azure imports no sibling",
		in:      []string{"./internal/storage/azure/..."},
		forbids: []string{"./..."},
		allows: []string{"./internal/storage/azure/...", "./internal/storage/hedge", "./internal/storage/messagelist",
			"./internal/storage/outage"},
		reason: "it knows how to connect, and nothing of what the connection is for",
	},
	{
		name:    "drain knows the notice alone",
		in:      []string{"./internal/drain/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/drain/...", "./internal/ordered", "./internal/preempt", "./job"},
		reason:  "deadlines are the same for whatever is done until then, so they depend on none of it",
	},
	{
		name:    "events knows neither messages nor jobs",
		in:      []string{"./internal/events/..."},
		forbids: []string{"./...", sdk},
		allows: []string{
			"./internal/events/...", "./internal/drain", "./internal/telemetry/health", "./internal/lifecycle", "./internal/text/plaintext",
			"./internal/preempt", "./internal/fleet/presence", "./internal/fleet/vmshare",
		},
		reason: "it tells the worker when to leave, through an interface; what the worker does until then is not its concern",
	},
	{
		name:    "intake stands alone",
		in:      []string{"./internal/worker/intake/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/worker/intake/...", "./internal/retry"},
		reason:  "how much to claim and when is decided without a queue, a worker or a clock, so that a test can state each case",
	},
	{
		name:    "renewal knows messages alone",
		in:      []string{"./internal/delivery/renewal/..."},
		forbids: []string{"./..."},
		allows: []string{"./internal/delivery/renewal/...", "./internal/drain", "./internal/ordered", "./internal/storage/outage",
			"./internal/queue"},
		reason: "a message is kept hidden whatever its job does, and its record decides who may write",
	},
	{
		name:    "sources knows queues alone",
		in:      []string{"./internal/worker/sources/..."},
		forbids: []string{"./...", sdk},
		allows: []string{"./internal/worker/sources/...", "./internal/storage/deployment", "./internal/storage/outage", "./internal/queue",
			"./internal/retry"},
		reason: "which queues there are does not depend on how they are asked",
	},
	{
		name:    "ordered, pool and readahead stand alone",
		in:      []string{"./internal/ordered/...", "./internal/delivery/pool/...", "./internal/storage/readahead/..."},
		forbids: []string{"./...", sdk},
		reason:  "what they hold and run is not their concern",
	},
	{
		name:    "listing and upload stand alone",
		in:      []string{"./internal/storage/listing/...", "./internal/storage/upload/..."},
		forbids: []string{"./..."},
		reason:  "every package that keeps blobs lists and sends them, so they may depend on none of them",
	},
	{
		name:    "breaker stands alone",
		in:      []string{"./internal/delivery/breaker/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/fleet/activity", "./internal/delivery/breaker/..."},
		reason:  "when to try again is a matter of verdicts and times; what was tried is not its concern",
	},
	{
		name:    "inputs knows jobs alone",
		in:      []string{"./internal/jobfiles/inputs/..."},
		forbids: []string{"./..."},
		allows: []string{
			"./internal/jobfiles/inputs/...", "./internal/storage/blobref", "./internal/host/resource", "./internal/storage/readahead",
			"./internal/host/sandbox", "./job", "./internal/storage/listing",
		},
		reason: "it turns names into files; whose job they are for, and what its end means, is decided elsewhere",
	},
	{
		name:    "delivery imports only what it joins",
		in:      []string{"./internal/delivery/..."},
		forbids: []string{"./..."},
		allows: []string{
			"./internal/delivery/...", "./job", "./internal/checkpoint", "./internal/fleet/control", "./internal/drain", "./internal/storage/hedge",
			"./internal/telemetry/health", "./internal/jobfiles/inputs/...",
			"./internal/jobfiles/joblog", "./internal/checkpoint/ledger", "./internal/lifecycle", "./internal/ordered", "./internal/storage/outage",
			"./internal/jobfiles/outputs", "./internal/jobfiles/outputs/paths", "./internal/fleet/presence", "./internal/queue", "./internal/retry",
			"./internal/storage/deployment", "./internal/telemetry/tracing", "./internal/fleet/activity", "./internal/text/spelling",
		},
		reason: "one message is dealt with by what it is handed; why work stops it reads from its context",
	},
	{
		name:    "waiting finds messages, and leaves jobs to delivery",
		in:      []string{"./internal/worker/waiting/..."},
		forbids: []string{"./...", sdk},
		allows: []string{
			"./internal/worker/waiting/...", "./internal/delivery", "./internal/drain", "./internal/storage/outage", "./internal/delivery/pool",
			"./internal/queue", "./internal/retry", "./internal/storage/deployment", "./internal/worker/queuestats",
		},
		reason: "it decides which messages to claim; whose job a message is, and whether it moves, its record says",
	},
	{
		name:    "worker imports only what it joins",
		in:      []string{"./internal/worker/..."},
		forbids: []string{"./..."},
		allows: []string{
			"./internal/worker/...", "./job", "./internal/fleet/activity", "./internal/jobid", "./internal/jobfiles/joblog",
			"./internal/checkpoint", "./internal/fleet/control", "./internal/delivery", "./internal/drain", "./internal/events",
			"./internal/telemetry/health", "./internal/jobfiles/inputs", "./internal/worker/intake",
			"./internal/lifecycle", "./internal/storage/outage", "./internal/jobfiles/outputs", "./internal/delivery/pool", "./internal/preempt",
			"./internal/fleet/presence", "./internal/queue", "./internal/delivery/renewal", "./internal/retry", "./internal/fleet/vmshare",
			"./internal/worker/sources", "./internal/worker/queuestats", "./internal/worker/waiting", "./internal/storage/deployment",
		},
		reason: "the engine is handed its clients and its handlers, and knows no emulator and no lab",
	},
	{
		name:    "producer imports only what it puts",
		in:      []string{"./internal/producer/..."},
		forbids: []string{"./..."},
		allows: []string{
			"./internal/producer/...", "./internal/checkpoint", "./internal/handlers", "./internal/jobfiles/inputs/named",
			"./internal/jobid", "./internal/lifecycle", "./internal/fleet/presence", "./internal/queue", "./internal/retry",
			"./internal/text/spelling", "./internal/telemetry/tracing", "./job", "./internal/storage/listing", "./internal/text/durations",
		},
		reason: "it is handed its clients, and knows no engine and no emulator",
	},
	{
		name:    "web shows what others read",
		in:      []string{"./internal/web"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./client", "./internal/operate/actions", "./internal/overview/...", "./internal/text/plaintext"},
		reason:  "it is handed a client and shows what the read model says; what a page computed itself, the commands would not say",
	},
	{
		name:    "actions words what client does",
		in:      []string{"./internal/operate/actions"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./client", "./internal/text/spelling"},
		reason:  "a change is a method of client; a second implementation would differ from it",
	},

	{
		name:    "vmpackage knows what goes onto a VM",
		in:      []string{"./internal/vmpackage/...", "./vmapp/..."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/vmpackage/...", "./vmapp", "./internal/program"},
		reason:  "packages are made of files; what the worker in them does is nothing that making them could depend on",
	},

	// Packages that only the outermost layer may touch.
	{
		name: "the engine is used from outside",
		in:   []string{"./..."},
		notIn: []string{"./client/clienttest", "./cmd/...", "./internal/test/integration/...", "./internal/delivery/...",
			"./internal/drain/...", "./internal/events/...", "./internal/lab/...", "./internal/replay", "./internal/worker/...",
			"./internal/workercmd", "./internal/test/worker/..."},
		forbids: []string{"./internal/worker/...", "./internal/delivery/...", "./internal/events/...", "./internal/drain/..."},
		allows:  []string{"./internal/delivery/deadline"}, // tools for operators judge by it too
		reason:  "imports point one way, cmd to worker; the worker command, which the public root package calls, starts the engine",
	},
	{
		name:    "the replay takes decisions alone",
		in:      []string{"./internal/replay"},
		forbids: []string{"./...", sdk},
		allows: []string{"./internal/checkpoint", "./internal/delivery/renewal", "./internal/drain", "./internal/text/durations",
			"./internal/text/jsonpos", "./internal/replay/lanes", "./internal/preempt", "./internal/retry", "./internal/text/spelling",
			"./internal/worker/intake", "./job"},
		reason: "virtual time has no storage and no processes: the worker's pure functions decide, and the model around them is its own",
	},
	{
		name:    "lanes draws what it is handed",
		in:      []string{"./internal/replay/lanes"},
		forbids: []string{"./...", sdk},
		reason:  "a replay and a demo have the same pictures; a figure that the picture computed itself, their reports would not have",
	},
	{
		name: "only the outer layer connects",
		in:   []string{"./..."},
		notIn: []string{"./bench", "./client/...", "./cmd/...", "./internal/storage/azure/...", "./internal/cli",
			"./internal/storage/deployment", "./internal/test/integration/...", "./internal/lab/...", "./internal/workercmd",
			"./internal/test/worker/..."},
		forbids: []string{"./internal/storage/azure/..."},
		reason:  "packages take the SDK's clients, so that a test hands them others; only wiring makes them",
	},
	{
		name:    "only the outer layer has a command line",
		in:      []string{"./..."},
		notIn:   []string{"./cmd/...", "./internal/cli/...", "./internal/test/integration/...", "./internal/lab/...", "./internal/workercmd"},
		forbids: []string{"./internal/cli/..."},
		reason:  "flags, the environment and what people read belong to the commands; packages below take values and return errors",
	},
	{
		name:    "the root calls the worker command alone",
		in:      []string{"."},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/workercmd", "./job"},
		reason:  "it is the public entry: whatever else a worker is made of is joined in internal/workercmd",
	},
	{
		name:    "the client knows no engine",
		in:      []string{"./client"},
		forbids: []string{"./..."},
		allows: []string{
			"./internal/fleet/activity", "./internal/storage/azure", "./internal/checkpoint", "./internal/fleet/control",
			"./internal/storage/deployment", "./internal/jobid", "./internal/jobfiles/joblog", "./internal/delivery/deadline",
			"./internal/operate", "./internal/jobfiles/outputs", "./internal/jobfiles/outputs/paths", "./internal/fleet/presence",
			"./internal/producer", "./internal/queue", "./internal/text/spelling", "./internal/telemetry/tracing",
			"./internal/jobfiles/inputs/named", "./internal/storage/upload", "./job",
		},
		reason: "other programs import it: it is a thin layer over what producer and spotctl do, and brings no worker with it",
	},
	{
		name:    "the worker command is started from outside",
		in:      []string{"./..."},
		notIn:   []string{".", "./internal/workercmd"},
		forbids: []string{"./internal/workercmd"},
		reason:  "programs call the public package, so that ours use what strangers use",
	},
	{
		name:    "credentials come from one place",
		in:      []string{"./..."},
		notIn:   []string{"./internal/storage/azure/..."},
		tests:   true,
		forbids: []string{azidentity},
		reason: "only internal/storage/azure knows how to sign in; a credential made elsewhere, even in a test, may ask the metadata " +
			"endpoint of the machine it runs on",
	},

	// What never belongs in a production binary.
	{
		name: "emulators stay in the lab",
		in:   []string{"./..."},
		notIn: []string{"./bench", "./client/clienttest", "./cmd/lab/...", "./internal/lab/emulator/...", "./internal/test/integration/...",
			"./internal/lab/...", "./internal/test/worker/..."},
		forbids: []string{"./internal/lab/emulator/..."},
		reason:  "a worker that could reach an emulator could run on one by mistake",
	},
	{
		name:    "emulators share no code with what they test",
		in:      []string{"./internal/lab/emulator/..."},
		forbids: []string{"./..."},
		allows:  []string{"./internal/lab/emulator/...", "./internal/text/jsonpos", "./internal/test/guard"},
		reason:  "code on both sides of a test hides its own faults",
	},
	{
		name:    "blobs and queues know the protocol alone",
		in:      []string{"./internal/lab/emulator/storage/blobs", "./internal/lab/emulator/storage/queues"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/lab/emulator/storage/protocol"},
		reason:  "two services of one account; what hooks, limits and identities do to a call happens before and after them",
	},
	{
		name:    "the storage protocol keeps no state",
		in:      []string{"./internal/lab/emulator/storage/protocol", "./internal/lab/emulator/storage/link"},
		forbids: []string{"./...", sdk},
		allows:  []string{"./internal/lab/emulator/storage/link"},
		reason:  "how requests and replies look is the same whatever a service does with them",
	},
	{
		name: "the lab is used by its command",
		in:   []string{"./..."},
		notIn: []string{"./cmd/lab/...", "./internal/test/integration/...", "./internal/lab/...", "./tools/recording",
			"./internal/test/worker/..."},
		forbids: []string{"./internal/lab/..."},
		allows:  []string{"./internal/lab/emulator/..."}, // see "emulators stay in the lab"
		reason:  "scenarios and oracles are for trying the product, not part of it",
	},
	{
		name:    "the lab's base knows no command",
		in:      []string{"./internal/lab", "./internal/lab/labtest"},
		forbids: []string{"./internal/lab/..."},
		allows:  []string{"./internal/lab", "./internal/lab/emulator/...", "./internal/lab/text"},
		reason:  "what several commands share must not depend on what one of them wants",
	},
	{
		name:    "lab demo knows no other command",
		in:      []string{"./internal/lab/demo"},
		forbids: []string{"./internal/lab/..."},
		allows: []string{"./internal/lab", "./internal/lab/emulator/...", "./internal/lab/oracle", "./internal/lab/screen",
			"./internal/lab/text"},
		reason: "each command of the lab can be read, changed and dropped alone",
	},
	{
		name:    "lab try knows no other command",
		in:      []string{"./internal/lab/trial"},
		forbids: []string{"./internal/lab/..."},
		allows:  []string{"./internal/lab", "./internal/lab/emulator/...", "./internal/lab/screen", "./internal/lab/text"},
		reason:  "each command of the lab can be read, changed and dropped alone",
	},
	{
		name:    "lab chaos knows no other command",
		in:      []string{"./internal/lab/chaos"},
		forbids: []string{"./internal/lab/..."},
		allows:  []string{"./internal/lab", "./internal/lab/emulator/...", "./internal/lab/oracle", "./internal/lab/text"},
		reason:  "each command of the lab can be read, changed and dropped alone",
	},
	{
		name:    "lab replay --real knows no other command",
		in:      []string{"./internal/lab/realtime"},
		forbids: []string{"./internal/lab/..."},
		allows:  []string{"./internal/lab", "./internal/lab/emulator/...", "./internal/lab/oracle", "./internal/lab/text"},
		reason:  "each command of the lab can be read, changed and dropped alone",
	},
	{
		name:    "lab up and lab imds know no other command",
		in:      []string{"./internal/lab/up", "./internal/lab/imds"},
		forbids: []string{"./internal/lab/..."},
		allows:  []string{"./internal/lab", "./internal/lab/emulator/...", "./internal/lab/text"},
		reason:  "each command of the lab can be read, changed and dropped alone; and neither judges anything",
	},
	{
		name:    "the oracle stands alone",
		in:      []string{"./internal/lab/oracle"},
		forbids: []string{"./...", sdk},
		reason:  "it judges what the product did, so code that it shared with the product would share its faults",
	},
	{
		name:    "the worker's tests are used by no program",
		in:      []string{"./..."},
		notIn:   []string{"./internal/test/worker/..."},
		forbids: []string{"./internal/test/worker/..."},
		reason:  "they hold a worker to its promises in virtual time, and are no part of it",
	},
	{
		name:    "the recorder knows no worker under test",
		in:      []string{"./internal/test/worker/recorder"},
		forbids: []string{"./internal/test/worker/..."},
		reason:  "it judges what reached storage, whatever the rig did to it on the way",
	},
	{
		name: "test helpers stay in tests",
		in:   []string{"./..."},
		notIn: []string{"./client/clienttest", "./internal/lab/emulator/conformance/...", "./internal/lab/labtest", "./internal/test/...",
			"./job/jobtest/..."},
		forbids: []string{"testing", "testing/...", "./internal/test/..."},
		reason:  "package testing adds its flags to every binary that imports it",
	},
}

// sizeRule bounds how many files a package has, tests and the files of single
// platforms aside.
var sizeRule = struct {
	name, reason string
	most         int
}{
	name:   "a package is small enough to hold in the head",
	reason: "one subject a file; move a subject with a narrow boundary into a package of its own",
	most:   20,
}

// nameRule forbids packages that are named after nothing they do.
var nameRule = struct {
	name, reason string
	forbidden    []string
}{
	name:      "a package is a noun with one job",
	reason:    "such a name says nothing to a caller and attracts whatever has no home",
	forbidden: []string{"base", "common", "helper", "helpers", "misc", "shared", "types", "util", "utils"},
}

// literalRule forbids the address of the metadata service in string literals
// of production code.
var literalRule = struct {
	name, reason string
	notIn        []string
	forbidden    string
}{
	name:      "the metadata address is written once",
	reason:    "every other place takes preempt.DefaultEndpoint or a flag, so that a test can be sure to hand in a loopback address",
	notIn:     []string{"./internal/preempt/...", "./internal/test/integration/namespace/..."}, // the latter puts it on a loopback interface
	forbidden: "169.254.169.254",
}

// skipRule forbids tests that skip themselves. In tests with package rapid a skip ends one
// step, not the test. Package jobtest ends a test in the middle, for its users.
var skipRule = struct {
	name, reason string
	notIn        []string
	unless       string // an import
}{
	name:   "only packages need and proof skip tests",
	reason: "a skip names what the machine lacks, and fails in CI except for the few parts that CI's machine cannot have",
	notIn:  []string{"./internal/test/need", "./internal/test/proof", "./job/jobtest"},
	unless: "pgregory.net/rapid",
}
