package scenario

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// fields reads the members of one object. Of several problems the first is kept;
// the readers then return zero values, and done returns it.
type fields struct {
	of      jsonpos.Value
	members jsonpos.Object
	known   []string // names that were asked for
	err     error
}

// object returns the members of n, which is called what in errors.
func object(n jsonpos.Value, what string) *fields {
	members, ok := n.Data.(jsonpos.Object)
	f := &fields{of: n, members: members}
	if !ok {
		f.err = jsonpos.Errorf(n.Offset, "%s is to be an object", what)
	}
	return f
}

// get returns the member of that name, nil if there is none.
func (f *fields) get(name string) *jsonpos.Value {
	if !slices.Contains(f.known, name) {
		f.known = append(f.known, name)
	}
	for i, m := range f.members {
		if m.Name == name {
			return &f.members[i].Value
		}
	}
	return nil
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// done returns the first problem, which may be an unknown member.
func (f *fields) done() error {
	for _, m := range f.members {
		if f.err == nil && !slices.Contains(f.known, m.Name) {
			return jsonpos.Errorf(m.Offset, "unknown field %q; known here: %s", m.Name, strings.Join(f.known, ", "))
		}
	}
	return f.err
}

// text returns a text that is not empty, or "" if there is no such member.
func (f *fields) text(name string) string {
	n := f.get(name)
	if n == nil {
		return ""
	}
	text, ok := n.Data.(string)
	if !ok || text == "" {
		f.fail(jsonpos.Errorf(n.Offset, "%q is to be a text that is not empty", name))
	}
	return text
}

// required is text for a member that must be there.
func (f *fields) required(name string) string {
	if f.get(name) == nil {
		f.fail(jsonpos.Errorf(f.of.Offset, "%q is missing", name))
	}
	return f.text(name)
}

// choice returns one of the texts allowed, or the first if there is no such
// member.
func (f *fields) choice(name string, allowed ...string) string {
	n := f.get(name)
	if n == nil {
		return allowed[0]
	}
	text, _ := n.Data.(string)
	if !slices.Contains(allowed, text) {
		f.fail(jsonpos.Errorf(n.Offset, "%q is to be one of %s", name, strings.Join(allowed, ", ")))
	}
	return text
}

// duration returns a time such as "1m30s", within least and most, or otherwise
// if there is no such member.
func (f *fields) duration(name string, least, most, otherwise time.Duration) time.Duration {
	n := f.get(name)
	if n == nil {
		return otherwise
	}
	text, _ := n.Data.(string)
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		f.fail(jsonpos.Errorf(n.Offset, `%q is to be a time such as "500ms", "30s" or "1h30m"`, name))
	case d < least || d > most:
		f.fail(jsonpos.Errorf(n.Offset, "%q is %s, want %s to %s", name, d, least, most))
	}
	return d
}

// number returns a whole number within least and most, or otherwise if there is
// no such member.
func (f *fields) number(name string, least, most, otherwise int) int {
	n := f.get(name)
	if n == nil {
		return otherwise
	}
	number, _ := n.Data.(json.Number)
	i, err := number.Int64()
	if err != nil || i < int64(least) || i > int64(most) {
		f.fail(jsonpos.Errorf(n.Offset, "%q is to be a whole number from %d to %d", name, least, most))
	}
	return int(i)
}

// flag returns true or false, false if there is no such member.
func (f *fields) flag(name string) bool {
	n := f.get(name)
	if n == nil {
		return false
	}
	b, ok := n.Data.(bool)
	if !ok {
		f.fail(jsonpos.Errorf(n.Offset, "%q is to be true or false", name))
	}
	return b
}

// list returns the entries of a list, none if there is no such member.
func (f *fields) list(name string) []jsonpos.Value {
	n := f.get(name)
	if n == nil {
		return nil
	}
	list, ok := n.Data.([]jsonpos.Value)
	if !ok {
		f.fail(jsonpos.Errorf(n.Offset, "%q is to be a list", name))
	}
	return list
}

// texts returns a list of texts, each with its place.
func (f *fields) texts(name string) (texts []place) {
	for _, n := range f.list(name) {
		text, ok := n.Data.(string)
		if !ok || text == "" {
			f.fail(jsonpos.Errorf(n.Offset, "%q is to hold texts that are not empty", name))
		}
		texts = append(texts, place{n.Offset, text})
	}
	return texts
}

// place is a text that refers to something, and where it stands.
type place struct {
	at   int
	text string
}

// placeOf returns a text that must be there, with its place.
func (f *fields) placeOf(name string) place {
	text := f.required(name)
	if n := f.get(name); n != nil {
		return place{n.Offset, text}
	}
	return place{f.of.Offset, text}
}
