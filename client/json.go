package client

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"
	"unicode/utf8"
)

// spotctl prints the JSON forms below with --output json. They are for output: Go
// values cannot be read back from them. Times are in UTC and durations in seconds.

// MarshalJSON returns the job as spotctl prints it. Beside the fields of the record it has
// the estimates of [Job.TimeLeft], [Job.ExpectedEnd] and [Job.Risk].
func (j Job) MarshalJSON() ([]byte, error) {
	var o object
	o.set("id", j.ID)
	o.some("kind", j.Kind)
	o.set("status", j.Status)
	o.some("group", j.Group)
	o.set("fraction", j.Fraction)
	o.some("text", j.Text)
	o.some("reason", j.Reason)
	o.some("owner", j.Owner)
	o.set("deliveries", j.Deliveries)
	o.set("interruptions", j.Interruptions)
	o.set("failures", j.Failures)
	o.set("total_failures", j.TotalFailures)
	o.set("unclean_exits", j.UncleanExits)
	o.set("run_seconds", j.RunTime.Seconds())
	if j.Deliveries > 0 {
		o.set("cost", j.Cost)
	}
	if left, ok := j.TimeLeft(); ok {
		o.set("seconds_left", left.Seconds())
	}
	o.set("state_bytes", j.StateSize)
	o.some("hand_over_seconds", j.HandOver.Seconds())
	o.set("result_bytes", j.ResultSize)
	j.setFiles(&o)
	o.set("seconds_since_write", j.Age().Seconds())
	o.some("created_at", j.CreatedAt)
	o.some("claimed_at", j.ClaimedAt)
	o.some("ended_at", j.EndedAt)
	o.some("updated_at", j.UpdatedAt)
	o.some("deadline", j.Deadline)
	o.some("estimate_seconds", j.Estimate.Seconds())
	j.setOutlook(&o)
	o.some("move_reason", j.MoveReason)
	o.some("work_sha256", j.WorkSHA256)
	o.some("runs", j.Runs)
	o.some("live", j.Live)
	return o.bytes()
}

// MarshalJSON returns the delivery as spotctl prints it.
func (r Run) MarshalJSON() ([]byte, error) {
	var o object
	o.set("delivery", r.Delivery)
	o.some("worker", r.Worker)
	o.set("started_at", r.StartedAt)
	o.some("ended_at", r.EndedAt)
	o.some("outcome", r.Outcome)
	o.set("checkpoints", r.Checkpoints)
	o.some("checkpoint_at", r.CheckpointAt)
	o.set("redone_seconds", r.Redone.Seconds())
	return o.bytes()
}

// setFiles adds the inputs, follow-up jobs and outputs of the job.
func (j Job) setFiles(o *object) {
	o.some("inputs", j.Inputs)
	o.some("follow_ups", j.FollowUps.IDs)
	o.some("more_follow_ups", j.FollowUps.More)
	o.some("output_files", j.OutputFiles)
	o.some("output_bytes", j.OutputBytes)
}

// setOutlook adds whether the job will meet its deadline.
func (j Job) setOutlook(o *object) {
	if end, ok := j.ExpectedEnd(); ok {
		o.some("expected_end", end)
	}
	risk, why := j.Risk()
	o.some("risk", string(risk))
	o.some("risk_reason", why)
}

// MarshalJSON returns the progress by the heartbeat as spotctl prints it.
func (l Live) MarshalJSON() ([]byte, error) {
	var o object
	o.set("heartbeat_age_seconds", l.Age.Seconds())
	o.set("fraction", l.Fraction)
	o.some("text", l.Text)
	o.set("run_seconds", l.RunTime.Seconds())
	return o.bytes()
}

// MarshalJSON returns the cost as spotctl prints it.
func (c Cost) MarshalJSON() ([]byte, error) {
	var o object
	o.set("useful_seconds", c.Useful.Seconds())
	o.set("redone_seconds", c.Redone.Seconds())
	o.set("overhead_seconds", c.Overhead.Seconds())
	o.set("evictions", c.Evictions)
	o.set("unclean_exits", c.UncleanExits)
	return o.bytes()
}

