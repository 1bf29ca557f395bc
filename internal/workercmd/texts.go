package workercmd

import "github.com/spotworker/spotworker/internal/cli"

// HelpTexts implements [cli.WithTexts].
func (*flags) HelpTexts() cli.Texts { return texts }

// texts are the help texts that are too long for the tags of flags.
var texts = cli.Texts{
	"about_data_container": "Container that digest jobs may read. May be given several times. Without it there are no such jobs.",
	"about_kinds_file":     "File with the kinds of jobs whose work a command does; docs/jobs.md has its form.",
	"about_commands": "Do jobs of kind command: whoever may put messages on the queue then runs any command here, as the user of commands. " +
		"Under a service manager it takes --program-users.",
	"about_program_users": "User ids that commands run as, one for each job, as FIRST-LAST: jobs then cannot read the worker's " +
		"memory or each other's files. They are divided among up to four workers that share --runtime-dir. " +
		"none: commands run as the worker's user. Linux; needs CAP_SETUID, CAP_SETGID and CAP_KILL.",
	"about_control_groups": "Run each command in a control group of its own, which ends as a whole and has memory and cpus " +
		"as its limits. It takes Linux and a service manager that delegates this worker's group to it " +
		"(Delegate= in its unit, as in the VM package).",
	"about_scratch": "Folder for the working folders of commands. Default: that for temporary files.",
	"about_input_cache": "How much of its file system the cache of jobs' input files may take, in GiB; 0 is half of it. It is " +
		"in the folder of --scratch, and the workers of one user on a machine share it.",
	"about_input_container": "Container that jobs may take input files from, with the worker's identity. May be given several " +
		"times. A container of another storage account is a URL: https://ACCOUNT.blob.core.windows.net/CONTAINER. Without a " +
		"name: every container of the jobs' account that the identity may read, except those of the deployment itself.",
	"about_default_kind": "Kind of the messages that are not envelopes, such as those of az storage message put. Without it " +
		"they go to the poison queue.",
	"about_take_from": "Queues to claim jobs from, in turn: spot, the queue of jobs; on-demand, that of the jobs which Spot " +
		"VMs did not finish. On VMs of regular priority give on-demand, or both.",
	"about_move_after": "Interruptions after which a job goes to the on-demand queue when it is handed over. 0 is never. It " +
		"needs workers that take from there.",
	"about_changeover": "How long a job waits for a worker after it moved to the on-demand queue, for a VM to start and its " +
		"state to be read: 10m where that queue's VMs start from none. With it, a job that may miss its " +
		"deadline moves there when it is handed over, when the next worker claims it, or while it waits and " +
		"this worker finds it. 0s: none does. It needs workers that take from there.",
	"about_exit_when_idle": "End with exit code 0 when this worker had no job and found no message for so long, as a Kubernetes job should. " +
		"0s: never. Messages that are hidden do not count: they run elsewhere, or wait for their next try.",
	"about_checkpoint_interval": "Time between two saves of a job's changed state; auto chooses what costs the least, by what a save " +
		"takes and how often VMs are lost, from 5s to 10m.",
	"about_drain_budget": "Time to hand everything over after SIGTERM. After a notice the platform's own time counts.",
	"about_stop_with_stdin": "End when standard input is closed, as after SIGTERM: for a program that starts the worker where " +
		"there are no signals, as on Windows.",
	"about_metadata_endpoint": "Metadata service that announces evictions; none runs without.",
	"about_vm_name":           "Name of this VM as scheduled events have it, in place of what the metadata service says.",
	"about_acknowledge": "Scheduled events to acknowledge, so that they start early, once everything is saved or handed over: " +
		"self, those that name this VM alone; leader, also those that name several VMs, by the first VM with a " +
		"live worker when the workers of all are ready; never. Several workers on one VM need --runtime-dir for that.",
	"about_instance": "Name that tells up to four workers on one VM apart: letters, digits and underscores, " +
		"or a UUID such as the UID of a pod.",
	"about_dir": "Folder that the workers of this VM share while they run. Without one a worker behaves as the only " +
		"one on its VM.",
	"about_listen": "Address for /healthz and /metrics: HOST:PORT, where port 0 is a free one; none; or auto, 127.0.0.1 " +
		"with port ${listen_port} plus the instance, or a free port where that is no number.",
	"about_metrics_push": "Remote-write endpoint of Prometheus that gets the metrics every 15 s and when a drain has ended, as " +
		"of Azure Monitor managed Prometheus, which also gets an access token of the worker's identity. " +
		"Without it metrics are only served.",
	"about_depth_metric": "Endpoint of Azure Monitor that gets the depths of queues as custom metrics, for autoscale: " +
		"https://REGION.monitoring.azure.com/RESOURCE-ID/metrics. It also gets an access token of the worker's identity, " +
		"which needs Monitoring Metrics Publisher on the resource.",
	"about_on_event": "Program to run, without arguments, when a scheduled event names this VM, when a drain has " +
		"ended, when a job is moved to the poison queue, and when a queue grows. It reads the line of the log, as JSON, " +
		"from its standard input.",

	"about_environment_file": "File of NAME=VALUE lines with the worker's settings. May be given several times; later files win.",
	"about_log_file":         "File for the log, rotated at 100 MB. Default: NAME.log in %ProgramData%\\spotworker\\logs.",

	"about_service_install_account": "Account that the service runs as, such as LocalSystem. Default: NT SERVICE\\NAME, an account of the " +
		"service's own without further rights.",
}
