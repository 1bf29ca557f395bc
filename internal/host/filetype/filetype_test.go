package filetype

import (
	"io/fs"
	"testing"
)

func TestName(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		fs.ModeNamedPipe | 0o600: "named pipe", fs.ModeSocket: "socket", fs.ModeDevice: "device", fs.ModeDevice | fs.ModeCharDevice: "device",
	} {
		if got := Name(mode); got != want {
			t.Errorf("Name(%s) = %q, want %q", mode, got, want)
		}
	}
}