// MarshalJSON returns the line as spotctl prints it: a text that is not UTF-8 is base64.
func (l LogLine) MarshalJSON() ([]byte, error) {
	var o object
	o.set("delivery", l.Delivery)
	o.some("worker", l.Worker)
	o.set("number", l.Number)
	o.some("left_out", l.LeftOut)
	o.some("at", l.At)
	o.some("source", l.Source)
	switch {
	case l.LeftOut > 0:
	case utf8.ValidString(l.Text):
		o.set("text", l.Text)
	default:
		o.set("base64", []byte(l.Text))
	}
	return o.bytes()
}

// MarshalJSON returns the message as spotctl prints it.
func (m PoisonMessage) MarshalJSON() ([]byte, error) {
	var o object
	o.some("id", m.JobID)
	o.some("kind", m.Kind)
	o.some("reason", m.Reason)
	if m.Err == nil {
		o.set("poisoned_at", m.GivenUpAt)
	}
	o.some("worker", m.Worker)
	o.some("origin", m.Queue)
	o.set("message", m.MessageID)
	o.some("original_message", m.OriginalID)
	o.set("inserted_at", m.InsertedAt)
	if m.Err != nil {
		o.set("fault", m.Err.Error())
	}
	return o.bytes()
}

// MarshalJSON returns the worker as spotctl prints it. Beside the heartbeat it has
// [Worker.Life]; it has neither activity nor findings.
func (w Worker) MarshalJSON() ([]byte, error) {
	var o object
	o.set("name", w.Name)
	o.some("vm", w.VM)
	o.some("vm_size", w.VMSize)
	o.some("zone", w.Zone)
	o.set("state", w.State)
	o.some("asked", w.Asked)
	o.set("life", w.Life().String())
	o.some("version", w.Version)
	o.some("started_at", w.StartedAt)
	o.set("heartbeat_age_seconds", w.Age.Seconds())
	if len(w.Queues) > 0 {
		o.set("queues", w.Queues)
	}
	if len(w.Kinds) > 0 {
		o.set("kinds", w.Kinds)
	}
	o.set("jobs", w.Jobs)
	if len(w.JobIDs) > 0 {
		o.set("job_ids", w.JobIDs)
	}
	o.some("log_end", w.LogEnd)
	if w.LastEvent != nil {
		o.set("last_event", w.LastEvent)
	}
	if w.LastDrain != nil {
		o.set("last_drain", w.LastDrain)
	}
	return o.bytes()
}

// MarshalJSON returns the event as spotctl prints it, without NotBefore and Description.
func (e Event) MarshalJSON() ([]byte, error) {
	var o object
	o.set("id", e.ID)
	o.set("type", e.Type)
	o.some("status", e.Status)
	o.some("action", e.Action)
	o.some("seen_at", e.SeenAt)
	return o.bytes()
}

// MarshalJSON returns the drain as spotctl prints it, without Budget.
func (d Drain) MarshalJSON() ([]byte, error) {
	var o object
	o.set("reason", d.Reason)
	o.some("ended_at", d.EndedAt)
	o.set("seconds", d.Took.Seconds())
	o.set("jobs", d.Jobs)
	o.set("done", d.Done)
	o.set("released", d.Released)
	o.set("left_out", d.LeftOut)
	o.set("left", d.Left)
	return o.bytes()
}

// object builds a JSON object. Its fields keep their order.
type object struct {
	text bytes.Buffer
	err  error // of the first field that could not be encoded
}

// set adds a field. Text is not escaped for HTML: the encoder of the caller does that, if
// it is set to.
func (o *object) set(name string, value any) {
	if o.err != nil {
		return
	}
	if t, ok := value.(time.Time); ok {
		value = t.UTC()
	}
	if o.text.Len() == 0 {
		o.text.WriteByte('{')
	} else {
		o.text.WriteByte(',')
	}
	o.text.WriteString(`"` + name + `":`)
	encoder := json.NewEncoder(&o.text)
	encoder.SetEscapeHTML(false)
	if o.err = encoder.Encode(value); o.err == nil {
		o.text.Truncate(o.text.Len() - 1) // the line break of Encode
	}
}

// some adds a field unless its value is zero.
func (o *object) some(name string, value any) {
	if !reflect.ValueOf(value).IsZero() {
		o.set(name, value)
	}
}

// bytes returns the object.
func (o *object) bytes() ([]byte, error) {
	o.text.WriteByte('}')
	return o.text.Bytes(), o.err
}
