package trial

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Names in a job's folder, as package process makes them.
const (
	checkpointName = "checkpoint"
	resultName     = "result"
	progressName   = "progress"
	stopName       = "stop"
	restoreName    = "restore"
	keptName       = "kept"
	outputName     = "output"
	workName       = "work"
	tempName       = "tmp"
	jobPrefix      = "job-"
)

// change is something that happened to a file.
type change struct {
	op         operation
	name, from string // below the observed folder
	isDir      bool
}

type operation int

const (
	created operation = iota + 1
	modified
	closed // after writing
	read   // and closed
	moved
	removed
	lost // some changes were not told
)

// watcher interprets the events in the scratch folder of one VM.
type watcher struct {
	vm, root string
	recorder *recorder
	job      string // the folder of the job that runs now, below root
}

// jobFile returns the path below a job's folder; ok is false elsewhere.
func (w *watcher) jobFile(name string) (job, file string, ok bool) {
	parts := strings.SplitN(filepath.ToSlash(name), "/", 3)
	if len(parts) < 2 || !strings.HasPrefix(parts[1], jobPrefix) {
		return "", "", false
	}
	if len(parts) == 3 {
		file = parts[2]
	}
	return path.Join(parts[0], parts[1]), file, true
}

// tell is called for each change.
func (w *watcher) tell(c change) {
	now := time.Now()
	if c.op == lost {
		w.recorder.see(func() { w.recorder.course.Unusual = "files changed faster than they could be observed" })
		return
	}
	job, file, ok := w.jobFile(c.name)
	if !ok {
		return
	}
	if file == "" {
		if c.op == created {
			w.job = job
			w.recorder.see(func() { w.recorder.running(w.vm, true) })
		}
		return
	}
	_, from, _ := w.jobFile(c.from)
	var size int64
	var files int
	if c.op == moved && strings.HasPrefix(file, keptName+"/") && from == checkpointName {
		size, files = sizeOf(filepath.Join(w.root, c.name))
	}
	var last []progressLine
	if file == progressName && c.op == modified {
		last = readProgress(filepath.Join(w.root, c.name))
	}
	var act func(string)
	w.recorder.see(func() {
		act = w.recorder.fileChanged(w.vm, fileChange{c.op, file, from, c.isDir, size, files, last, now})
	})
	if act != nil {
		act(w.vm)
	}
}

// fileChange is a change in a job's folder.
type fileChange struct {
	op         operation
	name, from string
	isDir      bool
	size       int64 // of a checkpoint that was collected
	files      int
	progress   []progressLine
	at         time.Time
}

// fileChanged records a change. The caller holds the lock; it calls act, if there is
// one, without it.
func (r *recorder) fileChanged(vm string, c fileChange) (act func(string)) {
	now := r.last(vm)
	switch {
	case now == nil || !now.Ended.IsZero() && c.op != moved:
	case c.from == restoreName:
		now.Read = true // from elsewhere
	case strings.HasPrefix(c.name, keptName+"/"):
		now.keptChanged(c)
	case c.name == checkpointName:
		return r.checkpointChanged(vm, now, c)
	case c.name == resultName:
		now.use(c.from)
		if c.op == modified {
			now.InPlace[resultName] = true
		}
	case strings.HasPrefix(c.name, outputName+"/"):
		now.outputChanged(c)
	case strings.HasPrefix(c.name, workName+"/") || strings.HasPrefix(c.name, tempName+"/"):
		return r.ownChanged(vm, now, c)
	case isSnapshot(c.name):
		return r.snapshotChanged(vm, c)
	default:
		now.told(c)
	}
	return nil
}

// use records that the program uses a file of its own folders.
func (r *programRun) use(name string) {
	if strings.HasPrefix(name, workName+"/") || strings.HasPrefix(name, tempName+"/") {
		r.Used[name] = true
	}
}

// outputChanged is about the output folder.
func (r *programRun) outputChanged(c fileChange) {
	r.use(c.from)
	if !c.isDir && (c.op == closed || c.op == moved) {
		r.Outputs[c.name]++
	}
}

