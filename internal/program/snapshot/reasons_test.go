package snapshot

import (
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	for _, row := range []struct {
		log   string
		want  string
		known bool
	}{
		{"(00.1) 12 was stopped\n(00.2) Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider using --tcp-established option.\n" +
			"(00.3) Error (criu/cr-dump.c:2111): Dumping FAILED.\n", "the program has an open network connection, which cannot move", true},
		{"(00.2) Error (criu/sockets.c:1): sockets: Can't get 1:16 opt: Operation not supported\n", "network socket open", true},
		{"Error (criu/files.c:5): Can't dump file 3 of that type [20600] (chr 195:255)\n", "a type that cannot be kept: chr 195:255", true},
		{"Error (criu/files-reg.c:1790): Can't lookup mount=24 for fd=10 path=/dev/null\n", "/dev/null open, which is on another mount", true},
		{"Error (criu/files-reg.c:1): Can't dump ghost file /tmp/x of 2097152 size, increase limit\n",
			"a deleted file of 2097152 bytes (/tmp/x)", true},
		{"Error (criu/namespaces.c:1): Can't dump nested user namespace for 1002\n", "a user namespace of its own", true},
		{"Error (criu/files-reg.c:1): File media/spotworker/work/a has bad size 3 (expect 5)\n",
			"media/spotworker/work/a has 3 bytes here and had 5", false},
		{"Error (criu/cr-restore.c:1): Pid 1002 do not match expected 1003\n", "a process id of the program is in use", false},
		{"Error (criu/proc_parse.c:1): Can't open mapped [/dev/shm/x y (deleted)]: No such file\n", "has just deleted /dev/shm/x y", false},
		{"Error (criu/proc_parse.c:1): Can't open mapped [/tmp/x (deleted)]: None\n", "/tmp/x in its memory, a deleted file outside", true},
		{"Error (criu/x.c:1): something new\nError (criu/y.c:2): and its consequence\n", "criu dump failed: something new", false},
		{"Error (criu/x.c:1): \xff" + strings.Repeat("x", 1000), "…", false},
		{"Error (criu/proc_parse.c:1): Failed to resolve mapping 55f70ec39000 filename\n", "a file system such as an overlay", false},
		{"", "its log names no error", false},
	} {
		got := explain("dump", []byte(row.log))
		if !strings.Contains(got.Reason, row.want) || got.Known != row.known {
			t.Errorf("explain(%.80q) = %q, known %v; want %q, known %v", row.log, got.Reason, got.Known, row.want, row.known)
		}
		if len(got.Reason) > maxReason+100 {
			t.Errorf("explain(%.80q) has %d bytes", row.log, len(got.Reason))
		}
	}
}

func TestParseVersion(t *testing.T) {
	for printed, want := range map[string]string{
		"Version: 4.1.1\n":              "4.1.1",
		"Version: 4.0\nGitID: v4.0-1\n": "4.0",
		"Version: 10.2\n":               "10.2",
	} {
		if got, err := parseVersion([]byte(printed)); got != want || err != nil {
			t.Errorf("parseVersion(%q) = %q, %v, want %q", printed, got, err, want)
		}
	}
	for printed, want := range map[string]string{
		"Version: 3.17.1\n": "criu 3.17.1 is too old: process snapshots take 4.0 or newer",
		"":                  "prints no version",
		"criu: not found":   "prints no version",
	} {
		if _, err := parseVersion([]byte(printed)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseVersion(%q) = %v, want %q", printed, err, want)
		}
	}
}
