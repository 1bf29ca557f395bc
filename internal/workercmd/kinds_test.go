package workercmd

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/spotworker/spotworker/internal/azure"
)

// TestBuiltin: a built-in kind is there when its containers are named.
func TestBuiltin(t *testing.T) {
	account, err := azure.Connect(azure.Config{ConnectionString: "AccountName=x;AccountKey=bm90IGEga2V5;BlobEndpoint=http://127.0.0.1:1/x;QueueEndpoint=http://127.0.0.1:1/x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags flags
		want  []string
	}{
		{flags{}, nil},
		{flags{DataContainer: []string{"data"}}, []string{"digest"}},
		{flags{DataContainer: []string{"data"}, OutputContainer: []string{"packed"}}, []string{"compress", "digest"}},
		{flags{OutputContainer: []string{"packed"}}, nil},
	} {
		kinds := c.flags.builtin(account, slog.New(slog.DiscardHandler))
		if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, c.want) {
			t.Errorf("built-in kinds with data %q and output %q = %q, want %q", c.flags.DataContainer, c.flags.OutputContainer, got, c.want)
		}
	}
}
