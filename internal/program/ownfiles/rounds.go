package ownfiles

import (
	"io/fs"
	"os"
	"time"
)

// rounds learns which files change together. A round begins with each file that changes for a
// second time; the files of the round before make a checkpoint together.
type rounds struct {
	files    map[string]*file
	round    map[string]bool // files that changed in this round, and whether they were there before it
	together map[string]bool // files that change in each round; empty if that is not known
	one      bool            // the last look that found a change found that of one file
}

// file is what is known about one file.
type file struct {
	info  fs.FileInfo
	since time.Time // of the look that found it so

	// whole is whether this version took the place of another file by a new name, with
	// nobody writing to it.
	whole bool
}

// begin returns the rounds of a program that finds files at its start: an earlier run wrote
// them, as far as is known, together.
func begin(at found) rounds {
	r := rounds{files: map[string]*file{}, round: map[string]bool{}, together: map[string]bool{}}
	for name, info := range at {
		r.files[name], r.together[name] = &file{info: info}, true
	}
	return r
}

// observe takes in what a look has found. It reports whether a round began with it, and whether a
// file is another one or was rewritten, and did not grow.
func (r *rounds) observe(marks found, now time.Time, isWritten func(string) bool) (again, rewritten bool) {
	changed := map[string]bool{}
	for name, info := range marks {
		f := r.files[name]
		switch {
		case f == nil:
			f = &file{}
			changed[name] = false
		case same(f.info, info):
			continue
		default:
			moved := !os.SameFile(f.info, info)
			_, known := r.round[name]
			again = again || known && (moved || now.Sub(f.since) >= still)
			rewritten = rewritten || moved || info.Size() <= f.info.Size()
			f.whole = moved && !isWritten(name)
			changed[name] = true
		}
		f.info, f.since = info, now
		r.files[name] = f
	}
	if again {
		r.learn()
	}
	if len(changed) > 0 {
		r.one = len(changed) == 1
	}
	for name, before := range changed {
		r.round[name] = r.round[name] || before
	}
	r.forget(marks)
	return again, rewritten
}

// forget drops the files that are not among marks.
func (r *rounds) forget(marks found) {
	for name := range r.files {
		if marks[name] == nil {
			delete(r.files, name)
			delete(r.round, name)
			delete(r.together, name)
		}
	}
}

// learn ends a round. A file that was new in it may have a name of its own in each.
func (r *rounds) learn() {
	together, first := map[string]bool{}, len(r.together) == 0
	for name, before := range r.round {
		if before || first {
			together[name] = true
		}
	}
	r.together, r.round = together, map[string]bool{}
}

// roundState says whether the files of a round are there.
type roundState int

const (
	unknown roundState = iota
	incomplete
	complete
)

func (r *rounds) state() roundState {
	there := 0
	for name := range r.together {
		if _, ok := r.round[name]; ok {
			there++
		}
	}
	switch there {
	case 0:
		return unknown
	case len(r.together):
		return complete
	}
	return incomplete
}

// isWhole reports whether each file of the round was whole when it came, one after the other: of
// files that come between two looks one may be of the next round already.
func (r *rounds) isWhole(now time.Time) bool {
	for name, f := range r.files {
		if _, ok := r.round[name]; !(ok && f.whole) && now.Sub(f.since) < still {
			return false
		}
	}
	return r.one
}
