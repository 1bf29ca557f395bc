package snapshot

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// RefusedError is the error of a program that criu cannot freeze or restore.
type RefusedError struct {
	// Reason is in plain words.
	Reason string

	// Known says that the reason is a property of the program, so that another try, here or
	// elsewhere, has the same end.
	Known bool
}

func (e *RefusedError) Error() string { return e.Reason }

// reason translates a line of criu's log.
type reason struct {
	line func() *regexp.Regexp
	text string // $1 is the first group of the line
	kept bool   // it is a property of the program, which no machine changes
}

func permanent(line, text string) reason {
	return reason{line: lazyregexp.New(line), text: text, kept: true}
}

func passing(line, text string) reason { return reason{line: lazyregexp.New(line), text: text} }

// watchReason is about inotify and fanotify. criu finds watched files by their numbers in the job's folder:
// only root of the machine may open them by their handles.
const watchReason = "the program watches files outside of the job's folder (inotify), which CRIU cannot find; tail has ---disable-inotify"

var reasons = []reason{
	permanent(`Connected TCP socket|inet: Socket \S+ is in-flight|inet: .*in-flight connection`,
		"the program has an open network connection, which cannot move to another machine"),
	permanent(`sockets: Can't get \S+ opt`, "the program has a network socket open, which CRIU cannot keep on this kernel"),
	permanent(`unix: (?:External socket is used|Can't dump half of stream unix connection|Can't dump name-less external socket)`,
		"the program is connected to a process outside of the job by a unix socket"),
	permanent(`Only stream, dgram and raw are supported|Can't dump corked dgram socket|netlink: .*(?:not supported|queue)|tun: Can't dump`,
		"the program has a socket of a type that cannot be kept"),
	permanent(`Can't dump file \d+ of that type \[\d+\] \((.+)\)`, "the program has an open file of a type that cannot be kept: $1"),
	permanent(`Can't lookup mount=\S+ for fd=(\S+) path=(\S+)`, "the program has $2 open, which is on another mount"),
	permanent(`Open files on overmounted mounts .* path=(\S+)`, "the program has $1 open, which is hidden by a mount"),
	permanent(`Can't dump ghost file (\S+) of (\d+) size`, "the program uses a deleted file of $2 bytes ($1), more than can be kept"),
	permanent(`Can't create link remap for (\S+)\. Use link-remap`,
		"the program uses $1 by a name that was deleted, while another name exists"),
	passing(`Can't open mapped \[((?:`+Place+`|/dev/shm)/.+) \(deleted\)\]`, "the program has just deleted $1, a file in its memory"),
	permanent(`Can't open mapped \[(.+) \(deleted\)\]`, "the program has $1 in its memory, a deleted file outside of the job's folder"),
	permanent(`session leader of .* is outside of its pid namespace`, "a process of the program belongs to a session outside of the job"),
	permanent(`fsnotify: `, watchReason),
	permanent(`SysVIPC shmem map`, "the program uses System V shared memory, which cannot be kept"),
	permanent(`io_uring`, "the program uses io_uring, which cannot be kept"),
	permanent(`running in 32-bit mode`, "the program is a 32-bit program, which cannot be kept"),
	permanent(`Can't dump nested (\S+) namespace`,
		"the program has made a $1 namespace of its own, as containers and browsers do, which cannot be kept"),
	passing(`Failed to resolve mapping \S+ filename`,
		"the program or a library of it is on a file system such as an overlay, where CRIU cannot find it by its mapping"),
	passing(`already traced|[Uu]nable to seize|Can't seize|is being traced`, "a process of the program is traced by a debugger"),
	passing(`File (\S+) has bad size (\d+) \(expect (\d+)\)`, "$1 has $2 bytes here and had $3"),
	passing(`File (\S+) has bad mode`, "$1 has another mode here"),
	passing(`File (\S+) has bad build-ID`, "$1 has other content here"),
	passing(`Can't open file (\S+) on restore`, "the program has $1 open, which cannot be opened here"),
	passing(`CPU .*(?:do(?:es)? not match|capabilities|requirements)`, "the processor lacks features that the program uses"),
	passing(`Pid (\d+) do not match|Can't fork for (\d+): File exists`, "a process id of the program is in use"),
}

// errorLine is a line of criu's log with an error.
var errorLine = lazyregexp.New(`Error \([^)]*\): (.*)`)

// maxReason bounds the text of an unknown reason, in bytes.
const maxReason = 300

// explain returns the error of a call of criu, by its log.
func explain(verb string, log []byte) *RefusedError {
	var first string
	for line := range bytes.Lines(log) {
		m := errorLine().FindSubmatch(bytes.TrimSpace(line))
		if m == nil {
			continue
		}
		text := strings.ToValidUTF8(string(m[1]), "?")
		for _, r := range reasons {
			if at := r.line().FindStringSubmatchIndex(text); at != nil {
				return &RefusedError{Reason: string(r.line().ExpandString(nil, r.text, text, at)), Known: r.kept}
			}
		}
		if first == "" {
			first = text
		}
	}
	if first == "" {
		first = "its log names no error"
	}
	if len(first) > maxReason {
		first = strings.ToValidUTF8(first[:maxReason], "") + " …"
	}
	return &RefusedError{Reason: fmt.Sprintf("criu %s failed: %s", verb, first)}
}

// oldest is the oldest version of criu that works with current kernels.
var oldest = [2]int{4, 0}

var versionLine = lazyregexp.New(`(?m)^Version: (\d+)\.(\d+)(\S*)`)

// parseVersion returns the version that criu prints. The error says what to install.
func parseVersion(printed []byte) (string, error) {
	m := versionLine().FindSubmatch(printed)
	if m == nil {
		return "", fmt.Errorf("criu --version prints no version: %.100q", printed)
	}
	var major, minor int
	_, _ = fmt.Sscan(string(m[1]), &major)
	_, _ = fmt.Sscan(string(m[2]), &minor)
	version := fmt.Sprintf("%d.%d%s", major, minor, m[3])
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return version, fmt.Errorf("criu %s is too old: process snapshots take %d.%d or newer (Debian 13 has 4.1)", version, oldest[0], oldest[1])
	}
	return version, nil
}
