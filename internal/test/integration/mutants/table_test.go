package mutants

// some is how many histories are enough to find a mutation, and few where the jobs of
// many never end, which takes hours of virtual time each.
var (
	some = []string{"-histories", "100"}
	few  = []string{"-histories", "12"}
)

// Packages of the tests that must fail.
const (
	crashpoints = "./internal/test/worker/crashpoints"
	evictions   = "./internal/test/worker/evictions"
	fleets      = "./internal/test/worker/fleets"
	histories   = "./internal/test/worker/histories"
	hostile     = "./internal/test/worker/hostile"
	jobs        = "./internal/test/worker/jobs"
	outages     = "./internal/test/worker/outages"
	outputs     = "./internal/jobfiles/outputs"
)

// mutations are the rules to break. A comment gives the consequence where the name
// does not.
var mutations = []mutation{
	{
		name: "writes without fencing", important: true,
		file: "internal/storage/blobs/blobs.go",
		old:  "ModifiedAccessConditions{IfMatch: new(quoted(etag))}", replacement: "ModifiedAccessConditions{}",
		run: "^TestHistories$", pkg: histories, args: few, sign: `although it had been superseded|was written over`,
	},
	{
		name: "a create without its condition",
		file: "internal/storage/blobs/blobs.go",
		old:  "IfNoneMatch: new(azcore.ETagAny)}", replacement: "IfUnmodifiedSince: new(time.Now().Add(time.Hour))}",
		run: "^TestHistories$", pkg: histories, args: some, sign: `although it had been superseded|was written over|progress went back`,
	},
	{
		// Without it every job of more than 30 s is claimed by another worker
		// while its own is well.
		name: "no renewal of messages", important: true,
		file: "internal/delivery/renewal/renewal.go",
		old:  "due := asked.Add(after)", replacement: "due := asked.Add(after * 10000)",
		run: "^TestLongJobIsSeenAndSaved$", pkg: jobs, sign: `renewals in 60 s = 0`,
	},
	{
		name: "a job that is done is done again", important: true,
		file:        "internal/checkpoint/ruling.go",
		old:         "\tcase found.Status.Final():\n\t\treturn Finish\n\tcase found.Status == Open:\n\t\treturn Acquire",
		replacement: "\tcase found.Status.Final() || found.Status == Open:\n\t\treturn Acquire",
		run:         "^TestEveryCall$/^short_job$", pkg: crashpoints, sign: `a record that is done was written over`,
	},
	{
		// The payload of the run before is gone: its message dead-letters the job.
		name: "a message from before the job was put again counts",
		file: "internal/checkpoint/record.go",
		old:  "return again < r.Again", replacement: "return again < 0",
		run: "^TestPutAgain$", pkg: hostile, sign: `want the second one's`,
	},
	{
		// It was frozen, its job was given to another, and it comes back.
		name: "a worker that was superseded writes on",
		file: "internal/checkpoint/ruling.go",
		old:  "\tdefault:\n\t\treturn Fenced", replacement: "\tdefault:\n\t\treturn Repeat",
		run: "^TestHistories$", pkg: histories, args: some, sign: `although it had been superseded`,
	},
	{
		// A commit that never arrived looks like a commit that did.
		name: "an unknown outcome is a success by the token alone",
		file: "internal/checkpoint/ruling.go",
		old:  "found.Token == a.Token && found.Write == a.Write", replacement: "found.Token == a.Token",
		run: "^TestEveryCall$/^long_job$", pkg: crashpoints, sign: `a message was deleted while its job is running`,
	},
	{
		name: "a write number that repeats",
		file: "internal/checkpoint/write.go",
		old:  "\to.number++\n", replacement: "\to.number = 1\n",
		run: "^TestEveryCall$/^long_job$", pkg: crashpoints, sign: `write number went from`,
	},
	{
		// Two duplicates of a long job fence each other.
		name: "a redelivery claims whatever message owns the record",
		file: "internal/checkpoint/ruling.go",
		old:  "\tcase found.MessageID == d.MessageID:\n\t\treturn Acquire", replacement: "\tcase found.MessageID != \"\":\n\t\treturn Acquire",
		run: "^TestDuplicates$", pkg: hostile, sign: `want 1 and none`,
	},
	{
		name: "a claim does not raise the generation",
		file: "internal/checkpoint/claim.go",
		old:  "found.Generation+1", replacement: "found.Generation-1",
		run: "^TestEveryCall$/^redelivery$", pkg: crashpoints, sign: `generation went from`,
	},
	{
		name: "the message is deleted before the record is done",
		file: "internal/delivery/settle.go",
		old: "\tif err := s.own.claim.Commit(s.cleanup, out.result); err != nil {\n\t\treturn err\n\t}\n\tif err := " +
			"s.deleteMessage(); err != nil {\n\t\treturn err\n\t}\n",
		replacement: "\tif err := s.deleteMessage(); err != nil {\n\t\treturn err\n\t}\n\tif err := s.own.claim.Commit(s.cleanup, " +
			"out.result); err != nil {\n\t\treturn err\n\t}\n",
		run: "^TestEveryCall$/^claim_check$", pkg: crashpoints, sign: `the payload of a job was deleted that is|a message was deleted`,
	},
	{
		name:        "a poison job's message is deleted and not kept",
		file:        "internal/delivery/settle.go",
		old:         "\tif err := s.env.Stores.Poison.PutPoison(s.cleanup, p, s.env.Stores.Payloads); err != nil {\n\t\treturn err\n\t}\n",
		replacement: "\t_ = p\n",
		run:         "^TestEveryCall$/^poison$", pkg: crashpoints, sign: `there is no poison message`,
	},
	{
		name: "a moved job moves again",
		file: "internal/delivery/move.go",
		old:  "return !isOnDemand && stop != nil", replacement: "return stop != nil",
		run: "^TestPrioritySwap$", pkg: evictions, sign: `want the same one still there`,
	},
	{
		name: "a deadline is judged by the clock of the VM",
		file: "internal/delivery/move.go",
		old:  "Now: o.lease.ClaimedAt.Add(time.Since(o.lease.AskedAt)),", replacement: "Now: time.Now(),",
		run: "^TestDeadlineByTheServicesClock$", pkg: evictions, sign: `want the first of two`,
	},
	{
		name:        "a moved job's message is deleted and not put",
		file:        "internal/delivery/move.go",
		old:         "if err := to.PutMoved(ctx, s.envelope, 0, s.env.Stores.Payloads); err != nil {",
		replacement: "if err := ctx.Err(); err != nil {",
		run:         "^TestEveryCall$/^priority_move$", pkg: crashpoints, sign: `no other carries it on`,
	},
	{
		name: "an interruption counts as a failure",
		file: "internal/delivery/outcome.go",
		old:  "case e.stop != nil:\n\t\treturn &outcome{action: interrupted", replacement: "case e.stop != nil && n.Failures < 0:\n\t\treturn " +
			"&outcome{action: interrupted",
		run: "^TestHistories$", pkg: histories, args: some, sign: `an interruption was counted as one|want done`,
	},
	{
		name: "a release leaves the state out",
		file: "internal/delivery/settle.go",
		old:  "\terr := s.writeEnd(ctx, true, write)\n", replacement: "\terr := write(s.cleanup, s.run.unsaved().WithoutState())\n",
		run: "^TestPreemptHandsOver$", pkg: evictions, sign: `steps repeated after a notice`,
	},
	{
		// An owner that was frozen and continues sends its files under the names of its
		// successor's.
		name: "all claims of a job send outputs to the same folder",
		file: "internal/jobfiles/outputs/set.go",
		old:  "return strconv.Itoa(t.generation) + \"-\" + t.token[:min(len(t.token), 8)]", replacement: "return strconv.Itoa(1) + \"-0\"",
		run: "^TestEveryCall$/^inputs_and_outputs$", pkg: crashpoints, sign: `which it did not name before`,
	},
	{
		name: "a state is recorded without the outputs that it relies on",
		file: "internal/delivery/save.go",
		old:  "\t\tf.Outputs = checkpoint.Outputs(l.outputs.Ref())\n", replacement: "",
		run: "^TestEveryCall$/^inputs_and_outputs$", pkg: crashpoints, sign: `and names 0 outputs`,
	},
	{
		name: "the next owner forgets the outputs of the one before",
		file: "internal/delivery/load.go",
		old:  "outputs.Limits(o.kind.outputs), hash, files)", replacement: "outputs.Limits(o.kind.outputs), hash, files[:0])",
		run: "^TestEveryCall$/^inputs_and_outputs$", pkg: crashpoints, sign: `the record has lost output`,
	},
	{
		name: "a replay from scratch keeps the outputs",
		file: "internal/checkpoint/record.go",
		old:  "\tr.Outputs = Outputs{}\n", replacement: "",
		run: "^TestEveryCall$/^replay_from_scratch$", pkg: crashpoints, sign: `has lost its state and still names outputs`,
	},
	{
		name: "a redelivery starts from the beginning",
		file: "internal/delivery/load.go",
		old:  "\tcase snapshot == nil:\n", replacement: "\tcase snapshot != nil || snapshot == nil:\n",
		run: "^TestEveryCall$/^redelivery$", pkg: crashpoints, sign: `progress went back`,
	},
	{
		name: "messages that expire",
		file: "internal/queue/queue.go",
		old:  "TimeToLive: new(int32(never))", replacement: "TimeToLive: new(int32(3600))",
		run: "^TestEveryCall$/^poison$", pkg: crashpoints, sign: `a message was put that expires`,
	},
	{
		// After an outage a worker would fence itself.
		name: "a worker does not recognise its own message",
		file: "internal/delivery/active/active.go",
		old:  "lease, ok := s.leases[later.ID]", replacement: "lease, ok := s.leases[\"not \"+later.ID]",
		run: "^TestOwnMessageIsClaimedAgain$", pkg: outages, sign: `the job was not interrupted`,
	},
	{
		name: "unclean exits count in spite of progress",
		file: "internal/checkpoint/update.go",
		old:  "r.Progressed, r.Failures = true, 0\n\t\t\tr.clearExits()", replacement: "r.Failures = 0",
		run: "^TestEvictedAThousandTimes$", pkg: hostile, sign: `want done|no progress after`,
	},
	{
		// A job that kills its process would take others of its worker with it.
		name: "quarantined jobs run side by side",
		file: "internal/delivery/runner.go",
		old:  "quarantine:  make(chan struct{}, 1)", replacement: "quarantine:  make(chan struct{}, 100)",
		run: "^TestKillersAmongHealthyJobs$", pkg: hostile, sign: `quarantined jobs at once`,
	},
	{
		// Messages that wait for a slot would stay hidden when the VM goes.
		name: "the buffer is forgotten when claiming ends",
		file: "internal/worker/claim.go",
		old:  "\t\tc.releaseAll(c.buffer)\n\t\tc.buffer = nil\n", replacement: "\t\tc.buffer = nil\n",
		run: "^TestBufferWhenClaimingEnds$", pkg: fleets, sign: `messages hidden a second after claiming ended`,
	},
	{
		// A worker that was frozen takes a running job from its owner.
		name: "a late delivery does not renew first",
		file: "internal/delivery/claimed.go",
		old:  "if !c.lease.Expired(time.Now()) {", replacement: "if c.lease != nil || !c.lease.Expired(time.Now()) {",
		run: "^TestThawedWorkerTakesNothing$", pkg: evictions, sign: `want 2 by the second worker`,
	},
	{
		// Work would continue on a VM that is about to be deleted.
		name: "a notice is not heard",
		file: "internal/worker/worker.go",
		old:  "\td := drain.ForNotice(n)\n\tc.worker.interrupt(", replacement: "\td := drain.ForNotice(n)\n\tif d != nil {\n\t\treturn\n\t}\n" +
			"\tc.worker.interrupt(",
		run: "^TestPreemptHandsOver$", pkg: evictions, sign: `shutdown: not within`,
	},
	{
		// A worker that lacks a kind poisons the jobs of workers that have it.
		name: "no other worker has a kind that this one lacks",
		file: "internal/delivery/fleet.go",
		old:  "p.Age+now.Sub(s.at) <= within && p.Takes(queue)", replacement: "p.Age < 0 && p.Takes(queue)",
		run: "^TestHistories$", pkg: histories, args: some, sign: `has a handler for kind`,
	},
	{
		// Three copies of a job run inside one worker.
		name: "an id is started beside itself",
		file: "internal/delivery/places.go",
		old:  "if c.idLock.Wait(ctx, duplicatePatience) {", replacement: "if c.idLock.Wait(ctx, 0) || ctx != nil {",
		run: "^TestOneIDOnOneWorker$", pkg: hostile, sign: `at once = 2`,
	},
	{
		// A job that no worker has started is poison at once.
		name: "an unknown kind is poison at once",
		file: "internal/delivery/eligible.go",
		old:  "c.lease.ClaimedAt.Sub(since) >= unknownKindFor", replacement: "c.lease.ClaimedAt.Sub(since) >= 0",
		run: "^TestUnknownKind$", pkg: hostile, sign: `after 59 min`,
	},
	{
		// A purge of an old poison message would cancel a running job.
		name: "a claim keeps endedat",
		file: "internal/checkpoint/claim.go",
		old:  "r.ClaimedAt, r.EndedAt = time.Now(), time.Time{}", replacement: "r.ClaimedAt = time.Now()",
		run: "^TestCancelAfterAClaim$", pkg: "./internal/checkpoint", sign: `want it untouched`,
	},
	{
		// The state of a handler would be handed out as its result.
		name: "an empty result leaves the state in the record",
		file: "internal/checkpoint/update.go",
		old:  "result = []byte{} // an empty body", replacement: "_ = result // an empty body",
		run: "^TestWriteInTrouble$", pkg: "./internal/checkpoint", sign: `record after commit without a result`,
	},
	{
		// Checkpoints would be damaged.
		name: "the end of a stream ends no chunk",
		file: "internal/checkpoint/blocks/upload.go",
		old:  "ends = append(ends, len(p.data))", replacement: "_ = n",
		run: "^TestEveryLengthIsKept$", pkg: "./internal/checkpoint", sign: `its blocks have`,
	},
	{
		// Its job would be open for ever, in no queue.
		name: "a message that is gone is not replaced",
		file: "internal/delivery/settle.go",
		old:  "err != nil || !s.lease.Gone() {", replacement: "err != nil || s.lease != nil {",
		run: "^TestClearedMessageIsReplacedInADrain$", pkg: evictions, sign: `messages after the release`,
	},
	{
		name:        "an idle worker seldom asks for messages",
		file:        "internal/worker/intake/poll.go",
		old:         "return min(every, LongestPoll*time.Duration(p.Queues))",
		replacement: "return 10 * max(every, LongestPoll*time.Duration(p.Queues))",
		run:         "^TestHistories$", pkg: histories, args: some, sign: `had a free slot, want 21s at most`,
	},
	{
		// Jobs would be hidden for 30 s although a worker has just given them up.
		name: "a stop cuts a claim off",
		file: "internal/worker/claim.go",
		old:  "drain.Outlive(ctx, drain.UntilAfter(claimGrace))", replacement: "drain.Outlive(ctx, drain.UntilAfter(0))",
		run: "^TestStopDuringAClaim$", pkg: fleets, sign: `after the stop 4 of 4 messages are hidden`,
	},
	{
		// A freeze would never be acknowledged.
		name: "a job that ends does not answer to save all",
		file: "internal/delivery/running/running.go",
		old:  "\tAnswer(j.TakeRequests(), true)\n", replacement: "\tj.TakeRequests()\n",
		run: "^TestSaveAllOfAJobThatEnds$", pkg: "./internal/delivery/running", sign: `the round has no answer from a job that ended`,
	},
	{
		// The owner finds out at its next write only.
		name: "a cancel that was announced is not looked at",
		file: "internal/delivery/acquire.go",
		old:  "announced := o.env.cancelledAt(o.envelope.ID)", replacement: "announced := time.Time{}",
		run: "^TestCancelRunning$", pkg: jobs, sign: `stopped: not within 30s`,
	},
	{
		// Believing the document deletes a message without an outcome.
		name: "a cancel is believed without the record",
		file: "internal/delivery/acquire.go",
		old:  "err := o.claim.Check(ctx)\n", replacement: "err := error(&checkpoint.ConflictError{Ruling: checkpoint.Finish, Record: " +
			"checkpoint.Record{Status: checkpoint.Cancelled}})\n",
		run: "^TestCancelInTheDocumentAlone$", pkg: jobs, sign: `a message was deleted while its job is`,
	},
	{
		name: "a job that was cancelled while it waited is started",
		file: "internal/delivery/runner.go",
		old:  "return asked != nil && asked.MustCheck(put)", replacement: "return asked == nil && asked.MustCheck(put)",
		run: "^TestCancelWaiting$", pkg: jobs, sign: `was started 1 times and is cancelled`,
	},
	{
		name: "a pause is not followed", important: true,
		file: "internal/worker/steering.go",
		old:  "s.pause.set(s.pauseAll != nil || finishes)", replacement: "s.pause.set(finishes)",
		run: "^TestHistories$", pkg: histories, args: few, sign: `after claiming was paused`,
	},
	{
		name: "a drain is not followed",
		file: "internal/worker/steering.go",
		old:  "case held && !s.held:", replacement: "case held && !held:",
		run: "^TestDrainAndResume$", pkg: jobs, sign: `held: not within`,
	},
	{
		name: "a drained worker is not resumed",
		file: "internal/worker/steering.go",
		old:  "case !held && s.held:", replacement: "case !held && held:",
		run: "^TestDrainAndResume$", pkg: jobs, sign: `job long done: not within`,
	},
	{
		// The file would never be listed.
		name: "a file sent while the list is written counts as listed",
		file: "internal/jobfiles/outputs/set.go",
		old:  "t.ref, t.recorded = ref, changes\n", replacement: "t.ref, t.recorded = ref, t.changes\n",
		run: "^TestFileSentWhileTheListIsWritten$", pkg: outputs, sign: `want one file, and the other unrecorded`,
	},
	{
		// The SDK repeats the write, and every commit of the job fails.
		name: "a list of outputs that exists is an error",
		file: "internal/storage/blobs/put.go",
		old:  "\tif IsConflict(err) {\n\t\treturn nil\n\t}\n", replacement: "",
		run: "^TestLostAnswerToTheListIsSuccess$", pkg: outputs, sign: `want it recorded`,
	},
	{
		name: "an output is removed without its ETag",
		file: "internal/jobfiles/outputs/remove.go",
		old:  "s.blobs.Delete(ctx, b.Name, b.ETag)", replacement: `s.blobs.Delete(ctx, b.Name, "")`,
		run: "^TestRemoveOnlyWhatWasListed$", pkg: outputs, sign: `= true, <nil>, want false`,
	},
	{
		name:        "a follow-up job that cannot be put is forgotten",
		file:        "internal/delivery/outputs.go",
		old:         "l.env.Stores.Payloads); err != nil {\n\t\treturn job.Unavailable(err)\n",
		replacement: "l.env.Stores.Payloads); err != nil {\n\t\treturn nil\n",
		run:         "^TestFollowUpJobThatCannotBePut$", pkg: jobs, sign: `want it to wait`,
	},
	{
		name: "a replay puts onto the first queue alone",
		file: "client/poison.go",
		old:  "\t\tc.stores.Jobs.ReadToPut(ctx)\n", replacement: "",
		run: "^TestReplayAndRequeueOverAllQueues$", pkg: "./client", sign: `job job-\d+ is on spotworker-jobs`,
	},
}
