package main

import (
	"maps"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs"
	"github.com/spotworker/spotworker/internal/cli"
)

// HelpTexts implements [cli.WithTexts].
func (*flags) HelpTexts() cli.Texts {
	all := maps.Clone(texts)
	maps.Copy(all, costs.Texts)
	return all
}

// texts are the help texts that are too long for the tags of flags and commands.
var texts = cli.Texts{
	"about_cancel_bar": "Give an id a cancelled record also if the job was not seen, so that no worker starts it if it waits. " +
		"While that record is kept, a new job of the id takes producer put --again.",
	"about_clean_days": "Only jobs whose record was not written for this time, at least ${least_days}d. A number " +
		"alone is days.",
	"about_selection_status": "Only jobs with one of these statuses: ${enum}.",
	"about_jobs_waiting":     "The jobs at the front of the queues instead, with their places: also those that no worker has claimed yet.",
	"about_jobs_sort":        "Order: ${enum}. written is that of the last write, the latest first.",
	"about_orphans_list": "List jobs that have not ended, whose record was not written for a while, and of which no message was " +
		"seen.",
	"about_orphans_requeue": "Put a new message for such jobs, so that they continue from their recorded state. Without --yes it " +
		"only prints what it would do.",
	"about_orphans_idle": "Least time since the job's record was written. A worker writes that of a running job every 10 " +
		"minutes at least; a message put for a running job takes effect when its record is 1 h old.",
	"about_orphans_requeue_payload": "File with the payload of the one given job, - for standard input. Required if the payload was in the " +
		"lost message. It must have the recorded SHA-256.",
	"about_orphans_requeue_inputs": "File with the JSON list of inputs of the one given job, as its message had it. Required if the " +
		"record does not have it.",
	"about_replay_default_kind": "Kind for messages that are not jobs, such as those of az storage message put; without it they stay " +
		"where they are.",
	"about_results_dir": "Write each result into a file of this folder, named as the job, instead of a line of JSON on " +
		"standard output.",
	"about_upload_name": "Name of the blob, or the first part of the blobs' names for a folder. Default: the file's or folder's own " +
		"name.",
	"about_outputs_paths": "Only these outputs; one that ends with a slash stands for all below it. All without it.",
	"about_shards_number": "Spread jobs over so many queues from now on, 1 to ${most_shards}. Without it nothing is changed.",
	"about_steering_reset": "Replace a control document that is damaged. All pauses, drains and quarantines of before end; a copy " +
		"of the damaged one is kept.",
}