// checkpointChanged is about the place of checkpoints.
func (r *recorder) checkpointChanged(vm string, now *programRun, c fileChange) (act func(string)) {
	switch c.op {
	case moved:
		began := r.writing[vm][c.from]
		delete(r.writing[vm], c.from)
		r.sources[c.from]++
		now.placed = true
		now.Saves = append(now.Saves, save{Began: began, Placed: c.at, Size: -1})
		now.sign(c.at)
	case modified, created:
		now.placed = now.placed && c.op == modified
		switch {
		case now.placed:
			now.Changed = true
		case c.op == modified || c.isDir: // a new file may be a link to a complete file
			now.InPlace[checkpointName] = true
			return r.saving(vm, c)
		}
	case removed:
		now.placed = false
		delete(r.writing[vm], c.name)
	case closed, lost:
		delete(r.writing[vm], c.name)
	case read:
	}
	return nil
}

// keptChanged is about the files that the worker has collected.
func (r *programRun) keptChanged(c fileChange) {
	switch {
	case c.from == checkpointName:
		r.collected(c)
	case c.op == modified:
		r.Changed = true
	}
}

// ownChanged is about the files in the program's own folders.
func (r *recorder) ownChanged(vm string, now *programRun, c fileChange) (act func(string)) {
	if c.op == read || now.Used[c.from] { // also under another name
		now.use(c.name)
	}
	switch c.op {
	case created, modified:
		return r.saving(vm, c)
	case removed:
		delete(r.writing[vm], c.name)
	case moved:
		delete(r.writing[vm], c.from)
	case closed, read, lost:
	}
	return nil
}

// told is about what worker and program tell each other.
func (r *programRun) told(c fileChange) {
	switch {
	case c.name == restoreName || strings.HasPrefix(c.name, restoreName+"/"):
		r.Resumed = true
		r.Read = r.Read || c.op == read
	case c.name == stopName && c.op == moved:
		if r.Stop.IsZero() {
			r.Stop = c.at
		}
	case c.name == progressName && len(c.progress) > 0:
		if r.Reports == 0 {
			r.First = c.progress[0].Fraction
		}
		r.Reports += len(c.progress)
		r.Fraction = c.progress[len(c.progress)-1].Fraction
		r.sign(c.at)
	}
}

// saving notes that a file is being written, perhaps a checkpoint.
func (r *recorder) saving(vm string, c fileChange) (act func(string)) {
	if _, known := r.writing[vm][c.name]; !known {
		r.writing[vm][c.name] = c.at
	}
	if r.onSaving != nil && r.isSource(c.name) {
		act, r.onSaving = r.onSaving, nil
	}
	return act
}

// collected records the files that the worker has taken. A checkpoint that was not
// renamed into place counts from then on.
func (r *programRun) collected(c fileChange) {
	r.placed = false
	if n := len(r.Saves); n > 0 && r.Saves[n-1].Size < 0 {
		r.Saves[n-1].Size, r.Saves[n-1].Files = c.size, c.files
		return
	}
	r.Saves = append(r.Saves, save{Placed: c.at, Size: c.size, Files: c.files})
	r.sign(c.at)
}

func (r *programRun) sign(at time.Time) {
	if r.FirstSign.IsZero() {
		r.FirstSign = at
	}
}

// progressLine is a line of the progress file.
type progressLine struct {
	Fraction float64 `json:"fraction"`
}

// maxProgress is how much of a progress file is read, in bytes.
const maxProgress = 4 << 10

// readProgress returns the last lines of a progress file.
func readProgress(name string) []progressLine {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	} else if info.Size() > maxProgress {
		_, _ = file.Seek(-maxProgress, 2)
	}
	data := make([]byte, maxProgress)
	n, _ := file.Read(data)
	var lines []progressLine
	for line := range bytes.Lines(data[:n]) {
		var one progressLine
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &one) == nil {
			lines = append(lines, one)
		}
	}
	return lines
}

// maxEntries is how many files are looked at in a folder of the program.
const maxEntries = 10_000

// sizeOf returns the size of a file, or of all files in a folder and their number.
func sizeOf(name string) (size int64, files int) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, 0
	}
	if !info.IsDir() {
		return info.Size(), 0
	}
	_ = filepath.WalkDir(name, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		if files++; files >= maxEntries {
			return fs.SkipAll
		}
		return nil
	})
	return size, files
}

// ownFiles returns the sizes of the files in a program's own folders.
func ownFiles(job string) map[string]int64 {
	found := map[string]int64{}
	for _, dir := range []string{workName, tempName} {
		_ = filepath.WalkDir(filepath.Join(job, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // it is gone
			}
			if info, err := entry.Info(); err == nil {
				rel, _ := filepath.Rel(job, name)
				found[filepath.ToSlash(rel)] = info.Size()
			}
			if len(found) >= maxEntries {
				return fs.SkipAll
			}
			return nil
		})
	}
	return found
}
