package demo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// endState is the content of storage at the end.
type endState struct {
	// Results are the bodies of the records that are done, by job id.
	Results map[string][]byte

	// Waiting are the ids of the jobs that have a message on a queue of jobs or
	// in the poison queue. Messages is how many messages the queues of jobs have.
	Waiting  map[string]bool
	Messages int

	// Poison are the messages in the poison queue.
	Poison []poisonMessage
}

// findings are the events, to be compared with the promises.
type findings struct {
	Jobs  int   // that must be committed
	Bytes int64 // of all input

	Committed      int
	CommittedTwice int
	Lost           int // neither committed nor on a queue, or deleted without an outcome
	WrongDigests   int
	Miscounted     int // failures that were counted against jobs
	Messages       int // left on the queue
	Unseen         int // writes and messages that could not be read

	Duplicates, Absorbed int // jobs that were put twice, and those committed once with no message left

	BadMessages []badMessageEnd
	Poison      []poisonMessage

	StaleWrites int // that took effect
	Backwards   int // saved states behind the state that they replaced
	Frozen      frozenWorkers

	Evictions, Kills int
	TwiceAfterNotice redoneBytes
	TwiceAfterKill   redoneBytes
	TwiceAfterFreeze redoneBytes
	TwiceByDuplicate int64
	TwiceOtherwise   int64 // bytes hashed twice though the first worker was not interrupted

	// OldestUnsaved is how long before a kill the oldest of the unsaved bytes
	// were hashed, and SlowestSave the longest time from a save's arrival at
	// storage to its effect. The promise is one checkpoint interval and one save.
	OldestUnsaved, SlowestSave time.Duration

	// LongestDuplicate is the longest time that a worker worked on a duplicate
	// until its first write was refused.
	LongestDuplicate measuredTime

	// The slowest eviction with notice: from the announcement at the metadata
	// endpoint, and from its first delivery to the VM, until the contexts were
	// cancelled; and from the delivery until the last message was released.
	AnnouncedToStopped, ServedToStopped, ServedToReleased measuredTime

	// The slowest job of a lost VM: from the announcement, kill or freeze until
	// another worker resumed it.
	NoticeToResumed, KillToResumed, FreezeToResumed measuredTime

	// Missing describes the jobs that are not committed.
	Missing []string
}

// badMessageEnd is the fate of a message that no worker can process.
type badMessageEnd struct {
	Label string
	Kept  bool // in the poison queue, with the right reason, and nowhere else
}

// frozenWorkers is the fate of workers that were suspended.
type frozenWorkers struct {
	VMs     int
	Held    int // jobs that they held and others took over
	Fenced  int // of these: that they stopped working on, by their own log
	Refused int // their writes that storage refused

	// ThawedToFenced is the longest time until a worker stopped working on a job.
	ThawedToFenced measuredTime
}

// redoneBytes is work that was done twice, in bytes, and the allowed amount: bytes that
// were hashed and not saved.
type redoneBytes struct{ Bytes, Limit int64 }

// measuredTime is the longest of several times. Some may not have been observed.
type measuredTime struct {
	time.Duration
	Seen, Missed int
}

// Known reports whether all of the times were observed.
func (m measuredTime) Known() bool { return m.Seen > 0 && m.Missed == 0 }

// audit derives the findings. It is a pure function.
func audit(h *history, end endState) findings {
	f := findings{Jobs: len(h.good()), Messages: end.Messages, Unseen: h.Unknown, Poison: end.Poison}
	for _, file := range h.files {
		f.Bytes += file.Size
	}
	f.outcomes(h, end)
	f.badMessages(h, end)
	f.duplicates(h, end)
	f.redone(h)
	for _, vm := range slices.Sorted(maps.Keys(h.fates)) {
		switch h.fates[vm].kind {
		case evicted:
			f.notice(h, vm)
		case killed:
			f.kill(h, vm)
		case frozen:
			f.freeze(h, vm)
		case spared:
		}
	}
	return f
}

