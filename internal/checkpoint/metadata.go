package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
)

// Limits on free text in a record, in bytes of its percent-encoded form. They
// keep a whole record under 7 KiB; the service refuses more than 8.
const (
	maxReason = 1536
	maxText   = 600
	maxOwner  = 256
	maxMove   = 256
)

// maxInputList bounds what [PackInputs] returns, in bytes.
const maxInputList = 1 << 10

// MaxLog is the largest log in a record, in bytes of its percent-encoded form. A larger
// one is left out.
const MaxLog = 1 << 10

// maxNumber is the largest number in a record. Real counters stay far below it, and
// counting up from it cannot overflow. A larger number is written as this one, and
// refused when read.
const maxNumber = 1 << 53

// maxRunTime is the longest run time in a record, in milliseconds, for the same reason:
// half of the longest duration, some 146 years.
const maxRunTime = math.MaxInt64 / 2 / int64(time.Millisecond)

// field reads and writes one key of the metadata. A key whose value is "" is left
// out: the service refuses empty values.
type field struct {
	key   string
	write func(r *Record) string
	read  func(r *Record, v string) error
}

// fields lists the keys of a record: lower-case without separators, since HTTP
// libraries change the case of header names.
var fields = []field{
	text("status", func(r *Record) *string { return (*string)(&r.Status) }),
	text("kind", func(r *Record) *string { return &r.Kind }),
	text("payloadhash", func(r *Record) *string { return &r.PayloadHash }),
	text("group", func(r *Record) *string { return &r.Group }),
	text("messageid", func(r *Record) *string { return &r.MessageID }),
	text("token", func(r *Record) *string { return &r.Token }),
	number("write", func(r *Record) *int { return &r.Write }),
	number("generation", func(r *Record) *int { return &r.Generation }),
	number("again", func(r *Record) *int { return &r.Again }),
	number("failures", func(r *Record) *int { return &r.Failures }),
	number("failurestotal", func(r *Record) *int { return &r.FailuresTotal }),
	number("breaks", func(r *Record) *int { return &r.Breaks }),
	fraction("peak", func(r *Record) *float64 { return &r.Peak }),
	freeText("failedby", maxOwner, func(r *Record) *string { return &r.FailedBy }),
	number("silentends", func(r *Record) *int { return &r.ChargedExits }),
	number("earlyends", func(r *Record) *int { return &r.EarlyExits }),
	flag("charge", func(r *Record) *bool { return &r.Charge }),
	number("interruptions", func(r *Record) *int { return &r.Interruptions }),
	milliseconds("paid", func(r *Record) *time.Duration { return &r.RunTime }),
	milliseconds("useful", func(r *Record) *time.Duration { return &r.Ledger.Useful }).lenient(),
	milliseconds("redone", func(r *Record) *time.Duration { return &r.Ledger.Redone }).lenient(),
	milliseconds("overhead", func(r *Record) *time.Duration { return &r.Ledger.Overhead }).lenient(),
	number("evictions", func(r *Record) *int { return &r.Ledger.Evictions }).lenient(),
	number("exits", func(r *Record) *int { return &r.Ledger.Exits }).lenient(),
	milliseconds("nextwrite", func(r *Record) *time.Duration { return &r.NextWrite }).lenient(),
	timestamp("deadline", func(r *Record) *time.Time { return &r.Deadline }).lenient(),
	milliseconds("estimate", func(r *Record) *time.Duration { return &r.Estimate }).lenient(),
	freeText("movereason", maxMove, func(r *Record) *string { return &r.MoveReason }).lenient(),
	flag("progressed", func(r *Record) *bool { return &r.Progressed }),
	text("statehash", func(r *Record) *string { return &r.StateHash }),
	stateKey("statekey", func(r *Record) *blocks.Key { return &r.StateKey }),
	number("statesize", func(r *Record) *int64 { return &r.StateSize }),
	number("stateblocks", func(r *Record) *int { return &r.StateBlocks }),
	number("layoutat", func(r *Record) *int64 { return &r.Layout.At }),
	number("layoutsize", func(r *Record) *int64 { return &r.Layout.Size }),
	number("stateversion", func(r *Record) *int { return &r.StateVersion }),
	needs("stateneeds", func(r *Record) *string { return &r.StateNeeds }),
	fraction("progress", func(r *Record) *float64 { return &r.Fraction }),
	freeText("progresstext", maxText, func(r *Record) *string { return &r.Text }),
	text("outputs", func(r *Record) *string { return &r.Outputs.Hash }),
	number("outputfiles", func(r *Record) *int { return &r.Outputs.Files }),
	number("outputbytes", func(r *Record) *int64 { return &r.Outputs.Bytes }),
	timestamp("createdat", func(r *Record) *time.Time { return &r.CreatedAt }),
	timestamp("claimedat", func(r *Record) *time.Time { return &r.ClaimedAt }),
	timestamp("endedat", func(r *Record) *time.Time { return &r.EndedAt }),
	freeText("owner", maxOwner, func(r *Record) *string { return &r.Owner }),
	freeText("reason", maxReason, func(r *Record) *string { return &r.Reason }),
	text("inputs", func(r *Record) *string { return &r.Inputs }),
	text("inputlist", func(r *Record) *string { return &r.InputList }),
	text("followups", func(r *Record) *string { return (*string)(&r.FollowUps) }),
	text("runs", func(r *Record) *string { return (*string)(&r.Runs) }),
	logText("log", MaxLog, func(r *Record) *string { return &r.Log }),
}

