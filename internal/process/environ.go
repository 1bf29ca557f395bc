package process

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spotworker/spotworker/job"
)

// Names of what the worker tells a program. They are the contract.
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

	// As Azure App Service names them; see package tokenproxy.
	envTokenEndpoint = "IDENTITY_ENDPOINT"
	envTokenSecret   = "IDENTITY_HEADER"
)

// contract is the names that a kinds file cannot give another meaning.
var contract = []string{
	envJobID, envKind, envAttempt, envPayload, envRestore, envCheckpoint, envResult, envProgress, envStop,
	envTokenEndpoint, envTokenSecret,
}

// base is what every program gets of the worker's environment, if it is there:
// what it needs to find other programs, and to read and write text and times.
// Everything else stays with the worker, credentials above all.
var base = map[bool][]string{
	false: {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"},
	true: {
		"PATH", "PATHEXT", "SystemRoot", "SystemDrive", "windir", "COMSPEC", "ProgramData", "ProgramFiles",
		"NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
	},
}[runtime.GOOS == "windows"]

// environ is a program's environment. own looks a variable of the worker's up.
func environ(k *Kind, j *job.Job, f *folder, own func(string) (string, bool)) []string {
	vars := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
	pass := func(names []string) {
		for _, name := range names {
			if text, ok := own(name); ok {
				vars[name] = text
			}
		}
	}
	pass(base)
	maps.Copy(vars, map[string]string{
		"HOME": f.work, "USERPROFILE": f.work, "TMPDIR": f.temp, "TMP": f.temp, "TEMP": f.temp,
	})
	pass(k.Pass)
	maps.Copy(vars, k.Environment)
	maps.Copy(vars, map[string]string{
		envJobID: j.ID, envKind: j.Kind, envAttempt: strconv.Itoa(j.Attempt),
		envPayload: f.payload, envCheckpoint: f.checkpoint, envResult: f.result, envProgress: f.progress, envStop: f.stop,
	})
	if f.restored {
		vars[envRestore] = f.restore
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
