package program

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/job"
)

// Names of the variables that the worker sets for a program.
const (
	envJobID      = "SPOTWORKER_JOB_ID"
	envKind       = "SPOTWORKER_KIND"
	envAttempt    = "SPOTWORKER_ATTEMPT"
	envPayload    = "SPOTWORKER_PAYLOAD"
	envRestore    = "SPOTWORKER_RESTORE"
	envCheckpoint = "SPOTWORKER_CHECKPOINT"
	envResult     = "SPOTWORKER_RESULT"
	envProgress   = "SPOTWORKER_PROGRESS"
	envStop       = "SPOTWORKER_STOP"
	envInputs     = "SPOTWORKER_INPUTS"
	envOutput     = "SPOTWORKER_OUTPUT"
	envOutputSent = "SPOTWORKER_OUTPUT_SENT"

	// As Azure App Service names them; see package tokenproxy.
	envTokenEndpoint = "IDENTITY_ENDPOINT"
	envTokenSecret   = "IDENTITY_HEADER"

	// As OpenTelemetry's conventions have it for programs that are started by others.
	envTrace = "TRACEPARENT"
)

// contract lists the names that a kinds file cannot set.
var contract = []string{
	envJobID, envKind, envAttempt, envPayload, envRestore, envCheckpoint, envResult, envProgress, envStop,
	envInputs, envOutput, envOutputSent, envTokenEndpoint, envTokenSecret, envTrace,
}