// runsField and needsField are the places of the timeline and of the needs in fields.
var (
	runsField  = slices.IndexFunc(fields, func(f field) bool { return f.key == "runs" })
	needsField = slices.IndexFunc(fields, func(f field) bool { return f.key == "stateneeds" })
)

// maxMetadata is the size below which the timeline and the needs keep a record.
const maxMetadata = 7 << 10

// metadata returns the record as blob metadata, including unchanged the keys that
// this version does not know. The needs of the state get the room that the other keys leave,
// or are left out, and then the timeline.
func (r *Record) metadata() map[string]*string {
	values, used, size := make([]string, 1+len(fields)), 1, 0 // in one piece, since every save makes them
	values[0] = strconv.Itoa(Version)
	for i, f := range fields {
		if values[1+i] = f.write(r); values[1+i] != "" {
			used, size = used+1, size+len(f.key)+len(values[1+i])
		}
	}
	if r.Runs != "" || values[1+needsField] != "" {
		for key, value := range r.unknown {
			size += len(key) + len(value)
		}
		size += len("v1") + 1
		if needs := &values[1+needsField]; size > maxMetadata {
			size -= len(*needs)
			*needs = ""
		}
		values[1+runsField] = string(r.Runs.Cut(len(r.Runs) + maxMetadata - size))
	}
	out := make(map[string]*string, used+len(r.unknown)) // a third of the fields, as a rule
	for key, value := range r.unknown {
		out[key] = &value
	}
	out["v"] = &values[0]
	for i, f := range fields {
		if value := &values[1+i]; *value != "" {
			out[f.key] = value
		}
	}
	return out
}

// errUnreadable means that the blob is not a record that this version can read.
var errUnreadable = errors.New("record cannot be read by this version")

// parse reads a record from blob metadata. For a newer or broken record it returns
// an error that wraps errUnreadable, and a record of version 0 with the fields that
// could be read. The rulings handle a status that this version does not know.
func parse(id string, metadata map[string]*string) (Record, error) {
	values := make(map[string]string, len(metadata))
	for key, value := range metadata {
		if value != nil {
			values[strings.ToLower(key)] = *value
		}
	}
	r := Record{ID: id}
	if values["v"] != strconv.Itoa(Version) {
		return r, fmt.Errorf("%w: it has version %.20q; this worker reads version %d", errUnreadable, values["v"], Version)
	}
	delete(values, "v")
	for _, f := range fields {
		value, ok := values[f.key]
		if !ok {
			continue
		}
		delete(values, f.key)
		if err := f.read(&r, value); err != nil {
			return r, fmt.Errorf("%w: key %s: %w", errUnreadable, f.key, err)
		}
	}
	r.Version, r.unknown = Version, values
	return r, nil
}

// lenient makes a value that cannot be read count as none, instead of keeping the record
// from being read. It is for keys that decide nothing.
func (f field) lenient() field {
	read := f.read
	f.read = func(r *Record, v string) error {
		if read(r, v) != nil {
			_ = read(r, "") // an error too, which leaves the zero value
		}
		return nil
	}
	return f
}

func text(key string, at func(*Record) *string) field {
	return field{key,
		func(r *Record) string { return *at(r) },
		func(r *Record, v string) error { *at(r) = v; return nil }}
}

