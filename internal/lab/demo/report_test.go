package demo

import (
	"testing"

	"github.com/spotworker/spotworker/internal/lab/text"
)

func TestOnlyTimesHaveAMargin(t *testing.T) {
	for _, test := range []struct {
		row  text.Promise
		want string
	}{
		{within("", measuredTime{2 * second, 1, 0}, 2*second), text.Kept},
		{within("", measuredTime{2*second + 1, 1, 0}, 2*second), text.Late},
		{within("", measuredTime{3 * second, 1, 0}, 2*second), text.Late},
		{within("", measuredTime{3*second + 1, 2, 0}, 2*second), text.Broken},
		{within("", measuredTime{}, 2*second), text.Broken},
		{within("", measuredTime{second, 1, 1}, 2*second), text.Broken},
		{inTurn("", measuredTime{second, 1, 0}, ""), text.Kept},
		{inTurn("", measuredTime{second, 1, 1}, ""), text.Broken},
		{atLeast("", 1, 1), text.Kept},
		{atLeast("", 0, 1), text.Broken},
		{atMost("", 4, 4), text.Kept},
		{atMost("", 5, 4), text.Broken},
		{text.Exactly("", 4, 4), text.Kept},
		{text.Exactly("", 3, 4), text.Broken},
		{text.Exactly("", 5, 4), text.Broken},
	} {
		if test.row.Verdict != test.want {
			t.Errorf("%s of %s = %s, want %s", test.row.Measured, test.row.Promised, test.row.Verdict, test.want)
		}
	}
}
