package client

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// spotctl prints the JSON forms below with --output json: the fields with a name in their tag.
// They are for output: Go values cannot be read back from them. Times are in UTC and durations
// in seconds.

// MarshalJSON returns the job as spotctl prints it. Beside the fields of the record it has
// the estimates of [Job.TimeLeft], [Job.ExpectedEnd] and [Job.Risk].
func (j Job) MarshalJSON() ([]byte, error) {
	var o object
	o.add(j, map[string]func(){
		"state_bytes": func() {
			if j.Deliveries > 0 {
				o.set("cost", j.Cost)
			}
			if left, ok := j.TimeLeft(); ok {
				o.set("seconds_left", left)
			}
		},
		"created_at": func() { o.set("seconds_since_write", j.Age()) },
		"move_reason": func() {
			if end, ok := j.ExpectedEnd(); ok {
				o.some("expected_end", end)
			}
			risk, why := j.Risk()
			o.some("risk", string(risk))
			o.some("risk_reason", why)
		},
	})
	return o.bytes()
}

// MarshalJSON returns the delivery as spotctl prints it.
func (r Run) MarshalJSON() ([]byte, error) { return encode(r) }

// MarshalJSON returns the progress by the heartbeat as spotctl prints it.
func (l Live) MarshalJSON() ([]byte, error) { return encode(l) }

// MarshalJSON returns the cost as spotctl prints it.
func (c Cost) MarshalJSON() ([]byte, error) { return encode(c) }

// MarshalJSON returns the line as spotctl prints it: a text that is not UTF-8 is base64.
func (l LogLine) MarshalJSON() ([]byte, error) {
	var o object
	o.add(l, nil)
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
	o.add(w, map[string]func(){"version": func() { o.set("life", w.Life().String()) }})
	return o.bytes()
}

// MarshalJSON returns the event as spotctl prints it, without NotBefore and Description.
func (e Event) MarshalJSON() ([]byte, error) { return encode(e) }

// MarshalJSON returns the drain as spotctl prints it, without Budget.
func (d Drain) MarshalJSON() ([]byte, error) { return encode(d) }

func encode(v any) ([]byte, error) {
	var o object
	o.add(v, nil)
	return o.bytes()
}

// object builds a JSON object. Its fields keep their order.
type object struct {
	text bytes.Buffer
	err  error // of the first field that could not be encoded
}

// add adds the fields of a struct that have a name in their tag. before has what comes before the
// place of some of them.
func (o *object) add(from any, before map[string]func()) {
	v := reflect.ValueOf(from)
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if f := before[name]; f != nil {
			f()
		}
		switch field := v.Field(i); {
		case option == "inline":
			o.add(field.Interface(), nil)
		case name == "", option == "omitzero" && field.IsZero(), option == "omitempty" && field.Len() == 0:
		default:
			o.set(name, field.Interface())
		}
	}
}

// set adds a field. Text is not escaped for HTML: the encoder of the caller does that, if
// it is set to.
func (o *object) set(name string, value any) {
	if o.err != nil {
		return
	}
	switch v := value.(type) {
	case time.Time:
		value = v.UTC()
	case time.Duration:
		value = v.Seconds()
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
