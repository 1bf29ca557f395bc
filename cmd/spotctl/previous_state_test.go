package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview/detail"
)

// A job shows in words which of its states are kept.
func TestStatesInWords(t *testing.T) {
	for want, j := range map[string]client.Job{
		"":                   {HandOver: time.Second},
		"4 bytes, version 3": {StateSize: 4, StateVersion: 3},
		"4 bytes, version 3; a hand-over takes about 1.5s": {StateSize: 4, StateVersion: 3, HandOver: 1500 * time.Millisecond},
		"4 bytes, version 3; the one before is kept too, 6 bytes": {StateSize: 4, StateVersion: 3, HasPreviousState: true,
			PreviousStateSize: 6},
		"4 bytes, version 3; the job resumed from the one before the last once": {StateSize: 4, StateVersion: 3, StepsBack: 1},
		"4 bytes, version 3; the one before is kept too, 0 bytes; the job resumed from the one before the last 2 times": {
			StateSize: 4, StateVersion: 3, HasPreviousState: true, StepsBack: 2},
		"the job resumed from the one before the last 2 times": {StepsBack: 2},
	} {
		rows := detail.JobRows(j, time.Now())
		if !slices.Contains(rows, [2]string{"checkpoint", want}) {
			t.Errorf("rows = %q, want the checkpoint %q", rows, want)
		}
		var l struct {
			PreviousBytes *int64 `json:"previous_state_bytes"`
			StepsBack     int    `json:"steps_back"`
		}
		text, err := json.Marshal(j)
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err != nil || l.StepsBack != j.StepsBack || (l.PreviousBytes != nil) != j.HasPreviousState {
			t.Errorf("JSON of %+v = %s, %v", j, text, err)
		}
	}
}
