package recorder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// ExpectedOutputs are the outputs that a job sends: an output with each of its steps,
// before it reports the step, and never a change to one.
type ExpectedOutputs struct {
	Steps   int
	Content func(step int) string
}

// listedOutput is a file in a list of outputs, as docs/FORMATS.md has it.
type listedOutput struct {
	Path, SHA256, Folder, ETag string
	Size                       int64
}

// ExpectOutputs makes the recorder judge the outputs that the records of a job name.
func (rec *Recorder) ExpectOutputs(id string, want ExpectedOutputs) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.job(id).expected = &want
}

// checkNamedOutputs checks which outputs a record names that was just written, and that
// had these keys before. The state relies on all outputs of the steps before it. The list
// has the record's earlier files, unchanged, and beside them only files of the claim that
// wrote the record: never a file of another claim, and so of no superseded one. Outputs
// are removed with the state.
func (rec *Recorder) checkNamedOutputs(j *JobHistory, was map[string]string, r storage.Result, progress int) {
	if j.expected == nil {
		return
	}
	hash, removed := j.meta["outputs"], j.losesState(was)
	if removed && hash != "" {
		rec.addViolation(j, "the record has lost its state and still names outputs")
	}
	if r.IfNoneMatch == "*" || removed || rec.Sender == Operator && hash == "" {
		j.outputs, j.outputList = nil, ""
	}
	if hash != j.outputList {
		rec.checkOutputList(j, hash)
		j.outputList = hash
	}
	if len(j.outputs) < progress {
		rec.addViolation(j, "the record has the state of step %d and names %d outputs", progress, len(j.outputs))
	}
}

// losesState reports whether the record that had these keys no longer has a state, and no
// result either.
func (j *JobHistory) losesState(was map[string]string) bool {
	switch status := j.meta["status"]; status {
	case string(checkpoint.Done):
		return false
	case string(checkpoint.Cancelled):
		return true
	}
	return was["statehash"] != "" && j.meta["statehash"] == ""
}

func (rec *Recorder) checkOutputList(j *JobHistory, hash string) {
	files, problem := rec.readOutputList(j.id, hash)
	if problem != "" {
		rec.addViolation(j, "the record names a list of outputs that %s", problem)
		return
	}
	own := j.meta["generation"] + "-" + j.meta["token"][:8]
	now := map[string]listedOutput{}
	for _, f := range files {
		now[f.Path] = f
		if f == j.outputs[f.Path] {
			continue
		}
		if f.Folder != own && !strings.HasPrefix(f.Folder, own+"-") {
			rec.addViolation(j, "the record of claim %s names output %s of claim %s, which it did not name before", own, f.Path, f.Folder)
		}
		blob, body, found := rec.server.ReadBlob(rec.names.Outputs, BlobOf(rec.server, rec.names, j.id)+"/"+f.Folder+"/"+f.Path)
		if sum := sha256.Sum256(body); !found || blob.ETag != f.ETag || hex.EncodeToString(sum[:]) != f.SHA256 {
			rec.addViolation(j, "the record names output %s of claim %s, and its blob is not there or not that one", f.Path, f.Folder)
		}
	}
	for path := range j.outputs {
		if _, ok := now[path]; !ok {
			rec.addViolation(j, "the record has lost output %s, which it named before", path)
		}
	}
	j.outputs = now
}

// readOutputList returns the files of a list that a record names, or the list's fault.
func (rec *Recorder) readOutputList(id, hash string) (files []listedOutput, problem string) {
	if hash == "" {
		return nil, ""
	}
	_, body, found := rec.server.ReadBlob(rec.names.Outputs, BlobOf(rec.server, rec.names, id)+"/manifest-"+hash+".json")
	if !found {
		return nil, "is not there"
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != hash {
		return nil, "is not the one with that hash"
	}
	var list struct {
		Job   string
		Files []listedOutput
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Job != id {
		return nil, "is not one of the job"
	}
	return list.Files, ""
}

// ExpectedOf returns the outputs that a job is expected to send, or nil.
func (rec *Recorder) ExpectedOf(id string) *ExpectedOutputs {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.job(id).expected
}

// BlobOf returns the name of a job's record, or the empty string.
func BlobOf(server *storage.Server, names azure.Names, id string) string {
	for _, blob := range server.Blobs(names.Records) {
		if strings.HasSuffix(blob.Name, "/"+id) {
			return blob.Name
		}
	}
	return ""
}
