package job

import "testing"

func TestCheckVersion(t *testing.T) {
	for _, row := range []struct {
		name  string
		saved *Progress
		known []int
		want  string
	}{
		{"fresh start", nil, []int{1}, ""},
		{"progress without a state", &Progress{Fraction: 0.5, Version: 9}, []int{1}, ""},
		{"known", &Progress{State: []byte("s"), Version: 2}, []int{1, 2}, ""},
		{"empty state, no version given", &Progress{State: []byte{}}, []int{0}, ""},
		{"newer", &Progress{State: []byte("s"), Version: 3}, []int{1, 2},
			"recorded state has version 3; this program reads 1, 2: let workers of the program that wrote it finish the job"},
		{"newer stream", &Progress{Stream: streamOf("s"), Version: 2}, []int{1},
			"recorded state has version 2; this program reads 1: let workers of the program that wrote it finish the job"},
	} {
		err := New(Spec{}, row.saved).CheckVersion(row.known...)
		if got := text(err); got != row.want || IsPermanent(err) {
			t.Errorf("%s: CheckVersion = %q, want %q and not permanent", row.name, got, row.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
