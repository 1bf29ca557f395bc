package presence

import (
	"encoding/json"
	"time"
)

// maxJobs limits the lists of active and of running jobs, so that the blob stays small.
const maxJobs = 1024

// maxWords limits the texts and logs of all running jobs in a heartbeat, in bytes. Further
// jobs have none.
const maxWords = 256 << 10

// maxLogEnd limits the end of the worker's own log, in bytes.
const maxLogEnd = 64 << 10

// maxText limits the text of a job's last report in a heartbeat, in bytes.
const maxText = 512

// maxBody limits how much of a heartbeat's body is read, in bytes. The body is shorter: ids,
// texts and logs have limits.
const maxBody = 4 << 20

// Running is a job whose handler runs, as the worker sees it when it writes its heartbeat.
// The job's record is written less often.
type Running struct {
	// ID is the job's, and Generation the number of the claim.
	ID         string
	Generation int

	// RunTime is how long handlers have run for the job in all deliveries that its record
	// knows, and Ran how long the handler has run in this delivery.
	RunTime, Ran time.Duration

	// From is the fraction with which this delivery began, Fraction the fraction that the
	// handler reported last, and Text the text of that report.
	From, Fraction float64
	Text           string

	// HandOver is how long a hand-over of the job is expected to take; 0 if that is not known.
	HandOver time.Duration

	// Log is the end of the job's log, as a record has it: see package joblog. It is empty
	// if the record has the same.
	Log []byte
}

// body is the wire form of a heartbeat's body.
type body struct {
	Jobs    []string      `json:"jobs"`
	Running []runningBody `json:"running,omitempty"`
	Log     string        `json:"log,omitempty"`
}

// runningBody is the wire form of a running job. Times are in seconds.
type runningBody struct {
	ID         string  `json:"id"`
	Generation int     `json:"generation"`
	RunTime    float64 `json:"run_time"`
	Ran        float64 `json:"ran"`
	From       float64 `json:"from,omitempty"`
	Fraction   float64 `json:"fraction,omitempty"`
	Text       string  `json:"text,omitempty"`
	HandOver   float64 `json:"hand_over,omitempty"`
	Log        []byte  `json:"log,omitempty"`
}

// body returns the body of the heartbeat.
func (p *Presence) body() ([]byte, error) {
	b := body{Jobs: p.Jobs[:min(len(p.Jobs), maxJobs)], Log: p.LogEnd[max(len(p.LogEnd)-maxLogEnd, 0):]}
	words := 0
	for _, r := range p.Running[:min(len(p.Running), maxJobs)] {
		w := runningBody{
			ID: r.ID, Generation: r.Generation, RunTime: seconds(r.RunTime), Ran: seconds(r.Ran),
			From: share(r.From), Fraction: share(r.Fraction), HandOver: seconds(r.HandOver),
		}
		text := beginning(r.Text, maxText)
		if words += len(text) + len(r.Log); words <= maxWords {
			w.Text, w.Log = text, r.Log
		}
		b.Running = append(b.Running, w)
	}
	return json.Marshal(b)
}

// readBody reads the body of a heartbeat.
func (p *Presence) readBody(text []byte) error {
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	p.Jobs, p.Running, p.LogEnd = b.Jobs, nil, b.Log
	for _, r := range b.Running {
		p.Running = append(p.Running, Running{
			ID: r.ID, Generation: r.Generation, RunTime: duration(r.RunTime), Ran: duration(r.Ran),
			From: share(r.From), Fraction: share(r.Fraction), Text: r.Text, Log: r.Log, HandOver: duration(r.HandOver),
		})
	}
	return nil
}

// seconds returns a duration in seconds, to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// longest is longer than any job runs, and far below the largest time.Duration.
const longest = 100 * 365 * 24 * time.Hour

// duration returns a number of seconds as a duration, between 0 and longest.
func duration(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, longest.Seconds()) * float64(time.Second)).Round(time.Millisecond)
}

// share limits a fraction to 0 to 1; NaN is 0.
func share(fraction float64) float64 {
	if !(fraction > 0) {
		return 0
	}
	return min(fraction, 1)
}

// beginning returns the first bytes of a text, and whole characters of it.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "…"
	most -= len(more)
	for most > 0 && text[most]&0xC0 == 0x80 {
		most--
	}
	return text[:most] + more
}
