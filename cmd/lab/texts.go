package main

import "github.com/spotworker/spotworker/internal/cli"

// HelpTexts implements [cli.WithTexts].
func (*flags) HelpTexts() cli.Texts { return texts }

// texts are the help texts that are too long for the tags of flags and commands.
var texts = cli.Texts{
	"about_demo": "Evict, kill and freeze workers in the middle of real work, and check what was promised. Takes about " +
		"a minute; exit code 1 if a promise was broken.",
	"about_chaos": "Kill, freeze, evict and cut off workers at random for as long as wanted, and judge every job. Exit " +
		"code 1 if a promise was broken.",
	"about_try": "Run a program of yours as a job, evict it again and again, and say whether it is interruptible. Exit " +
		"code 1 if it is not.",
	"about_imds": "Run a metadata service alone that plays a scenario of scheduled events, to test any software " +
		"against.",

	"about_try_command":    "Program and its arguments. Relative paths of existing files become absolute ones.",
	"about_try_kinds_file": "Try a kind of this kinds file, as a worker would run it, in place of a program.",
	"about_try_snapshot": "Freeze the program with CRIU at each eviction and continue it, as a kind with this setting: it needs no change. " +
		"The files in its working directory are compared.",
	"about_try_every": "Time from a start of the program to its next eviction. 0s chooses one by how long the program takes.",
	"about_try_grace": "Time in which the program has to end after SIGTERM. An eviction leaves it at most 4.375s, which is " +
		"the default.",
	"about_try_compare": "What has to be the same with and without evictions: ${enum}. outputs is the result and the files in " +
		"SPOTWORKER_OUTPUT.",
	"about_try_compare_with": "Command that compares two runs, for results that may differ in the last digits. It gets two folders, each " +
		"with the file result and the folder outputs, and exits with 0 if they are equal.",
	"about_replay":      "Replay the lives of Spot VMs and the jobs on them in virtual time, and say what evictions cost.",
	"about_replay_file": "Scenario, in JSON: the output of --write-scenario, edited.",
	"about_measure_kinds_file": "Measure a job of a kind of this kinds file first, and replay it. --job-time, --save-time and " +
		"--restore-time replace the measured time.",
	"about_replay_prices": "Output of spotctl prices -o json: the prices, and for synthetic lives the upper end of Azure's class of " +
		"eviction rates. --price, --regular-price and --evictions replace them.",
	"about_replay_lives": "Lives of VMs: poisson, constant, bursts (synthetic); gcp-2019, aws-p3, aws-g4dn (recorded); or a file with " +
		"a lifetime in seconds on each line, or with lines MILLISECONDS,add|remove,VM.",

	"about_up_workers": "Start workers too, each on a VM of its own, and the replacements of evicted ones. Without it you start " +
		"workers in other terminals.",
	"about_up_flexible": "A scale set of Flexible orchestration, as in infra/bicep: each VM is a resource of its own, for az " +
		"vm instead of az vmss.",
}