// outcomes counts how the jobs ended.
func (f *findings) outcomes(h *history, end endState) {
	for _, j := range h.Jobs {
		v := j.Judge()
		f.StaleWrites += v.Broken[oracle.Stale]
		f.Backwards += v.Broken[oracle.Backwards]
		for _, w := range j.Writes {
			if w.Progress >= 0 {
				f.SlowestSave = max(f.SlowestSave, w.Took)
			}
		}
	}
	for _, id := range h.good() {
		v := h.Jobs[id].Judge()
		f.Committed += v.Committed
		f.CommittedTwice += v.Broken[oracle.Twice]
		f.Miscounted += v.Broken[oracle.Miscounted]
		if v.Committed == 0 {
			f.Missing = append(f.Missing, describe(h, id, end))
		} else if v.Broken[oracle.Wrong] > 0 || !isDigest(end.Results[id], h.files[h.blobs[id]]) {
			f.WrongDigests++
		}
		if h.Jobs[id].LostMessage() || v.Committed == 0 && !end.Waiting[id] {
			f.Lost++
		}
	}
}

// badMessages checks that they became poison.
func (f *findings) badMessages(h *history, end endState) {
	for _, b := range h.bad {
		kept := slices.ContainsFunc(end.Poison, b.became)
		f.BadMessages = append(f.BadMessages, badMessageEnd{Label: b.label, Kept: kept && h.commits(b.job) == 0})
	}
}

// duplicates counts what happened to jobs that were put more than once.
func (f *findings) duplicates(h *history, end endState) {
	for _, id := range h.good() {
		if !h.isDuplicated(id) {
			continue
		}
		f.Duplicates++
		if h.commits(id) == 1 && !end.Waiting[id] {
			f.Absorbed++
		}
		for _, s := range h.starts {
			if e, ok := h.endAfter(s, s.at); ok && s.job == id {
				f.LongestDuplicate.add(s.at, e.at)
			}
		}
	}
}

// describe says where a job is that is not committed.
func describe(h *history, id string, end endState) string {
	name, status := h.blobs[id], ""
	for _, w := range h.writes(id) {
		status = w.Status
	}
	switch {
	case status == oracle.Poison:
		return name + ": dead-lettered, its message is in the poison queue"
	case !end.Waiting[id]:
		return name + ": lost, there is no message of it"
	case status == "":
		return name + ": waiting, not saved yet"
	}
	if s, ok := h.lastStart(id); ok {
		return fmt.Sprintf("%s: %s, last on %s", name, status, s.vm)
	}
	return name + ": " + status
}

// endOf reads storage at the end.
func endOf(s *storage.Server, names azure.Names, h *history) endState {
	end := endState{Results: map[string][]byte{}, Waiting: map[string]bool{}}
	for id := range h.Jobs {
		if blob, body, ok := s.ReadBlob(names.Records, jobid.Path(id)); ok && blob.Metadata["status"] == oracle.Done {
			end.Results[id] = body
		}
	}
	for _, queue := range []string{names.First, names.Queue, names.Poison} {
		messages := s.Messages(queue)
		if queue != names.Poison {
			end.Messages += len(messages)
		}
		for _, m := range messages {
			if envelope, ok := oracle.ReadMessage(m.Text); ok {
				end.Waiting[envelope.ID] = true
			}
			if p, ok := readPoison(m.Text); ok && queue == names.Poison {
				end.Poison = append(end.Poison, p)
			}
		}
	}
	return end
}

// isDigest reports whether a result is the digest of that file.
func isDigest(result []byte, file lab.File) bool {
	var r struct {
		Algorithm, Digest string
		Bytes             int64
	}
	return json.Unmarshal(result, &r) == nil &&
		r.Algorithm == "sha256" && r.Digest == file.SHA256 && r.Bytes == file.Size
}