// base lists the variables of the worker's environment that every program gets: it
// needs them to find other programs, and to read and write text and times. All
// others are withheld, credentials above all.
var base = map[bool][]string{
	false: {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"},
	true: {
		"PATH", "PATHEXT", "SystemRoot", "SystemDrive", "windir", "ComSpec", "OS", "ALLUSERSPROFILE", "PUBLIC",
		"ProgramData", "ProgramFiles", "ProgramFiles(x86)", "ProgramW6432",
		"CommonProgramFiles", "CommonProgramFiles(x86)", "CommonProgramW6432", "PSModulePath", "TZ",
		"COMPUTERNAME", "USERNAME", "USERDOMAIN",
		"NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER", "PROCESSOR_LEVEL", "PROCESSOR_REVISION",
	},
}[onWindows]

const onWindows = runtime.GOOS == "windows"

// sameVariable reports whether two names are of one variable. Windows ignores case in
// them.
func sameVariable(a, b string) bool { return a == b || onWindows && strings.EqualFold(a, b) }

// variables is an environment, in which a name stands once.
type variables map[string]string

// set sets a variable, in any case of its earlier name.
func (v variables) set(name, text string) {
	if onWindows {
		maps.DeleteFunc(v, func(known, _ string) bool { return sameVariable(known, name) })
	}
	v[name] = text
}

func (v variables) setAll(all map[string]string) {
	for name, text := range all {
		v.set(name, text)
	}
}

// home are the variables that name the program's own folders.
func (f *folder) home() map[string]string {
	if onWindows {
		return map[string]string{
			"HOME": f.work, "USERPROFILE": f.work, "TMPDIR": f.temp, "TMP": f.temp, "TEMP": f.temp,
			"APPDATA": filepath.Join(f.work, "AppData", "Roaming"), "LOCALAPPDATA": filepath.Join(f.work, "AppData", "Local"),
		}
	}
	return map[string]string{"HOME": f.work, "TMPDIR": f.temp, "TMP": f.temp, "TEMP": f.temp}
}

// environ returns a program's environment. own looks up a variable of the worker's.
func environ(k *Kind, j *job.Job, f *folder, own func(string) (string, bool)) []string { //nolint:cyclop // a list of variables
	f = f.asSeen()
	vars := variables{}
	if !onWindows {
		vars = variables{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
	}
	pass := func(names []string) {
		for _, name := range names {
			if text, ok := own(name); ok {
				vars.set(name, text)
			}
		}
	}
	pass(base)
	vars.setAll(f.home())
	if len(f.gpus) == 0 {
		vars.setAll(k.Pool.Variables(nil)) // unless the kind says otherwise
	}
	pass(k.Pass)
	vars.setAll(k.Environment)
	if len(f.gpus) > 0 {
		vars.setAll(k.Pool.Variables(f.gpus))
	}
	vars.setAll(map[string]string{
		envJobID: j.ID, envKind: j.Kind, envAttempt: strconv.Itoa(j.Attempt),
		envPayload: f.payload, envResult: f.result, envProgress: f.progress, envStop: f.stop,
	})
	if len(f.ownFiles) == 0 && !k.Snapshot {
		vars[envCheckpoint] = f.checkpoint
	}
	if f.restored {
		vars[envRestore] = f.restoredAt()
	}
	if f.inputs != "" {
		vars[envInputs] = f.inputs
	}
	if k.Outputs != nil && !k.Snapshot {
		vars[envOutput] = f.output
	}
	if f.hasSentList {
		vars[envOutputSent] = f.sentList
	}
	if j.Trace != "" {
		vars[envTrace] = j.Trace
	}
	if f.tokenEndpoint != "" {
		vars[envTokenEndpoint], vars[envTokenSecret] = f.tokenEndpoint, f.tokenSecret
	}
	all := make([]string, 0, len(vars))
	for name, text := range vars {
		all = append(all, name+"="+text)
	}
	slices.SortFunc(all, strings.Compare)
	return all
}

// Bounds of the time that is reserved for collecting the last checkpoint.
const (
	shortestReserve = 100 * time.Millisecond
	longestReserve  = time.Second
)

// reserve returns how much of the time until the deadline the program does not get.
func reserve(left time.Duration) time.Duration {
	return min(max(left/8, shortestReserve), longestReserve)
}

// stopNote is the content of the stop file.
type stopNote struct {
	Reason      job.Reason `json:"reason"`
	SecondsLeft float64    `json:"seconds_left"`
	NotBefore   *time.Time `json:"not_before,omitempty"`
}

// noteOf returns the note for a stop that leaves the program so much time.
func noteOf(stop *job.Stop, left time.Duration) stopNote {
	note := stopNote{Reason: stop.Reason, SecondsLeft: max(0, left.Round(time.Millisecond).Seconds())}
	if !stop.NotBefore.IsZero() {
		at := stop.NotBefore.UTC()
		note.NotBefore = &at
	}
	return note
}

// Bounds of the text that is read of a program's progress.
const (
	maxProgressLine = 4 << 10  // bytes of a line; longer lines are malformed
	maxProgressRead = 64 << 10 // bytes in one poll; earlier ones are skipped
)

// report is a line of a program's progress file.
type report struct {
	Fraction float64 `json:"fraction"`
	Text     string  `json:"text"`
}

// progressFile reads a program's progress file from where the last read ended.
type progressFile struct {
	name string
	at   int64
}

// read returns the last report since the previous read, and the number of malformed
// lines. An incomplete line is left for the next read.
func (f *progressFile) read() (last *report, bad int) {
	info, err := os.Lstat(f.name)
	if err != nil || !info.Mode().IsRegular() || info.Size() == f.at {
		return nil, 0
	}
	if info.Size() < f.at {
		f.at = 0 // the program truncated the file
	}
	skipped := info.Size()-f.at > maxProgressRead
	if skipped {
		f.at = info.Size() - maxProgressRead
	}
	file, err := scratch.OpenRegular(f.name)
	if err != nil {
		return nil, 0
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(file, f.at, maxProgressRead))
	if err != nil {
		return nil, 0
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	f.at += int64(len(whole))
	if len(whole) == 0 && len(data) > maxProgressLine {
		f.at += int64(len(data)) // too long for a report
	}
	if skipped { // to the middle of a line
		whole = whole[bytes.IndexByte(whole, '\n')+1:]
	}
	return parseProgress(whole)
}

// parseProgress returns the last valid report, and the number of malformed lines.
func parseProgress(data []byte) (last *report, bad int) {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(charset.Text(line)) // a shell may begin each text that it appends with a mark
		if len(line) == 0 {
			continue
		}
		var t report
		if len(line) > maxProgressLine || !utf8.Valid(line) || json.Unmarshal(line, &t) != nil || !(t.Fraction >= 0 && t.Fraction <= 1) {
			bad++
			continue
		}
		last = &t
	}
	return last, bad
}
