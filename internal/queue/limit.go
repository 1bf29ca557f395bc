package queue

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxLimit is the largest limit that an envelope may set, some 30 years: more is
// a typing mistake, and would not fit into a [time.Duration] soon after.
const MaxLimit = 1_000_000_000 * time.Second

// CheckLimit says what is wrong with a job's MaxRun or MaxSilence, or returns nil.
func CheckLimit(limit time.Duration) error {
	if limit < 0 || limit > MaxLimit || limit%time.Second != 0 {
		return fmt.Errorf("%s is no limit: give whole seconds, from 1s to %s, or 0 for none", limit, MaxLimit)
	}
	return nil
}

// wireSeconds is a limit on the wire: whole seconds as a JSON number.
type wireSeconds time.Duration

func (s wireSeconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(int64(time.Duration(s) / time.Second))
}

func (s *wireSeconds) UnmarshalJSON(raw []byte) error {
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	if n < 0 || n > int64(MaxLimit/time.Second) {
		return fmt.Errorf("%d is out of range: whole seconds, up to %d", n, int64(MaxLimit/time.Second))
	}
	*s = wireSeconds(time.Duration(n) * time.Second)
	return nil
}
