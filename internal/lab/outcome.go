package lab

import (
	"encoding/json"
	"fmt"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/jobid"
)

// endOf looks into the storage when the work is over.
func endOf(s *storage.Server, names azure.Names, f *facts) End {
	end := End{Results: map[string][]byte{}, Waiting: map[string]bool{}}
	for id := range f.jobs {
		if blob, body, ok := s.ReadBlob(names.Records, jobid.Path(id)); ok && blob.Metadata["status"] == statusDone {
			end.Results[id] = body
		}
	}
	for _, queue := range []string{names.Queue, names.Poison} {
		messages := s.Messages(queue)
		if queue == names.Queue {
			end.Messages = len(messages)
		}
		for _, m := range messages {
			if job, ok := readMessage(m.Text); ok {
				end.Waiting[job.id] = true
			}
			if p, ok := readPoison(m); ok && queue == names.Poison {
				end.Poison = append(end.Poison, p)
			}
		}
	}
	return end
}

// right reports whether a result is the digest of that file.
func right(result []byte, file File) bool {
	var r struct {
		Algorithm, Digest string
		Bytes             int64
	}
	return json.Unmarshal(result, &r) == nil &&
		r.Algorithm == "sha256" && r.Digest == file.SHA256 && r.Bytes == file.Size
}

// describe says where a job that is not committed is.
func describe(f *facts, id string, end End) string {
	name, status := f.jobs[id].blob, f.status(id)
	switch {
	case status == statusPoison:
		return name + ": given up, its message is in the poison queue"
	case !end.Waiting[id]:
		return name + ": lost, there is no message of it"
	case status == "":
		return name + ": waiting, not saved yet"
	}
	if s, ok := f.lastStart(id); ok {
		return fmt.Sprintf("%s: %s, last in the hands of %s", name, status, s.vm)
	}
	return name + ": " + status
}
