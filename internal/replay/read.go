package replay

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

// schemaKey may stand in a scenario for editors, with scenario.schema.json.
const schemaKey = "$schema"

// ReadScenario reads a scenario from the content of a file. An error names the
// file, and for a key or its value the line and column.
func ReadScenario(file string, data []byte) (Scenario, error) {
	s := Default()
	top, err := jsonpos.Parse(data)
	if err == nil {
		err = read(top, reflect.ValueOf(&s).Elem())
	}
	if err != nil {
		return s, jsonpos.Locate(file, data, err)
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// read sets a field to a value, or the fields of a struct to the members of an object.
func read(from jsonpos.Value, to reflect.Value) error {
	text, isText := reflect.TypeAssert[encoding.TextUnmarshaler](to.Addr())
	switch {
	case isText:
		given, ok := from.Data.(string)
		if !ok {
			return from.Errorf("give a duration as a text, such as \"90s\"")
		}
		if err := text.UnmarshalText([]byte(given)); err != nil {
			return from.Errorf("%v", err)
		}
		return nil
	case to.Kind() != reflect.Struct:
		return readPlain(from, to)
	}
	members, ok := from.Data.(jsonpos.Object)
	if !ok {
		return from.Errorf("give an object: {...}")
	}
	fields, known := map[string]reflect.Value{}, []string(nil)
	for i := range to.NumField() {
		name := to.Type().Field(i).Tag.Get("json")
		fields[name], known = to.Field(i), append(known, name)
	}
	for _, m := range members {
		field, ok := fields[m.Name]
		switch {
		case m.Name == schemaKey && from.Path == "":
			continue
		case !ok && spelling.Nearest(m.Name, known) != "":
			return m.Errorf("unknown key: did you mean %q?", spelling.Nearest(m.Name, known))
		case !ok:
			return m.Errorf("unknown key; known here: %s", strings.Join(known, ", "))
		}
		if err := read(m.Value, field); err != nil {
			return err
		}
	}
	return nil
}

// readPlain sets a field to a number, a text or a truth value.
func readPlain(from jsonpos.Value, to reflect.Value) error {
	wanted := map[reflect.Kind]string{
		reflect.Int: "a whole number", reflect.Uint64: "a whole number that is not negative", reflect.Float64: "a number",
		reflect.String: "a text", reflect.Bool: "true or false",
	}[to.Kind()]
	err := errors.New("null, an array or an object")
	switch from.Data.(type) {
	case string, bool, json.Number:
		var encoded []byte
		if encoded, err = json.Marshal(from.Data); err == nil {
			err = json.Unmarshal(encoded, to.Addr().Interface())
		}
	}
	if err != nil {
		return from.Errorf("give %s", wanted)
	}
	return nil
}
