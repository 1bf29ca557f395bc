package cli

import (
	"slices"
	"testing"
)

// TestUnread: a variable that no flag reads is found, with the name that may be
// meant, both of flags for all commands and of flags of one command.
func TestUnread(t *testing.T) {
	type put struct {
		TakeOver bool `help:"A flag of a command."`
	}
	var f struct {
		testFlags
		Put put `cmd:"" help:"A command."`
	}
	environ := []string{
		"SPOTWORKER_ACCOUNT=a", "SPOTWORKER_TAKE_OVER=true", "AZURE_CLIENT_ID=x", "PATH=/bin", "SPOTWORKERS=4", "SPOTWORKER_INSTANCES=4",
		"SPOTWORKER_ACOUNT=a", "SPOTWORKER_CONCURENCY=AccountKey=secret", "SPOTWORKER_TAKEOVER=true", "SPOTWORKER_PREFFFIIX=x", "SPOTWORKER_=x",
		"SPOTWORKER_COLOUR=red",
	}
	got, err := Program{Name: "prog", Vars: map[string]string{"address": "none"}}.Unread(&f, environ, []string{"SPOTWORKER_INSTANCES"})
	want := []Unread{
		{"SPOTWORKER_ACOUNT", "SPOTWORKER_ACCOUNT"}, {"SPOTWORKER_CONCURENCY", "SPOTWORKER_CONCURRENCY"},
		{"SPOTWORKER_TAKEOVER", "SPOTWORKER_TAKE_OVER"}, {"SPOTWORKER_PREFFFIIX", "SPOTWORKER_PREFIX"}, {"SPOTWORKER_", ""},
		{"SPOTWORKER_COLOUR", ""},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Unread = %+v, %v, want %+v", got, err, want)
	}
}
