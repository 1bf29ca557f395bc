package main

import "github.com/spotworker/spotworker/internal/cli"

// HelpTexts implements [cli.WithTexts].
func (*flags) HelpTexts() cli.Texts { return texts }

// texts are the help texts that are too long for the tags of flags.
var texts = cli.Texts{
	"about_digests_container": "Container of the blobs to hash. Workers must be allowed to read it: their --data-container.",

	"about_run_id":      "Id of the job. Default: a new UUIDv7. Of a command that has ended the outcome is printed; --again runs it again.",
	"about_run_fetch":   "Folder for the outputs: what the command left in its folder output, and the files of --outputs.",
	"about_run_detach":  "Print the id of the job and end, without waiting for it.",
	"about_run_kind":    "Kind of the job: command, or a kind of the workers' kinds file with \"command\": \"message\".",
	"about_put_command": "Behind --: program and arguments to run, as with producer run.",
	"about_with": "File or folder that the command finds in its working folder, under its own name or NAME; . is the content of this " +
		"folder. May be given several times.",
	"about_run_outputs": "Pattern of files in the command's working folder that are outputs when it is done, such as *.png. May be given " +
		"several times.",
	"about_gpus": "GPUs that the command gets for itself. It waits for a worker with as many that are free. Default: as its " +
		"kind says, or none.",
	"about_set":            "Environment variable of the command. May be given several times.",
	"about_retries":        "How often a command that has failed is tried again. Evictions do not count. Default: as its kind says.",
	"about_run_retries":    "How often the command is tried again if it fails. Evictions do not count.",
	"about_lines_commands": "Each line is a command, for sh -c or as JSON with argv.",

	"about_lines_check": "First read the records of jobs whose lines have an id, and put none that have ended. On by default.",

	"about_max_run": "Limit of the run time of a job, over all attempts and workers; beyond it the job goes to the poison " +
		"queue. 0s: only the limit of its kind.",
	"about_max_silence": "Limit of the time that a job may run without a report of its handler; beyond it the attempt fails. " +
		"0s: only the limit of its kind.",
	"about_estimate": "Work of a job on a VM that nothing interrupts: with a deadline, workers find out by it whether the " +
		"job is at risk. 0s: not known.",
	"about_group": "Group of the jobs: spotctl lists, waits for and cancels them together. It creates their records at the " +
		"put, for one call more each, and none for ids of your own.",
	"about_on_demand": "Put the jobs on the on-demand queue, for VMs of regular priority: they start no sooner, but are not " +
		"evicted.",
	"about_urgent":    "Put the jobs before those that wait. Of four claims, workers leave one to the others.",
	"about_take_over": "Let jobs that are recorded as running start again at once: their worker is known to be dead.",
	"about_again": "Run a job of a given id that has ended again, from scratch, maybe with another payload; its result is " +
		"replaced. One that waits or runs is an error.",
	"about_known_kinds": "Enqueue no job of a kind that no live worker has, by the workers' heartbeats. Without it there is a " +
		"warning for each such kind, since a worker may come later.",
	"about_queue_shards": "Over how many queues jobs are put, where the identity may not read that from the queue. 0: as many " +
		"as the deployment says, or one where that may not be read.",

	"about_put_id": "Id of the job and its idempotency key: one outcome for each id, see producer --help. Default: a new " +
		"UUIDv7.",
	"about_put_payload_file": "Payload: the bytes of a file, - for standard input. A payload that does not fit into a message is " +
		"stored in a blob.",
	"about_put_inputs": "What the job needs as files, as a JSON list of blobs, prefixes, manifests and containers, which " +
		"docs/FORMATS.md describes.",
	"about_put_check": "With --id, first read the record of the job, and put nothing if the job has ended. On by default.",
	"about_put_deadline": "When the job should be done: a time such as 2026-01-31T09:30:00Z, or a time from now such as 90m. It " +
		"is passed to the handler; a job that may miss it moves to VMs of regular priority when it is " +
		"interrupted, if the workers have --changeover.",
}