// stateKey is the secret of the hashes of states.
func stateKey(key string, at func(*Record) *blocks.Key) field {
	return field{key,
		func(r *Record) string { return string(*at(r)) },
		func(r *Record, v string) error {
			if *at(r) = blocks.Key(v); !at(r).Valid() {
				return errors.New("it is damaged")
			}
			return nil
		}}
}

// needs are the requirements of the state on a worker. They are never cut: a part would
// mean other requirements. Damaged ones count as none.
func needs(key string, at func(*Record) *string) field {
	return field{key,
		func(r *Record) string { return url.PathEscape(*at(r)) },
		func(r *Record, v string) error { *at(r), _ = url.PathUnescape(v); return nil }}
}

func freeText(key string, limit int, at func(*Record) *string) field {
	return field{key,
		func(r *Record) string { return escape(*at(r), limit) },
		func(r *Record, v string) (err error) { *at(r), err = unescape(v); return err }}
}

// logText is text of any bytes. An undecodable text is not read, and does not keep the
// record from being read: it decides nothing.
func logText(key string, limit int, at func(*Record) *string) field {
	return field{key,
		func(r *Record) string {
			if encoded := url.QueryEscape(*at(r)); len(encoded) <= limit {
				return encoded
			}
			return ""
		},
		func(r *Record, v string) error { *at(r), _ = url.QueryUnescape(v); return nil }}
}

func number[T int | int64](key string, at func(*Record) *T) field {
	return field{key,
		func(r *Record) string {
			if *at(r) == 0 {
				return ""
			}
			return strconv.FormatInt(min(int64(*at(r)), maxNumber), 10)
		},
		func(r *Record, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if n < 0 || n > maxNumber {
				err = fmt.Errorf("%d is out of range", n)
			}
			*at(r) = T(n)
			return err
		}}
}

// milliseconds is a duration in whole milliseconds, rounded down.
func milliseconds(key string, at func(*Record) *time.Duration) field {
	return field{key,
		func(r *Record) string {
			if ms := min(at(r).Milliseconds(), maxRunTime); ms > 0 {
				return strconv.FormatInt(ms, 10)
			}
			return ""
		},
		func(r *Record, v string) error {
			ms, err := strconv.ParseInt(v, 10, 64)
			if ms < 0 || ms > maxRunTime {
				err = fmt.Errorf("%d is out of range", ms)
			}
			*at(r) = time.Duration(ms) * time.Millisecond
			return err
		}}
}

func flag(key string, at func(*Record) *bool) field {
	return field{key,
		func(r *Record) string {
			if *at(r) {
				return "1"
			}
			return ""
		},
		func(r *Record, v string) error { *at(r) = v == "1"; return nil }}
}

func fraction(key string, at func(*Record) *float64) field {
	return field{key,
		func(r *Record) string {
			if known := bounded(*at(r)); known > 0 {
				return strconv.FormatFloat(known, 'f', 4, 64)
			}
			return ""
		},
		func(r *Record, v string) error {
			f, err := strconv.ParseFloat(v, 64)
			*at(r) = bounded(f)
			return err
		}}
}

// bounded returns f limited to 0…1, and 0 for NaN.
func bounded(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	return min(f, 1)
}

func timestamp(key string, at func(*Record) *time.Time) field {
	const layout = "2006-01-02T15:04:05.000Z"
	return field{key,
		func(r *Record) string {
			if at(r).IsZero() {
				return ""
			}
			return at(r).UTC().Format(layout)
		},
		func(r *Record, v string) error {
			t, err := time.Parse(time.RFC3339, v)
			if year := t.UTC().Year(); year < 0 || year > 9999 {
				err = fmt.Errorf("%s cannot be written in UTC", v)
			}
			*at(r) = t
			return err
		}}
}

// escape encodes free text for an HTTP header: percent-encoded UTF-8 of at most limit bytes;
// the middle of a longer one is left out. The service would refuse every later write of a
// record whose metadata has a raw newline or accent.
func escape(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if escaped := url.PathEscape(s); len(escaped) <= limit {
		return escaped
	}
	const ellipsis = "%E2%80%A6"
	room := limit - len(ellipsis)
	var head, tail string
	for _, r := range s {
		more := head + url.PathEscape(string(r))
		if len(more) > room/2 {
			break
		}
		head = more
	}
	for {
		r, size := utf8.DecodeLastRuneInString(s)
		more := url.PathEscape(string(r)) + tail
		if len(head)+len(more) > room {
			return head + ellipsis + tail
		}
		s, tail = s[:len(s)-size], more
	}
}

func unescape(s string) (string, error) { return url.PathUnescape(s) }
