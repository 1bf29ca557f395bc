package process

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/jsonpos"
)

// units of sizes. Those of 1,000 are left out: where memory and files are
// counted, somebody would always mean the others.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

// asSize reads a size such as "512MiB", which must not be 0.
func asSize(v jsonpos.Value) (int64, error) {
	text, ok := v.Data.(string)
	if !ok {
		return 0, v.Errorf(`give a size in quotes, such as "512MiB"`)
	}
	for _, unit := range units {
		number, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/unit.bytes {
			break
		}
		return n * unit.bytes, nil
	}
	return 0, v.Errorf("%q is no size: give a whole number above 0 with B, KiB, MiB, GiB or TiB, such as \"512MiB\"", text)
}

// asDuration reads a time such as "10m", which must not be 0.
func asDuration(v jsonpos.Value) (time.Duration, error) {
	text, ok := v.Data.(string)
	if !ok {
		return 0, v.Errorf(`give a duration in quotes, such as "10m"`)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, v.Errorf("%q is no duration: give a number above 0 with s, m or h, such as \"10m\" or \"1h30m\"", text)
	}
	return d, nil
}

func asText(v jsonpos.Value) (string, error) {
	text, ok := v.Data.(string)
	if !ok {
		return "", v.Errorf("give a text in quotes")
	}
	if strings.ContainsRune(text, 0) {
		return "", v.Errorf("a text for the operating system must not have a NUL in it")
	}
	return text, nil
}

// asCount reads a whole number above 0.
func asCount(v jsonpos.Value) (int, error) {
	number, ok := v.Data.(json.Number)
	if ok {
		if n, err := number.Int64(); err == nil && n > 0 && n <= math.MaxInt32 {
			return int(n), nil
		}
	}
	return 0, v.Errorf("give a whole number above 0, without quotes")
}

func asTexts(v jsonpos.Value) ([]string, error) {
	list, ok := v.Data.([]jsonpos.Value)
	if !ok {
		return nil, v.Errorf(`give a list of texts, such as ["a", "b"]`)
	}
	var all []string
	for _, item := range list {
		text, err := asText(item)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}
