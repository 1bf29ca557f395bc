package workercmd

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/spotworker/spotworker/internal/storage/azure"
)

// TestBuiltin: a built-in kind is there when its containers are named.
func TestBuiltin(t *testing.T) {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: "AccountName=x;AccountKey=bm90IGEga2V5;" +
		"BlobEndpoint=http://127.0.0.1:1/x;QueueEndpoint=http://127.0.0.1:1/x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags flags
		want  []string
	}{
		{flags{}, nil},
		{flags{DataContainer: []string{"data"}}, []string{"digest"}},
	} {
		kinds := c.flags.builtin(account, slog.New(slog.DiscardHandler))
		if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, c.want) {
			t.Errorf("built-in kinds with data %q = %q, want %q", c.flags.DataContainer, got, c.want)
		}
	}
}

// TestProgramsShareUser: cached inputs are verified unless programs have users of their own.
func TestProgramsShareUser(t *testing.T) {
	for given, want := range map[string]bool{"none": true, "": true, "wrong": true, "900000-900100": false} {
		f := flags{ProgramUsers: given}
		if got := f.programsShareUser(); got != want {
			t.Errorf("--program-users %q: programs share the worker's user: %t, want %t", given, got, want)
		}
	}
}
