package process

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// units of sizes. Those of 1,000 are left out: where memory and files are
// counted, somebody would always mean the others.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

// size reads a size such as "512MiB", which must not be 0.
func (v value) size() (int64, error) {
	text, ok := v.is.(string)
	if !ok {
		return 0, v.wrong(`give a size in quotes, such as "512MiB"`)
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
	return 0, v.wrong("%q is no size: give a whole number above 0 with B, KiB, MiB, GiB or TiB, such as \"512MiB\"", text)
}

// duration reads a time such as "10m", which must not be 0.
func (v value) duration() (time.Duration, error) {
	text, ok := v.is.(string)
	if !ok {
		return 0, v.wrong(`give a duration in quotes, such as "10m"`)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, v.wrong("%q is no duration: give a number above 0 with s, m or h, such as \"10m\" or \"1h30m\"", text)
	}
	return d, nil
}

func (v value) text() (string, error) {
	text, ok := v.is.(string)
	if !ok {
		return "", v.wrong("give a text in quotes")
	}
	if strings.ContainsRune(text, 0) {
		return "", v.wrong("a text for the operating system must not have a NUL in it")
	}
	return text, nil
}

// count reads a whole number above 0.
func (v value) count() (int, error) {
	number, ok := v.is.(interface{ Int64() (int64, error) })
	if ok {
		if n, err := number.Int64(); err == nil && n > 0 && n <= math.MaxInt32 {
			return int(n), nil
		}
	}
	return 0, v.wrong("give a whole number above 0, without quotes")
}

func (v value) texts() ([]string, error) {
	list, ok := v.is.([]value)
	if !ok {
		return nil, v.wrong(`give a list of texts, such as ["a", "b"]`)
	}
	var all []string
	for _, item := range list {
		text, err := item.text()
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}
